"""Every cell of docs/providers.md is what Plait does: resolved models and encoded requests are compared with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import plait
from conftest import data_file, for_each
from docs_support import ROOT
from plait.core import File, Message, Think, ToolSpec, user
from plait.core.errors import ConfigError, PlaitError
from plait.models.chat import ChatModel
from plait.models.families import FAMILIES, family_of
from plait.models.presets import HOSTS, abilities_of
from plait.models.prices import LOCAL
from plait.models.resolve import resolve

ENV = {key: "sk-0123456789" for host in HOSTS.values() for key in host.keys}
PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


def rows_of(name: str) -> list[Row]:
    """The rows of a table of the page, by the words of its head. The first cell is "row"."""
    lines = PAGE.partition(f"<!-- table: {name} -->\n")[2].partition("\n<!-- end -->")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    head = ["row", *cells[0][1:]]
    return [dict(zip(head, row, strict=True)) for row in cells[2:]]


def rows_by_host() -> list[Row]:
    """The table of requests, which has a row for each feature, as a row for each host."""
    rows = {f"`{host}`": {"row": f"`{host}`"} for host in HOSTS}
    for feature in rows_of("requests"):
        for group in feature["value: providers"].split("; "):
            value, _, hosts = group.rpartition(": ")
            rest = [host for host, row in rows.items() if feature["row"] not in row]
            for host in rest if hosts in ("all", "the others") else hosts.split(", "):
                rows[host][feature["row"]] = value
    return [*rows.values()]


Row = dict[str, str]
ACCESS, REQUESTS, ROWS = rows_of("access"), rows_by_host(), rows_of("families")


def model_of(spec: str) -> ChatModel:
    model = resolve(spec, env=ENV)
    assert isinstance(model, ChatModel)
    return model


def sent_to(spec: str, **think: Any) -> dict[str, Any]:
    """The body of a request to a model, with the fields of nested tables as `a.b`, too."""
    return flatten(json.loads(model_of(spec).encode(Think("act", (user("q"),), **think)).body))


def flatten(table: dict[str, Any], above: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        out[f"{above}{key}"] = value
        if isinstance(value, dict):
            out |= flatten(value, f"{above}{key}.")
    return out


def names_of(cell: str) -> list[str]:
    """The words of a cell that are marked as code."""
    return cell.split("`")[1::2]


def find_stop(body: dict[str, Any]) -> list[str]:
    return next(
        (body[key] for key in ("stop", "stop_sequences", "generationConfig.stopSequences") if key in body), list[str]()
    )


def has_temperature(spec: str, value: float | None = 0.5) -> bool:
    body = sent_to(spec, temperature=value)
    return "temperature" in body or "generationConfig.temperature" in body


def has_schema(body: dict[str, Any]) -> bool:
    return bool(
        {"response_format", "output_config.format", "generationConfig.responseJsonSchema", "text.format"} & {*body}
    )


def find_prefill(body: dict[str, Any]) -> str:
    """How a body asks for the continuation of "Thought:"; "" if it does not."""
    turns = body.get("messages") or body.get("contents") or body["input"]
    if turns[-1]["role"] not in ("assistant", "model"):
        return "no"
    if turns[-1].get("prefix"):
        return '`"prefix": true`'
    return "`continue_final_message`" if body.get("continue_final_message") else "last message"


def find_grammar(body: dict[str, Any]) -> str:
    for field in ("grammar", "structured_outputs", "response_format"):
        if field in body:
            return f"`{field}`"
    return "no"


# -- hosts


def test_the_tables_have_every_host_and_every_family() -> None:
    assert [names_of(row["row"])[0] for row in ACCESS] == [names_of(row["row"])[0] for row in REQUESTS] == [*HOSTS]
    assert [row["row"] for row in ROWS] == [family.name for family in FAMILIES]


@for_each("row", ACCESS)
def test_a_host_is_at_its_address_with_its_key(row: Row) -> None:
    check_access(row)


def check_access(row: Row) -> None:
    (host,) = names_of(row["row"])
    assert names_of(row["such as"]) == [f"{host}:{HOSTS[host].example}"]
    spec, keys = names_of(row["such as"])[0], names_of(row["key, from the environment"])
    for key in keys:
        found = resolve(spec, env={key: "sk-0123456789"})
        assert isinstance(found, ChatModel)
        assert (found.endpoint, found.key_env, found.key) == (names_of(row["address"])[0], key, "sk-0123456789")
    moved = {f"{host.upper()}_BASE_URL": "http://127.0.0.1:9/v1"}
    assert resolve(spec, env=moved).endpoint == "http://127.0.0.1:9/v1"
    assert row["source"] == f"[{HOSTS[host].date}]({HOSTS[host].source})"
    if row["key, from the environment"].endswith("(not needed)"):
        assert resolve(spec, env={}).secrets == ()
    else:
        with pytest.raises(ConfigError, match=keys[0]):
            resolve(spec, env={})


@for_each("row", REQUESTS)
def test_a_request_to_a_host_is_what_its_cells_say(row: Row) -> None:
    check_request(row)


def check_request(row: Row) -> None:
    (host,) = names_of(row["row"])
    spec = f"{host}:m"
    assert family_of("m") is None and f"`{model_of(spec).wire}`" == row["wire"]
    assert row["tools"] == yes("tools" in sent_to(spec, tools=(TOOL,)))
    request = model_of(spec).encode(Think("act", (user("q"),)))
    assert row["streams"] == yes("stream" in json.loads(request.body) or ":streamGenerateContent" in request.path)
    assert row["stop strings"] == f"up to {len(find_stop(sent_to(spec, stop=tuple(map(str, range(20))))))}"
    assert row["temperature"] in ("0", "if set") and has_temperature(spec)
    assert (row["temperature"] == "0") == has_temperature(spec, None)
    assert row["schema"] == yes(has_schema(sent_to(spec, schema=SCHEMA)))
    assert row["grammar"] == find_grammar(sent_to(spec, grammar="root ::= x"))
    assert row["prefill"] == find_prefill(sent_to(spec, prefill="Thought:"))
    raw = model_of(spec).encode(Think("act", prompt="Once"))
    assert row["raw prompt"] == yes(raw.path == "completions" and json.loads(raw.body)["prompt"] == "Once")
    assert row["cache marks"] == yes(b"cache_control" in request.body)
    check_thinking(spec, row["`effort` is sent as"], "effort", "low")
    check_thinking(spec, row["`thinking_tokens` is sent as"], "thinking_tokens", 2000)
    rate = model_of(f"{host}:{HOSTS[host].example}").rate
    assert row["price"] == ("electricity" if rate == LOCAL else yes(rate.is_known))


def check_thinking(spec: str, cell: str, setting: str, value: Any) -> None:
    """Check that a setting goes to the field of its cell; if the cell is "no", that it is an error."""
    if cell == "no":
        with pytest.raises(ConfigError, match=setting):
            model_of(f"{spec}@{setting}={value}")
    else:
        (field,) = names_of(cell)
        assert sent_to(f"{spec}@{setting}={value}")[field] == value


# -- families


@for_each("row", ROWS)
def test_a_request_to_a_model_of_a_family_leaves_out_what_its_cells_say(row: Row) -> None:
    check_family(row)


def check_family(row: Row) -> None:
    (spec,) = names_of(row["such as"])
    family = family_of(spec.partition(":")[2])
    assert family is not None and (family.name, family.host) == (row["row"], spec.partition(":")[0])
    assert row["source"] == f"[{family.date}]({family.source})"
    host, _, name = spec.partition(":")
    model = model_of(spec)
    assert model.wire == (family.wire or HOSTS[host].wire)
    everywhere = names_of(re.sub(r"`\w+` \(own host\)", "", row["left out"]))
    at_home = re.findall(r"`(\w+)` \(own host\)", row["left out"])
    for ability in ("stop", "temperature", "schema", "prefill", "max_tokens"):
        offered = getattr(HOSTS[host].abilities, ability)
        left_out = ability in everywhere + at_home
        assert sends(ability, spec) == (offered and not left_out), ability
        for other in ("openrouter", "vllm"):
            offered = getattr(HOSTS[other].abilities, ability)
            assert sends(ability, f"{other}:{name}") == (offered and ability not in everywhere), (other, ability)
    files = {"images": File.from_bytes(b"\x89PNG\r\n\x1a\n"), "PDF": File.from_bytes(b"%PDF-1.7")}
    assert row["sees"] == (", ".join(word for word, file in files.items() if is_sent(file, model)) or "text")
    settings = [f"`effort`: {'/'.join(family.efforts)}"] * bool(family.efforts)
    assert row["thinking is set with"] == "; ".join([*settings, *["`thinking_tokens`"] * family.has_budget] or ["-"])
    for setting in names_of(row["thinking is set with"]):
        for value in family.efforts if setting == "effort" else ["2000"]:
            assert value in map(str, sent_to(f"{spec}@{setting}={value}").values()), value


def is_sent(file: File, model: ChatModel) -> bool:
    """Whether a request with this file has it."""
    body = model.encode(Think("act", (Message("user", "q", attachments=(file.attachment,)),))).body
    return file.attachment.digest.encode() in body


def sends(ability: str, spec: str) -> bool:
    """Whether Plait sends what needs an ability. The wire `responses` has no stop strings, and one name of a limit."""
    if ability == "stop":
        return bool(find_stop(sent_to(spec, stop=("x",))))
    if ability == "temperature":
        return has_temperature(spec)
    if ability == "schema":
        return has_schema(sent_to(spec, schema=SCHEMA))
    if ability == "prefill":
        return find_prefill(sent_to(spec, prefill="Thought:")) != "no"
    body = sent_to(spec, max_tokens=99)
    return "max_completion_tokens" not in body and "max_output_tokens" not in body


def yes(value: bool) -> str:
    return "yes" if value else "no"


# -- the tests themselves


@for_each(
    ("check", "row"),
    [
        *[(check_access, row) for row in ACCESS],
        *[(check_request, row) for row in REQUESTS],
        *[(check_family, row) for row in ROWS],
    ],
)
def test_every_wrong_cell_is_found(check: Callable[[Row], None], row: Row) -> None:
    for column, cell in row.items():
        with pytest.raises((AssertionError, KeyError, ValueError, PlaitError, pytest.fail.Exception)):
            check({**row, column: damage(cell)})


def damage(cell: str) -> str:
    """Another value of a cell: the opposite, abilities that are not left out, none of those that are, another word."""
    opposite = {"yes": "no", "no": "yes", "if set": "0", "0": "if set", "nothing": "`temperature`, `prefill`, `schema`"}
    if set(names_of(cell)) & {"stop", "schema", "temperature", "prefill", "max_tokens"}:
        return "nothing"
    return opposite.get(cell) or re.sub(r"`[^`]*`|[^`]+$", "`x`", cell, count=1)


# -- what providers accepted


def test_no_recorded_request_that_was_accepted_has_a_field_that_the_tables_leave_out() -> None:
    """Recordings of 2025 and 2026. A temperature is accepted by GPT-5.1 and later with the effort "none"."""
    names = {urlsplit(host.base_url).hostname: name for name, host in HOSTS.items()}
    seen = 0
    for file in sorted(data_file("wires").glob("*/*.json")):
        for exchange in json.loads(file.read_text("utf-8")):
            asked = exchange["request"]
            if exchange["status"] != 200 or not isinstance(asked, dict) or exchange["host"] not in names:
                continue
            body = flatten(asked)
            name = body.get("model") or exchange["path"].partition("/models/")[2].partition(":")[0]
            wire = "chat" if exchange["path"].endswith("chat/completions") else ""
            can = abilities_of(names[exchange["host"]], name, wire)
            warm = "temperature" in body or "generationConfig.temperature" in body
            assert can.temperature or not warm or body.get("reasoning.effort") == "none", file.stem
            assert can.stop or not find_stop(body), file.stem
            assert can.schema or body.get("response_format.type") != "json_schema", file.stem
            assert can.schema or not {"output_config.format", "text.format.schema"} & {*body}, file.stem
            assert can.max_tokens or wire != "chat" or "max_tokens" not in body, file.stem
            seen += 1
    assert seen > 200


# -- the first examples


@pytest.mark.parametrize(
    "spec", ["anthropic:claude-sonnet-5", "deepseek:deepseek-v4-pro", "mistral:mistral-medium-3-5"]
)
def test_the_endpoint_of_the_examples_refuses_a_result_without_the_thinking(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its state, a turn goes back as that of another model does. So the examples show that thinking is kept."""
    monkeypatch.syspath_prepend(ROOT)
    from examples.providers import Providers

    server = Providers()
    monkeypatch.setenv(f"{spec.partition(':')[0].upper()}_BASE_URL", server.url)
    tools = [f"lookup:{ROOT / 'examples' / 'cities.json'}"]
    agent = plait.Agent("tool_calling", model=spec, tools=tools, journal=tmp_path / "j.db")
    assert agent.run("How many people live in Lyon?").status == "answered"
    with monkeypatch.context() as patch:
        patch.setattr("plait.models.wires.turns.state_for", lambda *_: None)
        for wire in ("anthropic_messages", "chat_state"):
            patch.setattr(f"plait.models.wires.{wire}.state_for", lambda *_: None)
        run = agent.run("How many people live in Lyon?")
    assert run.status == "crashed" and "thinking before the call" in str(run.reason)
    server.close()
