"""Fallback models (`a|b`): when the next one is asked, what the record says of it, and that it stays so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from chat_endpoint import Endpoint
from cli_support import Shell
from models_server import Asked, Server
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    ConfigError,
    ContentFiltered,
    ModelError,
    ModelMissing,
    RateLimited,
    ServerFailed,
    Unreachable,
)
from plait.journal.store import Journal
from plait.journal.timeline import Timeline
from plait.models.base import Abilities
from plait.models.fallback import FallbackModels
from plait.models.prices import Rate
from plait.models.resolve import resolve
from plait.runtime.limits import Limits

FAST = Limits(retries=0)


@plait.tool(read_only=True)
def look(key: str) -> str:
    """Look up a key."""
    return f"value of {key}"


ACTION = 'Thought: I look.\nAction: look\nAction Input: {"key": "abc"}'
FINAL = "Thought: I know.\nFinal Answer: done"


def scripted(name: str, *replies: Any, **options: Any) -> plait.Scripted:
    return plait.Scripted(list(replies), name=name, **options)


def agent(journal: Path, *models: Any, limits: Limits = FAST, loop: Any = "react") -> plait.Agent:
    return plait.Agent(loop, model=FallbackModels(tuple(models)), tools=[look], journal=journal, limits=limits)


def asked(run: plait.Run) -> list[str]:
    return [attempt.model for _, attempt in Timeline(run.rows()).attempts]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def refusal(status: int, body: Any, **headers: str) -> Callable[[Asked], Any]:
    async def answer(request: Asked) -> None:
        await request.answer(status, body, **headers)

    return answer


MODEL_UNKNOWN = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}
RETIRED = {"error": {"message": "The model `m` has been decommissioned.", "type": "invalid_request_error"}}
NO_CREDIT = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}


@pytest.mark.parametrize(
    "handler",
    [
        refusal(401, {"error": "no"}),
        refusal(402, {"error": "pay"}),
        refusal(429, NO_CREDIT),
        refusal(429, {"error": "slow"}, Retry_After="600"),
        refusal(503, {"error": "down"}),
        refusal(404, MODEL_UNKNOWN),
        refusal(400, RETIRED),
        refusal(200, b"<html>"),
    ],
    ids=["key", "credit", "quota", "rate limit", "down", "unknown", "retired", "garbage"],
)
def test_a_model_that_cannot_be_used_is_left_for_the_next(journal: Path, handler: Any) -> None:
    async def main() -> None:
        async with Server(handler) as server:
            second = scripted("b", ACTION, FINAL)
            made = agent(journal, server.model(), second)
            run = await made.arun("What is abc?")
            assert (run.status, run.answer) == ("answered", "done"), run.reason
            assert asked(run) == ["test:m", "scripted:b", "scripted:b"]
            assert len(server.asked) == 1  # the run stays with the second model
            notes = [event.text for event in run.events if getattr(event, "kind", "") == "model_change"]
            assert len(notes) == 1 and "asks scripted:b instead of test:m" in notes[0]
            assert made.replay(run.id).whole

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "messages[0] is wrong"}}),
        (400, {"error": {"code": "content_filter", "message": "filtered"}}),
    ],
)
def test_a_refused_request_is_no_reason(journal: Path, status: int, body: Any) -> None:
    async def main() -> None:
        async with Server(refusal(status, body)) as server:
            second = scripted("b", FINAL)
            run = await agent(journal, server.model(), second).arun("What is abc?")
            assert run.status == "crashed" and second.sent == 0

    asyncio.run(main())


def test_each_error_says_whether_another_model_may_be_asked() -> None:
    usable = (Unreachable, RateLimited, ServerFailed, AuthenticationError, ModelMissing)
    assert all(each("x").allows_fallback for each in usable)
    assert not any(each("x").allows_fallback for each in (BadRequest, ContentFiltered, ModelError))


def test_retries_come_first(journal: Path) -> None:
    first = scripted("a", ServerFailed("busy"), ACTION, FINAL)
    second = scripted("b", ACTION, FINAL)
    run = agent(journal, first, second, limits=Limits(retries=1)).run("What is abc?")
    assert run.answer == "done" and second.sent == 0


def test_the_last_model_fails_as_usual(journal: Path) -> None:
    dead = [scripted(name, *[Unreachable("gone")] * 3, FINAL) for name in "ab"]
    run = agent(journal, *dead).run("What is abc?")
    assert run.status == "crashed" and asked(run) == ["scripted:a", "scripted:b"]


def test_the_model_that_answered_is_paid_and_shown(journal: Path, tmp_path: Path) -> None:
    cheap, dear = Rate.from_mapping({"input": 1, "output": 1}, "x"), Rate.from_mapping({"input": 9, "output": 9}, "x")
    first = scripted("a", Unreachable("gone"), ACTION, FINAL, rate=cheap)
    second = scripted("b", ACTION, FINAL, rate=dear)
    run = agent(journal, first, second).run("What is abc?")
    assert set(run.models.values()) == {"scripted:a|scripted:b"}
    spent = {part.model: (part.calls, part.retries) for part in run.phases if part.model}
    assert spent == {"scripted:a": (0, 1), "scripted:b": (2, 0)}
    assert run.cost_usd == pytest.approx(9e-6 * run.usage.tokens)
    shell = Shell(tmp_path)
    shown = shell("show", run.id, "--journal", str(journal))
    assert "asks scripted:b instead" in shown.out and "scripted:a|scripted:b" in shown.out
    costs = shell("costs", run.id, "--rates", "--journal", str(journal))
    assert "scripted:a+scripted:b" in costs.out and "scripted:b: 9 in" in costs.out, costs.out


def test_a_killed_run_goes_on_with_the_fallback(journal: Path) -> None:
    """The process ends after the failure is on record, before the second model is asked."""
    made = agent(journal, scripted("a", Unreachable("gone"), FINAL), scripted("b", FINAL, delay=5))

    async def main() -> plait.Run:
        def cancel(event: Any) -> None:
            if getattr(event, "kind", "") == "model_change":
                task.cancel()

        task = asyncio.ensure_future(made.arun("What is abc?", on_event=cancel))
        with pytest.raises(asyncio.CancelledError):
            await task
        run = Journal(journal).run("last").head.run
        first, second = scripted("a", ACTION, FINAL), scripted("b", ACTION, FINAL)
        resumed = await agent(journal, first, second).aresume(run)
        assert (first.sent, second.sent) == (0, 2)
        return resumed

    run = asyncio.run(main())
    assert run.answer == "done"
    assert agent(journal, scripted("a"), scripted("b")).replay(run.id).whole


def test_the_abilities_of_the_fallback_count(journal: Path) -> None:
    first = scripted("a", Unreachable("gone"), FINAL)
    plain = scripted("b", ACTION, FINAL, abilities=Abilities(tools=False))
    made = agent(journal, first, plain, loop="tool_calling")
    run = made.run("What is abc?")
    assert any(getattr(event, "kind", "") == "calls_as_text" for event in run.events)
    assert made.replay(run.id).whole


def test_words_and_mistakes(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.json").write_text('["hello"]')
    word = f"scripted:{tmp_path}/a.json | scripted:{tmp_path}/b.json"
    model = resolve(word)
    assert isinstance(model, FallbackModels) and model.spec == word.replace(" ", "")
    assert [each["spec"] for each in model.describe()["members"]] == model.spec.split("|")
    with pytest.raises(ConfigError, match="empty model"):
        resolve("local|")
    with pytest.raises(ConfigError, match="twice"):
        resolve("local|local")
    with pytest.raises(ConfigError, match="gpt"):
        plait.Agent("react", model="local|gpt-5")


def test_a_comparison_names_who_answered(tmp_path: Path) -> None:
    models = FallbackModels((scripted("a", AuthenticationError("no key"), FINAL), scripted("b", FINAL)))
    made = plait.compare(
        [{"id": "1", "question": "What?", "answer": "done"}],
        loops="react",
        models=[models],
        journal=tmp_path / "runs.db",
        limits=FAST,
    )
    assert made.whole
    assert "Answered by react: scripted:a 0 calls, scripted:b 1 call." in str(made)
    assert [row.who for row in made.rows] == ["scripted:a|scripted:b"]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[tuple[Shell, Endpoint]]:
    with Endpoint(FINAL, refused=("a",)) as endpoint:
        (tmp_path / "plait.toml").write_text(f'[endpoints.fake]\nbase_url = "{endpoint.url}"\n')
        yield Shell(tmp_path), endpoint


def test_the_command_line_takes_them_for_all_phases_and_for_one(shell: tuple[Shell, Endpoint]) -> None:
    plait, endpoint = shell
    done = plait("run", "q", "--model", "fake:a|fake:b", "--json")
    assert (done.object["status"], endpoint.sent("model")) == ("answered", ["a", "b"])
    done = plait("run", "q", "--model", "fake:c", "--model", "act=fake:a|fake:d@seed=3", "--json")
    assert done.object["status"] == "answered" and endpoint.sent("model")[2:] == ["a", "d"]
    assert endpoint.sent("seed")[-1] == 3
    assert "fake:b" in plait("costs", "--last", "2").out


def test_plait_toml_takes_them(shell: tuple[Shell, Endpoint]) -> None:
    plait, endpoint = shell
    file = plait.folder / "plait.toml"
    file.write_text(f'{file.read_text()}[run]\nmodel = "fake:b"\n[run.models]\nact = "fake:a|fake:c"\n')
    assert plait("run", "q").code == 0 and endpoint.sent("model") == ["a", "c"]


def test_a_fork_asks_the_same_models(shell: tuple[Shell, Endpoint]) -> None:
    plait, endpoint = shell
    assert plait("run", "q", "--model", "fake:a|fake:b").code == 0
    assert plait("fork", "last", "--at", "1").code == 0
    assert endpoint.sent("model") == ["a", "b", "a", "b"]
    assert plait("fork", "last", "--at", "1", "--model", "act=fake:c|fake:b").code == 0
    assert endpoint.sent("model")[4:] == ["c"]
    assert plait("replay", "last").code == 0


def test_python_finds_them(journal: Path) -> None:
    models = plait.FallbackModels((scripted("a", AuthenticationError("no")), scripted("b", FINAL)))
    run = plait.Agent("react", models={"act": models}, journal=journal).run("q")
    assert (run.answer, asked(run)) == ("done", ["scripted:a", "scripted:b"])
