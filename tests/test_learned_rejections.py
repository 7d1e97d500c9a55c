"""What an endpoint rejects is left out once, noted, stored for a month, and known to the next run."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell
from fork_server import run_together
from models_server import Asked, Server, completion
from plait.core.errors import ConfigError
from plait.journal.records import NoteRecord
from plait.journal.redaction import redact_with
from plait.journal.store import Journal
from plait.models.chat import ChatModel
from plait.models.config import ModelConfig
from plait.models.rejections import LIFETIME, forget_rejections, list_rejections, remember_rejection
from plait.models.resolve import resolve
from plait.models.settings import ModelSettings

FINAL = "Thought: I know.\nFinal Answer: 4"
ODD = {"error": {"message": "invalid temperature: only 1 is allowed for this model", "type": "invalid_request_error"}}
SUM = 'Thought: sum\nAction:\n```json\n{"action": "add", "action_input": {"a": 1, "b": 3}}\n```'


@plait.tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@plait.tool
def send(text: str) -> str:
    """Sends a text."""
    return "sent"


def rejecting(field: str, body: Any = ODD, reply: str = FINAL) -> Callable[[Asked], Awaitable[None]]:
    async def handler(asked: Asked) -> None:
        if field in asked.body:
            await asked.answer(400, body)
        else:
            await asked.answer(200, completion(reply))

    return handler


def store(tmp_path: Path) -> Path:
    """The file of what was learned, as the fixture of all tests sets the place."""
    return tmp_path / "own-state" / "plait" / "learned.json"


async def ask(server: Server, journal: Path, loop: Any = "react", tools: Any = (add,), **options: Any) -> Any:
    """A run, its number of requests, and its notes."""
    before = len(server.asked)
    agent = plait.Agent(loop, model=server.model(**options), tools=list(tools), journal=journal)
    run = await agent.arun("2+2?")
    notes = [row.record.text for row in run.trace if isinstance(row.record, NoteRecord)]
    return run, [asked.body for asked in server.asked[before:]], notes, agent


async def test_a_rejected_field_is_left_out_once_and_the_next_run_begins_without_it(journal: Path) -> None:
    async with Server(rejecting("temperature")) as server:
        first, sent, notes, agent = await ask(server, journal, temperature=0.0)
        assert (first.answer, ["temperature" in body for body in sent]) == ("4", [True, False])
        assert notes == ["test:m does not take 'temperature': left out, asking again"]
        second, sent, notes, _ = await ask(server, journal, temperature=0.0)
        assert (second.answer, len(sent), "temperature" in sent[0], notes) == ("4", 1, False, [])
    heads = [Journal(journal).run(run.id).head.models[""]["abilities"] for run in (first, second)]
    assert [each["temperature"] for each in heads] == [True, False]
    for run in (first, second):
        assert (await asyncio.to_thread(agent.replay, run.id)).whole


async def test_other_models_and_endpoints_are_asked_as_before(journal: Path) -> None:
    async with Server(rejecting("temperature")) as server, Server(rejecting("nothing")) as other:
        await ask(server, journal, temperature=0.0)
        _, sent, _, _ = await ask(server, journal, temperature=0.0, name="n")
        assert len(sent) == 2
        _, sent, _, _ = await ask(other, journal, temperature=0.0)
        assert len(sent) == 1 and "temperature" in sent[0]


async def test_an_entry_expires_after_thirty_days(journal: Path, tmp_path: Path) -> None:
    async with Server(rejecting("temperature")) as server:
        await ask(server, journal, temperature=0.0)
        (entry,) = json.loads(store(tmp_path).read_text())
        assert entry["said"] == ODD["error"]["message"] and abs(entry["at"] - time.time()) < 60
        store(tmp_path).write_text(json.dumps([{**entry, "at": time.time() - LIFETIME - 1}]))
        assert list_rejections(server.model()) == []
        _, sent, _, _ = await ask(server, journal, temperature=0.0)
        assert len(sent) == 2
        assert len(json.loads(store(tmp_path).read_text())) == 1


async def test_a_second_rejection_is_the_error_and_nothing_is_learned(journal: Path, tmp_path: Path) -> None:
    async def reject(asked: Asked) -> None:
        await asked.answer(400, ODD)

    async with Server(reject) as server:
        run, sent, _, _ = await ask(server, journal, temperature=0.0)
    assert (run.status, run.outcome.error, len(sent)) == ("crashed", "BadRequest", 2)
    assert "only 1 is allowed" in run.reason
    assert not store(tmp_path).exists()


@pytest.mark.parametrize("settings", [ModelSettings(temperature=2.5), ModelSettings(extra_body={"temperature": 2.5})])
async def test_a_rejected_setting_of_the_user_is_the_error(
    journal: Path, tmp_path: Path, settings: ModelSettings
) -> None:
    said = {"error": {"message": "temperature must be <= 2", "param": "temperature"}}
    async with Server(rejecting("temperature", said)) as server:
        run, sent, _, _ = await ask(server, journal, settings=settings)
    assert (run.status, run.outcome.error, len(sent)) == ("crashed", "BadRequest", 1)
    assert "must be <= 2" in run.reason and "never leaves out what you set" in run.outcome.hint
    assert not store(tmp_path).exists()


@pytest.mark.parametrize(
    ("field", "value"), [("top_p", 0.9), ("seed", 7), ("verbosity", "low"), ("service_tier", "flex")]
)
async def test_a_field_for_all_models_is_left_out_where_one_rejects_it(journal: Path, field: str, value: Any) -> None:
    async with Server(rejecting(field, {"error": f"Argument not supported on this model: {field}"})) as server:
        for requests in (2, 1):
            run, sent, _, _ = await ask(server, journal, params={field: value})
            assert (run.answer, len(sent), field in sent[-1]) == ("4", requests, False)


async def test_a_renamed_limit_is_learned_and_sent_under_its_new_name(journal: Path) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    async with Server(rejecting("max_tokens", {"error": {"message": said, "param": "max_tokens"}})) as server:
        for requests in (2, 1):
            run, sent, notes, _ = await ask(server, journal, settings=ModelSettings(max_tokens=50))
            assert (run.answer, len(sent), sent[-1]["max_completion_tokens"]) == ("4", requests, 50)
        assert notes == []


async def test_a_rejected_schema_is_the_error_with_a_hint(journal: Path, tmp_path: Path) -> None:
    from plait.models.base import Abilities

    said = {"error": {"message": "This model does not support response format `json_schema`."}}
    async with Server(rejecting("response_format", said)) as server:
        loop = plait.JsonReAct(constrain=True)
        run, sent, _, _ = await ask(server, journal, loop, abilities=Abilities(schema=True))
    assert (run.status, len(sent)) == ("crashed", 1)
    assert '[abilities."m"] schema = false' in run.outcome.hint and "constrain=false" in run.outcome.hint
    assert not store(tmp_path).exists()


async def test_after_rejected_tools_auto_begins_as_react_and_tool_calling_asks_again(journal: Path) -> None:
    said = {"error": {"message": "m does not support tools"}}
    async with Server(rejecting("tools", said)) as server:
        run, sent, notes, _ = await ask(server, journal, "auto")
        assert (run.loop, run.answer, len(sent)) == ("tool_calling", "4", 2)
        assert "takes no native tools. Going on with the loop 'react'." in notes[-1]
        run, sent, _, _ = await ask(server, journal, "auto")
        assert (run.loop, run.answer, len(sent)) == ("react", "4", 1)
        run, sent, _, _ = await ask(server, journal, "tool_calling")
        assert (run.status, run.outcome.error, len(sent)) == ("crashed", "Unsupported", 1)
        assert "m does not support tools" in run.reason and "--loop auto" in run.outcome.hint


async def test_a_replay_and_a_resumed_run_use_their_head_and_not_what_was_learned_since(
    journal: Path, tmp_path: Path
) -> None:
    replies = ['Thought: s\nAction:\n```json\n{"action": "send", "action_input": {"text": "a"}}\n```', FINAL]

    async def handler(asked: Asked) -> None:
        await asked.answer(200, completion(replies.pop(0)))

    async with Server(handler) as server:
        agent = plait.Agent("react", model=server.model(), tools=[send], journal=journal, approve="always")
        waiting = await agent.arun("Send a.")
        assert waiting.status == "waiting"
        remember_rejection(server.model(), "stop", "Unsupported parameter: stop")
        run = await agent.aresume(waiting, "yes")
        assert (run.status, ["stop" in asked.body for asked in server.asked]) == ("answered", [True, True])
        replies[:] = [FINAL]
        newer = await agent.arun("Send nothing.")
        assert "stop" not in server.asked[-1].body
        # ... and the other way round: what is forgotten stays as it was in the run.
        assert forget_rejections(server.model()) == 1
    for each in (run, newer):
        assert (await asyncio.to_thread(agent.replay, each.id)).whole


async def test_no_key_is_stored(journal: Path, tmp_path: Path) -> None:
    said = {"error": {"message": "temperature is wrong for the key sk-secret"}}
    async with Server(rejecting("temperature", said)) as server:
        await ask(server, journal, temperature=0.0)
    assert "temperature" in store(tmp_path).read_text() and "sk-secret" not in store(tmp_path).read_text()


async def test_the_endpoints_words_are_redacted_as_in_the_journal(journal: Path, tmp_path: Path) -> None:
    said = {"error": {"message": "temperature is wrong for ada@example.com"}}
    redact_with(lambda text: text.replace("ada@example.com", "[email]"))
    try:
        async with Server(rejecting("temperature", said)) as server:
            run, _, _, _ = await ask(server, journal, temperature=0.0)
    finally:
        redact_with(None)
    assert run.answer == "4" and "[email]" in store(tmp_path).read_text()
    assert "ada@" not in store(tmp_path).read_text()


@pytest.mark.parametrize("damage", [b"", b"{", b'[{"endpoint": 1}]', b"\xff\xfe", b"{}"])
async def test_a_damaged_file_is_ignored_with_one_warning_and_replaced(
    journal: Path, tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path).parent.mkdir(parents=True)
    store(tmp_path).write_bytes(damage)
    async with Server(rejecting("temperature")) as server:
        with caplog.at_level(logging.WARNING, "plait"):
            run, sent, _, _ = await ask(server, journal, temperature=0.0)
        assert (run.answer, len(sent)) == ("4", 2)
        assert sum("learned.json" in record.message for record in caplog.records) == 1
        assert len(list_rejections(server.model())) == 1


async def test_an_unwritable_place_costs_a_warning_and_no_run(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLAIT_LEARNED", str(tmp_path / "file" / "learned.json"))
    async with Server(rejecting("temperature")) as server:
        with caplog.at_level(logging.WARNING, "plait"):
            run, _, _, _ = await ask(server, journal, temperature=0.0)
    assert run.answer == "4" and "cannot be written" in caplog.text


async def test_off_stores_and_reads_nothing(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_LEARNED", "off")
    async with Server(rejecting("temperature")) as server:
        for _ in range(2):
            _, sent, _, _ = await ask(server, journal, temperature=0.0)
            assert len(sent) == 2
    assert not store(tmp_path).exists()


WRITER = """
import sys
from plait.models.chat import ChatModel
from plait.models.rejections import remember_rejection
for number in range(20):
    model = ChatModel(spec="t:m", name=f"{sys.argv[1]}-{number}", endpoint="http://h/v1")
    remember_rejection(model, "stop", "no")
"""


def test_several_processes_lose_no_entry(tmp_path: Path) -> None:
    writers = run_together([["-c", WRITER, str(number)] for number in range(3)])
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(json.loads(store(tmp_path).read_text())) == 60
    assert [path.name for path in store(tmp_path).parent.iterdir() if path.name.startswith(".learned.json.")] == [
        ".learned.json.lock"
    ]


# -- what the user states


def test_abilities_in_plait_toml_belong_to_names_and_patterns() -> None:
    config = ModelConfig.from_mapping(
        {"abilities": {"groq:llama*": {"schema": False}, "openai:gpt-4.1": {"stop": False}, "local": {"tools": True}}}
    )

    def able(spec: str) -> Any:
        return resolve(spec, config, env={}, require_key=False).abilities

    assert not able("groq:llama-3.3-70b").schema and able("groq:other").schema
    assert not able("openai:gpt-4.1@seed=1").stop and able("openai:gpt-4.1-mini").stop
    assert able("local").tools
    for table, said in (({"x": {"schemas": False}}, "schema"), ({"x": {"schema": 1}}, "true or false")):
        with pytest.raises(ConfigError, match=said):
            ModelConfig.from_mapping({"abilities": table})


async def test_what_the_user_states_is_stronger_than_what_was_learned(journal: Path) -> None:
    async with Server(rejecting("nothing")) as server:
        remember_rejection(server.model(), "stop", "no")
        _, sent, _, _ = await ask(server, journal, stated_abilities=("stop",))
        assert "stop" in sent[0]
        _, sent, _, _ = await ask(server, journal)
        assert "stop" not in sent[0]


# -- the command line


def test_models_show_says_where_each_ability_comes_from_and_needs_no_key(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "plait.toml").write_text(
        '[abilities."openai:gpt-4.1*"]\nschema = false\n'
        '[prices]\n"openai:gpt-4.1-mini" = { input = 1, output = 2, source = "contract" }\n'
        "[rate_limits.openai]\nrequests_per_minute = 60\n"
    )
    model = ChatModel(spec="x", name="gpt-4.1-mini", endpoint="https://api.openai.com/v1")
    remember_rejection(model, "seed", 'Unknown parameter: "seed".')
    shown = shell("models", "show", "openai:gpt-4.1-mini@effort=low")
    assert shown.code == 0, shown.err
    today = time.strftime("%Y-%m-%d")
    later = time.strftime("%Y-%m-%d", time.localtime(time.time() + LIFETIME))
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.out.splitlines() if line.strip()}
    assert lines["wire"] == "chat" and lines["endpoint"] == "https://api.openai.com/v1"
    assert lines["key"] == "OPENAI_API_KEY (not set)" and lines["settings"] == "effort=low"
    assert "contract" in lines["price"] and lines["rate"] == "limit 60 requests per minute"
    assert (lines["schema"], lines["stop"]) == ("no plait.toml", "yes table")
    assert lines["seed"] == f'no learned on {today}, expires {later}: "Unknown parameter: "seed"."'
    (details,) = json.loads(shell("models", "show", "openai:gpt-4.1-mini", "--json").out)
    assert {"ability": "schema", "value": False, "source": "plait.toml"} in details["abilities"]
    assert shell("models", "forget", "openai:gpt-4.1-mini").out == ("Forgotten: 1 rejection of openai:gpt-4.1-mini.\n")
    assert "learned" not in shell("models", "show", "openai:gpt-4.1-mini").out


@pytest.mark.parametrize("spec", ["local", "anthropic:claude-opus-5|local", "gemini:gemini-3-pro"])
def test_models_show_works_for_every_kind_of_model(tmp_path: Path, spec: str) -> None:
    shown = Shell(tmp_path)("models", "show", spec)
    assert shown.code == 0 and shown.out.count("service_tier") == len(spec.split("|")), shown.err


def test_models_show_of_an_unknown_provider_says_what_there_is(tmp_path: Path) -> None:
    shown = Shell(tmp_path)("models", "show", "opnai:gpt-5")
    assert shown.code == 2 and "Did you mean openai" in shown.err
