"""`plait costs`, and the table of phases that `plait show` prints: cells that add up as they are shown."""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import io
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import plait as library
from cli_support import Ended, Shell, action, final
from patience import patience
from plait import Scripted
from plait.core import Reply, Usage
from plait.models.fetch import model_file
from plait.models.prices import UNKNOWN, Rate
from plait.runtime.run import Run
from test_spending import CHEAP, DEAR, agent, look, reply, scripted

ROOT = Path(__file__).resolve().parents[1]
# Costs of 100.6, 406.6 and 696.6 hundred-thousandths of a dollar: each rounded for itself they would not add up.
TABLED = Rate("tokens", 2.0, 3.0, source="contract", date="2026-01-31")
ODD = {
    "reason": scripted("small", Rate("tokens", 1.0, 0.0), reply("I think.", 1_006, 20)),
    "react": scripted("middle", TABLED, reply("I look.", 2_003, 20)),
    "reply": scripted("great", DEAR, reply("It is so.", 3_302, 20, 1_200)),
}


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def three(plait: Shell, **models: Any) -> Run:
    run = agent(plait.folder / "journal.db", **models).run("So?")
    assert run.status == "answered", run.reason
    return run


def react(plait: Shell, price: Rate, name: str = "one") -> Run:
    turns = [reply("Thought: look.\nAction: look[a]", 500, 9), reply("Final Answer: a", 700, 5)]
    model = scripted(name, price, *turns)
    run = library.Agent("react", model=model, tools=[look], journal=plait.folder / "journal.db").run("So?")
    assert run.status == "answered", run.reason
    return run


def read(done: Ended) -> list[dict[str, str]]:
    assert done.code == 0, done.err
    return list(csv.DictReader(io.StringIO(done.out)))


def number(cell: str) -> Decimal:
    return Decimal(0) if cell == "" else Decimal(cell)


def adds_up(row: dict[str, str], *kinds: str) -> None:
    """The cells of a row sum to what stands under "in all", as they are shown."""
    for kind in kinds:
        parts = [number(cell) for name, cell in row.items() if name.endswith(f" {kind}") and name != f"in all {kind}"]
        assert sum(parts) == Decimal(row[f"in all {kind}"]), (kind, row)


# --- the table


def test_a_row_a_run_and_a_column_a_phase_that_add_up_as_shown(plait: Shell) -> None:
    run = three(plait, **ODD)
    (row,) = read(plait("costs", run.id, "--csv", "--tokens"))
    assert row["run"] == run.id and row["loop"] == "three"
    assert row["models"] == "reason=scripted:small react=scripted:middle reply=scripted:great"
    adds_up(row, "s", "USD", "in", "cached", "out")
    assert run.cost_usd is not None
    assert Decimal(row["in all USD"]) == round(Decimal(str(run.cost_usd)), 5)
    for phase in run.phases:
        if not phase.is_work:
            assert abs(Decimal(row[f"{phase.phase} USD"]) - Decimal(str(phase.cost_usd))) < Decimal("0.00001")
            assert row[f"{phase.phase} in"] == str(phase.usage.input_tokens)
        assert abs(Decimal(row[f"{phase.phase} s"]) - Decimal(str(phase.seconds))) < Decimal("0.001")
    assert [row[f"{phase} USD"] for phase in ("reason", "react", "reply")] == ["0.00101", "0.00407", "0.00696"]


def test_swapping_one_phase_s_model_changes_that_phase_s_column_alone(plait: Shell) -> None:
    first = three(plait, **ODD)
    for swapped, same in (
        ("reason", ("react", "reply")),
        ("react", ("reason", "reply")),
        ("reply", ("reason", "react")),
    ):
        said = ODD[swapped].scripts[""][0]
        second = three(plait, **{**ODD, swapped: scripted("other", Rate("tokens", 50.0, 50.0), said)})
        before, after = json.loads(plait("costs", first.id, second.id, "--json").out)
        was = {row["phase"]: row for row in before["phases"]}
        now = {row["phase"]: row for row in after["phases"]}
        assert {phase for phase in was if was[phase]["cost_usd"] != now[phase]["cost_usd"]} == {swapped}
        assert now[swapped]["model"] == "scripted:other" != was[swapped]["model"]
        assert all(was[phase]["model"] == now[phase]["model"] for phase in same)


def test_loops_of_different_phases_stand_in_one_table(plait: Shell) -> None:
    one, other = three(plait, **ODD), react(plait, DEAR)
    rows = read(plait("costs", one.id, other.id, "--csv"))
    assert list(rows[0]) == [
        *("run", "loop", "models"),
        *("act s", "act USD", "reason s", "reason USD", "react s", "react USD"),
        *("tools s", "reply s", "reply USD", "in all s", "in all USD", "cached"),
    ]
    assert (rows[0]["act s"], rows[0]["act USD"]) == ("", "")
    assert (rows[1]["reason USD"], rows[1]["reply s"]) == ("", "")
    assert rows[1]["models"] == "scripted:one"
    for row in rows:
        adds_up(row, "s", "USD")


def test_a_price_that_is_not_known_is_said_and_the_others_are_shown(plait: Shell) -> None:
    run = three(plait, **{**ODD, "react": scripted("odd", UNKNOWN, reply("I look.", 5, 5))})
    (row,) = read(plait("costs", run.id, "--csv"))
    assert (row["react USD"], row["in all USD"]) == ("?", "?")
    assert Decimal(row["reason USD"]) > 0
    assert plait("costs", run.id).out.splitlines()[-1] == "?: a price is unknown"


def test_the_mean_of_runs_of_the_same_loop_and_models_is_one_row_that_adds_up(plait: Shell) -> None:
    runs = [
        three(plait, **{**ODD, "reply": scripted("great", DEAR, reply("It is so.", read, 23))})
        for read in (301, 400, 502)
    ]
    other = react(plait, CHEAP)
    words = [run.id for run in runs]
    rows = read(plait("costs", *words, other.id, words[0], "--mean", "--tokens", "--csv"))
    assert [(row["runs"], row["loop"]) for row in rows] == [("3", "three"), ("1", "react")], (
        "one named twice counts once"
    )
    for row in rows:
        adds_up(row, "s", "USD", "in", "cached", "out")
    mean = sum(Decimal(str(run.cost_usd)) for run in runs) / 3
    assert Decimal(rows[0]["in all USD"]) == round(mean, 5)
    assert rows[0]["reply in"] == "401"
    together, alone = json.loads(plait("costs", *words, other.id, "--mean", "--json").out)
    assert together["runs"] == words and alone["runs"] == [other.id]
    assert together["in_all"]["usage"]["input_tokens"] == pytest.approx(1006 + 2003 + 401)
    nanos = [round(phase["cost_usd"] * 10**9) for phase in together["phases"]]
    assert sum(nanos) == round(together["in_all"]["cost_usd"] * 10**9)
    assert abs(Decimal(sum(nanos)) - mean * 10**9) < 1


def test_other_models_are_another_row(plait: Shell) -> None:
    one, other = react(plait, CHEAP), react(plait, CHEAP, "two")
    rows = read(plait("costs", one.id, other.id, "--mean", "--csv"))
    assert [row["models"] for row in rows] == ["scripted:one", "scripted:two"]


def test_the_forms_show_the_same_cells(plait: Shell) -> None:
    run = three(plait, **ODD)
    row = list(read(plait("costs", run.id, "--csv"))[0].values())
    head, below = plait("costs", run.id).out.splitlines()
    assert below.split("  ")[0] == run.id and all(cell in below for cell in row)
    assert len(below) == len(head), "numbers stand to the right, below their heads"
    lines = plait("costs", run.id, "--markdown").out.splitlines()
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == row
    assert len({line.count("|") for line in lines}) == 1
    (found,) = json.loads(plait("costs", run.id, "--json").out)
    assert [{**phase, "rate": None} for phase in found["phases"]] == [
        {**each.json(), "rate": None} for each in run.phases
    ]
    assert found["in_all"]["cost_usd"] == run.cost_usd
    assert found["wall_seconds"] == json.loads(plait("show", run.id, "--json").out)["seconds"] > 0


def test_rates_say_what_was_reckoned_with_and_where_it_is_from(plait: Shell) -> None:
    run = three(plait, **ODD)
    said = plait("costs", run.id, "--rates").out
    assert "scripted:middle: 2 in, 3 out USD per 1,000,000 tokens (contract, 2026-01-31)" in said
    assert "scripted:great: 3 in, 0.3 cached, 15 out USD per 1,000,000 tokens" in said
    (row,) = read(plait("costs", run.id, "--rates", "--csv"))
    assert row["rates"].count("USD per 1,000,000 tokens") == 3


def test_the_newest_runs_stand_behind_those_named_the_older_first(plait: Shell) -> None:
    runs = [react(plait, CHEAP, name).id for name in ("one", "two", "three")]
    assert [row["run"] for row in read(plait("costs", "--last", "2", "--csv"))] == runs[1:]
    assert [row["run"] for row in read(plait("costs", runs[2], "--last", "9", "--csv"))] == [runs[2], *runs[:2]]


def test_what_can_t_be_is_said(plait: Shell) -> None:
    run = react(plait, CHEAP)
    both = plait("costs", run.id, "--csv", "--json")
    assert (both.code, both.out) == (2, "") and "exclude each other" in both.err
    alone = plait("costs", run.id, run.id, "--hardware", "1500")
    assert (alone.code, alone.out) == (2, "") and "there is only one row" in alone.err
    assert plait("costs", "zzz").code == 2
    nothing = plait("costs")
    assert (nothing.code, nothing.out) == (2, "") and "--last N" in nothing.err
    assert plait("costs", run.id, "--hardware", "0").code == 2


def test_a_run_that_was_interrupted_or_never_asked_a_model_has_its_row(plait: Shell) -> None:
    dead = library.Scripted([library.core.errors.BadRequest("no")])
    run = agent(plait.folder / "journal.db", reason=dead).run("So?")
    assert run.status == "crashed"
    (row,) = read(plait("costs", run.id, "--csv"))
    assert row["in all USD"] == "0.00000"
    adds_up(row, "s", "USD")


# --- hardware


def test_after_how_many_runs_the_hardware_is_paid(plait: Shell) -> None:
    dear, cheap = react(plait, DEAR), react(plait, Rate("per_1k", per_1k_tokens=0.0002), "two")
    dearer, odd = react(plait, Rate("tokens", 9, 99), "three"), react(plait, UNKNOWN, "four")
    assert (dear.cost_usd, cheap.cost_usd) == (0.00381, 0.0002428)
    words = [run.id for run in (dear, cheap, dearer, odd)]
    rows = read(plait("costs", *words, "--hardware", "1500", "--csv"))
    assert [row["paid back after"] for row in rows] == ["", "420498", "never", "?"]
    told = json.loads(plait("costs", *words, "--hardware", "1500", "--json").out)
    assert [row["paid_back_after_runs"] for row in told] == [None, 420_498, "never", "not known"]
    text = plait("costs", *words, "--hardware", "1500").out
    assert "420,498 runs" in text and text.splitlines()[-1] == "?: a price is unknown"


# --- electricity, from the configuration to the table

ELECTRIC = "[electricity]\nwatts = {watts}\ntariff = 0.5\n"


def test_a_server_on_this_machine_costs_electricity(plait: Shell) -> None:
    place = importlib.util.spec_from_file_location("endpoint", ROOT / "examples" / "endpoint.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    plait.script([action("calculator", "6 * 7"), final("42")])
    server = module.Endpoint(str(plait.folder / "script.json"))
    try:
        run = ("run", "6 * 7?", "--model", "ollama:x", "--tools", "calculator", "--json")
        env = {"OLLAMA_BASE_URL": server.url}
        free = plait(*run, env=env).object
        (plait.folder / "plait.toml").write_text("[electricity]\nper_1k_tokens = 0.002\n")
        by_rate = plait(*run, env=env).object
        (plait.folder / "plait.toml").write_text(ELECTRIC.format(watts=3_600_000))
        by_watts = plait(*run, env=env).object
    finally:
        server.close()
    assert free["cost_usd"] == 0
    assert by_rate["cost_usd"] == 0.00048, "2 x (100 + 20) tokens at 0.002 USD per 1,000"
    act = next(each for each in by_watts["phases"] if each["phase"] == "act")
    assert act["cost_usd"] == by_watts["cost_usd"] == pytest.approx(act["seconds"] * 0.5, abs=2e-6)
    said = plait("costs", free["run"], by_rate["run"], by_watts["run"], "--rates").out
    assert "ollama:x: 0 in, 0 out USD per 1,000,000 tokens (local, electricity not counted)" in said
    assert "ollama:x: 0.002 USD per 1,000 tokens (plait.toml: electricity)" in said
    assert "ollama:x: 3600000 W at 0.5 USD per kWh (plait.toml: electricity)" in said


def test_the_embedded_model_costs_electricity(plait: Shell) -> None:
    model_file("smollm2-135m")  # fetched into the user's cache where it isn't there
    (plait.folder / "plait.toml").write_text(ELECTRIC.format(watts=65) + "[local]\nn_ctx = 1024\nn_predict = 16\n")
    env = {"HOME": str(Path.home()), "PLAIT_THREADS": "1"}
    run = ("run", "Say hello.", "--model", "local:smollm2-135m", "--max-calls", "1", "--json")
    done = plait(*run, env=env)
    found = json.loads(done.out)
    (act,) = (each for each in found["phases"] if each["phase"] == "act")
    assert act["model"] == "local:smollm2-135m" and act["calls"] >= 1 and act["usage"]["input_tokens"] > 0, done.err
    # watts x seconds / 3,600,000 (joules in a kWh) x tariff
    assert act["cost_usd"] == pytest.approx(65 * act["seconds"] / 3_600_000 * 0.5, abs=2e-9 * act["calls"])
    assert act["cost_usd"] == found["cost_usd"] > 0


# --- show and run


def test_show_ends_with_the_phases_and_their_sum(plait: Shell) -> None:
    run = three(plait, **ODD)
    told = plait("show", run.id).out
    head, *rows, whole = told.partition("\n\n")[2].splitlines()
    assert head.split() == ["phase", "model", "calls", "input", "cached", "output", "seconds", "USD"]
    assert [row.split()[0] for row in rows] == ["reason", "react", "tools", "reply"]
    assert rows[0].split()[1:6] == ["scripted:small", "1", "1,006", "0", "20"]
    assert rows[2].split()[:4] == ["tools", "2", "tool", "calls"]
    seconds = [Decimal(row.split()[-1 if row.startswith("tools") else -2]) for row in rows]
    assert sum(seconds) == Decimal(whole.split()[-2])
    money = [Decimal(row.split()[-1]) for row in rows if not row.startswith("tools")]
    assert sum(money) == Decimal(whole.split()[-1]) == round(Decimal(str(run.cost_usd)), 5)
    assert whole.split()[:6] == ["in", "all", "3", "6,311", "1,200", "60"]


def test_show_says_retries_and_what_is_estimated(plait: Shell) -> None:
    flaky = library.Scripted([library.core.errors.ServerFailed("down"), "I think."], rate=CHEAP)
    run = three(plait, reason=flaky)
    head, first, *_ = plait("show", run.id).out.partition("\n\n")[2].splitlines()
    assert head.split()[2:4] == ["calls", "retries"]
    assert first.split()[2:4] == ["1", "1"] and first.split()[4].startswith("~")


def test_show_of_a_run_with_one_row_has_no_table(plait: Shell) -> None:
    model = library.Scripted([Reply("Final Answer: 4", usage=Usage(10, 3))])
    library.Agent(model=model, journal=plait.folder / "journal.db").run("2 + 2?")
    told = plait("show", "last").out
    assert told.splitlines()[-1].startswith("answered · 1 step") and "in all" not in told


def test_the_phases_stand_in_the_json_of_show_and_run(plait: Shell) -> None:
    model = plait.script([action("calculator", "6 * 7"), final("42")])
    ran = plait("run", "6 * 7?", "--model", model, "--tools", "calculator", "--json").object
    shown = json.loads(plait("show", "last", "--json").out)
    assert ran["phases"] == shown["phases"]
    assert [(each["phase"], each["calls"]) for each in ran["phases"]] == [("act", 2), ("tools", 1)]
    assert ran["phases"][0]["usage"] == ran["usage"] and ran["phases"][0]["cost_usd"] is None


@pytest.mark.parametrize("children", [1, 2])
def test_child_runs_have_a_time_and_the_row_still_adds_up(plait: Shell, children: int) -> None:
    @library.tool(read_only=True)
    def slow(word: str) -> str:
        "Takes its time."
        time.sleep(0.03)
        return word

    class Slow(Scripted):
        async def send(self, *args: Any, **more: Any) -> Any:
            await asyncio.sleep(0.05)
            return await super().send(*args, **more)

    below = library.Agent("react", model=Slow([action("slow", {"word": "a"}), final("a")]), tools=[slow])

    @library.tool
    async def ask(ctx: library.Context, word: str) -> str:
        "Asks others."
        await asyncio.sleep(0.02)
        runs = [await ctx.arun(below, f"{word} {number}") for number in range(children)]
        return str(len(runs))

    model = Scripted([action("ask", {"word": "x"}), final("done")])
    run = library.Agent("react", model=model, tools=[ask], journal=plait.folder / "journal.db").run("So?")
    assert run.status == "answered" and len(run.children) == children
    (row,) = read(plait("costs", run.id, "--csv"))
    child, tools, whole = number(row["run:ask s"]), number(row["tools s"]), number(row["in all s"])
    assert child >= Decimal("0.13") * children, "two replies and a tool of each"
    assert Decimal("0.015") < tools < patience(0.1), "the tool has what is its own"
    assert number(row["act s"]) + child + tools == whole <= Decimal(run.seconds) + Decimal("0.01")
