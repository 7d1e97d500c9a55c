"""The published figures are those of the accounts, and Plait's tables compute them from the accounts' counts."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cli_support import run_in_process
from conftest import data_file
from lab_results import comparison
from plait.core import Usage
from plait.lab.classics import make_phase_table, make_token_tables, published
from plait.models.prices import Rate

REPLIES = {
    "reason": "Search.",
    "react": '[{"ACTION": "calculator", "ARGUMENTS": ["28 - 16"], "EXPLANATION": "It subtracts."}]',
    "reply": "They lost.",
}


def read_account() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data_file("published", "phased-reactor.json").read_text())
    return found


def read_counts(note: str) -> dict[str, tuple[int, int]]:
    """The token counts that the note of the account's file gives: in and out, by phase."""
    counts = {}
    for phases, used, written in re.findall(r"(reason and react|reply) ([\d,]+) in and ([\d,]+) out", note):
        counts[phases] = (int(used.replace(",", "")), int(written.replace(",", "")))
    return counts


def read_prices(note: str) -> dict[str, dict[str, float]]:
    """The prices that the note gives, as `plait.toml` has them, by model."""
    found = re.findall(r"(\d+)/(\d+) \(([\w.-]+)\)", note)
    prices = {name.removesuffix("-1106"): {"input": float(one), "output": float(two)} for one, two, name in found}
    electricity = {"per_1k_tokens": float(re.search(r"([\de-]+) USD per 1,000 tokens", note)[1])}  # type: ignore[index]
    return prices | dict.fromkeys(("airoboros-7b", "llongorca-13b"), electricity)


@pytest.mark.parametrize("wanted", ["--row", "--published"])
def test_golden_costs_of_the_seven_rows(
    wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    account = read_account()
    counts, prices = read_counts(account["note"]), read_prices(account["note"])
    both = counts["reason and react"]
    shares = {"reason": (both[0] // 2, both[1] // 2), "reply": counts["reply"]}
    shares["react"] = (both[0] - shares["reason"][0], both[1] - shares["reason"][1])
    toml = "[prices]\n"
    for name, price in prices.items():
        script = {
            phase: [{"text": text, "usage": dict(zip(("input_tokens", "output_tokens"), shares[phase], strict=True))}]
            for phase, text in REPLIES.items()
        }
        (tmp_path / f"{name}.json").write_text(json.dumps({"replies": script}))
        toml += f'"scripted:{name}.json" = {{ {", ".join(f"{key} = {value}" for key, value in price.items())} }}\n'
    (tmp_path / "prices.toml").write_text(toml)
    monkeypatch.setenv("PLAIT_CONFIG", str(tmp_path / "prices.toml"))
    monkeypatch.chdir(tmp_path)
    if wanted == "--row":
        heads = account["table_columns"][:3]
        words = [
            f"--row={','.join(f'{phase}=scripted:{name}.json' for phase, name in zip(heads, row[:3], strict=True))}"
            for row in account["table"]
        ]
    else:
        words = ["--published", ",".join(f"{name}=scripted:{name}.json" for name in prices)]
    question = ["--question", "What is 28 - 16?", "--tools", "calculator", "--quiet", "--csv", "--journal", "j.db"]
    assert run_in_process(["classics", "phases", *words, *question]) == 0
    rows = list(csv.DictReader(io.StringIO(capfd.readouterr().out)))
    for kind in ("own", "published"):
        assert [row["USD"] for row in rows if row["row"] == kind] == [f"{row[3]:.5f}" for row in account["table"]]
    assert [row["seconds"] for row in rows if row["row"] == "published"] == ["49", "65", "43", "22", "21", "17", "7"]
    assert {row["tokens"].removeprefix("~") for row in rows} == {str(sum(map(sum, counts.values())))}


def test_golden_phase_rows_are_those_of_the_account() -> None:
    account, text = read_account(), data_file("published", "phased-reactor.txt").read_text()
    rows = [[*row.models.values(), row.usd] for row in published.PHASE_ROWS]
    assert rows == account["table"]
    seconds = re.findall(r"^(?:gpt|Airoboros)\S*?(\d\d?)([01]\.\d{5})$", text, re.M)
    assert [(row.seconds, row.usd) for row in published.PHASE_ROWS] == [(int(one), float(two)) for one, two in seconds]
    counts = {name: (each.input_tokens, each.output_tokens) for name, each in published.TOKENS.items()}
    assert counts == read_counts(account["note"])
    prices = read_prices(account["note"])
    assert {name: Rate.from_mapping({**price, "source": ""}, name) for name, price in prices.items()} == published.RATES
    for row in published.PHASE_ROWS:
        first, last = row.models["reason"], row.models["reply"]
        assert row.models["react"] == first
        costs = [
            published.RATES[name].cost(Usage(*counts[phases]))
            for name, phases in ((first, "reason and react"), (last, "reply"))
        ]
        assert f"{sum(filter(None, costs)):.5f}" == f"{row.usd:.5f}"


def phase_notes() -> tuple[str, ...]:
    made = comparison({"phased": ["+"]})
    (row,) = made.contenders
    whole = structs.replace(row, models=dict.fromkeys(("reason", "react", "reply"), "local"))
    return tuple(make_phase_table(structs.replace(made, contenders=(whole,))).notes)


def test_golden_rate_that_the_account_prints_gives_other_costs() -> None:
    account, text = read_account(), data_file("published", "phased-reactor.txt").read_text()
    printed = re.search(r"([\d.]+) USD per 1000 tokens", text)
    prices, counts = read_prices(account["note"]), read_counts(account["note"])
    assert printed
    local = {name: price["per_1k_tokens"] for name, price in prices.items() if "input" not in price}

    def cost(model: str, used: int, written: int, per_1k: float) -> float:
        if model in local:
            return (used + written) * per_1k / 1000
        return (used * prices[model]["input"] + written * prices[model]["output"]) / 10**6

    def costs(per_1k: float) -> list[str]:
        both, reply = counts["reason and react"], counts["reply"]
        found = (cost(one, *both, per_1k) + cost(last, *reply, per_1k) for one, _, last, _ in account["table"])
        return [f"{each:.5f}" for each in found]

    theirs = [f"{row[3]:.5f}" for row in account["table"]]
    (right,) = set(local.values())
    wrong = [pair for pair in zip(costs(float(printed[1])), theirs, strict=True) if pair[0] != pair[1]]
    assert len(wrong) == 3 and costs(right) == theirs
    note = phase_notes()[-1]
    assert f"prints {printed[1]} USD per 1,000 tokens" in note and f"At {right:f} USD, every row has" in note
    assert f"3 rows do not have the printed costs: {', '.join(' instead of '.join(pair) for pair in wrong)}." in note


def test_golden_tokens_of_both_loops() -> None:
    text = data_file("published", "rewoo.txt").read_text()
    heads = re.search(r"^(\w+) \| (\w+) \|$", text, re.M)
    tokens = re.search(r"^Token usage: (\d+) \| Token usage: (\d+) \|$", text, re.M)
    assert heads and tokens
    theirs = {name.lower(): int(count) for name, count in zip(heads.groups(), tokens.groups(), strict=True)}
    assert theirs == published.LOOP_TOKENS
    assert f"save {theirs['react'] - theirs['rewoo']} tokens" in text
    # A comparison with these totals shows the same difference and share as the published row.
    made = comparison({"react": ["+"], "rewoo": ["+"]})
    results = [
        structs.replace(each, usage=Usage(theirs[row.loop]))
        for each, row in zip(made.results, made.contenders, strict=True)
    ]
    (table,) = make_token_tables(structs.replace(made, results=tuple(results)))
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    shown = [[row[name] for name in ("react tokens", "rewoo tokens", "difference", "share")] for row in rows]
    assert [row["task"] for row in rows] == ["t1", "in all", "published"]
    assert shown == [["3265", "2661", "604", "18.5 %"]] * 3


def test_golden_marks_and_steps_of_the_six_tasks() -> None:
    text = data_file("published", "repl-agent.txt").read_text()
    heads = re.search(r"^(.+) \| (.+) \| (.+) \| \|$", text, re.M)
    assert heads and heads.groups() == published.TASK_MODELS
    marks = {"\N{WHITE HEAVY CHECK MARK}": "done", "\N{LARGE ORANGE CIRCLE}": "flaw", "\N{CROSS MARK}": "not done"}
    rows = re.findall(r"^([A-F]) \| (.+) \| (.+) \| (.+) \|$", text, re.M)
    cells = {task: [cell.split() for cell in others] for task, *others in rows}
    theirs = {task: tuple((marks[mark], int(steps)) for steps, mark in row) for task, row in cells.items()}
    assert theirs == published.TASK_CELLS


def test_golden_wording_of_the_six_tasks_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = data_file("published", "repl-agent.txt").read_text()
    wordings = re.findall(r"^- (.+)$", text.partition("The six tasks are:")[2], re.M)[:6]
    (tmp_path / "tasks.txt").write_text("\n".join(wordings))
    (tmp_path / "stop.json").write_text(json.dumps(["Thought: so.\nFinal Answer: no"]))
    monkeypatch.chdir(tmp_path)
    words = ["classics", "tasks", "--tasks", "tasks.txt", "--loop", "react", "--model", "scripted:stop.json"]
    assert run_in_process([*words, "--quiet", "--json", "--journal", "j.db"]) == 0
    (table,) = json.loads(capfd.readouterr().out)["tables"]
    assert [(row["task"], row["question"]) for row in table["rows"][:6]] == list(zip("ABCDEF", wordings, strict=True))
    assert {row["cells"]["scripted:stop.json"][0]["mark"] for row in table["rows"][:6]} == {"not done"}


def test_golden_tokens_of_each_request() -> None:
    calls = json.loads(data_file("published", "react-on-the-wire.json").read_text())["calls"]
    theirs = [(call["usage"]["prompt_tokens"], call["usage"]["completion_tokens"]) for call in calls]
    assert theirs == list(published.REQUEST_TOKENS)
