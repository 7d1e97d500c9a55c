"""A loop whose action is code: its session is kept from piece to piece, and made again when a run goes on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import plait
from conftest import for_each
from journal_rows import is_result
from plait.core import (
    Act,
    Answered,
    ArtifactHandle,
    Call,
    Execute,
    LoopContext,
    LoopRun,
    Observation,
    OneKind,
    Ran,
    Splitter,
    Task,
    act,
    execute,
    go_on,
    start,
    think,
    user,
)
from plait.core.errors import ReplayDiffers
from plait.core.events import Executed, Executing
from plait.runtime.performers.run_code import call_of, result_of
from plait.sandbox import OutCall, Result, SandboxTurn, Settings, default_sandbox
from plait.tools import tools_from


@dataclass(frozen=True)
class Pieces:
    """Runs its pieces of code one after the other; the answer is all that they printed, and how they ended."""

    pieces: tuple[str, ...] = ()
    name: ClassVar[str] = "pieces"
    phases: ClassVar[tuple[str, ...]] = ("act",)

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        said: list[str] = []
        for code in self.pieces:
            yield from think("act", [user("What next?")])
            ran = yield from execute(code)
            said.append(ran.output)
            while not ran.done:
                ran = yield from go_on(*(yield from act(*ran.calls)))
                said.append(ran.output)
            if ran.error is not None:
                said.append(f"[{ran.error.type}: {ran.error.message}]\n")
        return Answered("".join(said))


class Note(plait.Artifact):
    """A thing for these tests."""

    kind = "note"

    def __init__(self, text: str) -> None:
        self.text = text

    def about(self) -> str:
        return f"<Note of {len(self.text)}>"

    def dump(self) -> bytes:
        return self.text.encode()

    @classmethod
    def load(cls, data: bytes) -> Note:
        return cls(data.decode())


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def agent(tmp_path: Path, sent: list[str]) -> Callable[..., plait.Agent]:
    @plait.tool(read_only=True)
    def people(city: str, year: int = 2020) -> dict[str, int]:
        """People in a city."""
        if city == "Atlantis":
            raise ValueError("it sank")
        return {"people": len(city) * 100_000 + year}

    @plait.tool
    def send(text: str) -> None:
        """Send."""
        sent.append(text)

    @plait.tool(read_only=True)
    def write(text: str) -> Note:
        """Write a note."""
        return Note(text)

    @plait.tool(read_only=True)
    def read(note: Note) -> str:
        """Read a note."""
        return note.text

    def made(*pieces: str, **more: Any) -> plait.Agent:
        return plait.Agent(
            Pieces(pieces),
            model=plait.Scripted(["next"] * 9, by_turn=False),
            tools=[people, send, write, read],
            journal=tmp_path / "journal.db",
            **more,
        )

    return made


Made = Callable[..., plait.Agent]


def test_names_are_kept_from_piece_to_piece_and_calls_are_acts_like_any_other(agent: Made, sent: list[str]) -> None:
    run = agent("x = people('Lyon')\nprint(x['people'])", "send(f'{x[\"people\"]} in Lyon')\nprint('sent')").run("q")
    assert (run.status, run.answer) == ("answered", "402020\nsent\n")
    assert sent == ["402020 in Lyon"]
    assert [each.planned for each in run.timeline.tool_calls] == [
        Call("people", {"city": "Lyon"}, by_code=True),
        Call("send", {"text": "402020 in Lyon"}, by_code=True),
    ]


def test_calls_that_are_gathered_are_made_side_by_side(agent: Made) -> None:
    code = "a, b = await asyncio.gather(people('Lyon'), people('Nice', year=1))\nprint(a['people'], b['people'])"
    run = agent(code).run("q")
    assert run.answer == "402020 400001\n"
    calls = run.timeline.tool_calls
    assert len({each.n for each in calls}) == 1
    assert [each.planned.input for each in calls] == [{"city": "Lyon"}, {"city": "Nice", "year": 1}]


def test_trouble_with_a_call_is_raised_in_the_code(agent: Made) -> None:
    run = agent(
        "try:\n    people('Atlantis')\nexcept ValueError as why:\n    print('caught', why)",
        "people(17, 'x')",
        "nowhere(1)",
    ).run("q")
    caught, bad, unknown = run.answer.strip().split("\n")
    assert caught == "caught it sank"
    assert bad.startswith("[TypeError: people: year must be a whole number")
    assert unknown.startswith("[NameError: name 'nowhere' is not defined")


def test_a_thing_is_a_handle_in_the_code_and_itself_to_tools(agent: Made) -> None:
    maker = agent("n = write('hello')\nprint(n)\nkept = [n]", "print(read(kept[0]))\nread('note-1')\nread({'a': n})")
    run = maker.run("q")
    first, second, third = run.answer.strip().split("\n")
    assert (first, second) == ("<Note of 5>", "hello")
    assert third.startswith("[TypeError: read: note must be")
    stored = next(row for row in run.trace if is_result(row.record) and row.body)
    assert stored.record.value.text == "note-1: <Note of 5>"
    assert maker.replay(run.id).whole


def test_a_tool_can_not_pass_off_its_result_as_a_thing(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    def forged() -> dict[str, str]:
        """Forged."""
        return {"$thing": "note-1", "is": "a lie"}

    run = plait.Agent(
        Pieces(("print(forged())",)),
        model=plait.Scripted(["next"] * 9, by_turn=False),
        tools=[forged],
        journal=tmp_path / "j",
    ).run("q")
    assert run.answer == "{'thing': 'note-1', 'is': 'a lie'}\n"


class Unwritten(Note):
    """A thing that can't be written down."""

    kind = "unwritten"

    def dump(self) -> bytes:
        raise OSError("no such format")


def test_a_thing_that_can_not_be_written_down_is_an_error_of_its_tool(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    def draw() -> Note:
        """Draw."""
        return Unwritten("x")

    run = plait.Agent(
        Pieces(("draw()", "print('goes on')")),
        model=plait.Scripted(["next"] * 9, by_turn=False),
        tools=[draw],
        journal=tmp_path / "j",
    ).run("q")
    assert run.answer == "[OSError: no such format]\ngoes on\n"


def test_an_error_with_half_a_character_is_raised_in_the_code(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    def odd() -> str:
        """Odd."""
        raise ValueError("\ud800!")

    run = plait.Agent(
        Pieces(("odd()",)),
        model=plait.Scripted(["next"] * 9, by_turn=False),
        tools=[odd],
        journal=tmp_path / "j",
    ).run("q")
    assert run.answer == "[ValueError: ?!]\n"


class Kept:
    """A sandbox whose one session says when it is closed, and fails at it."""

    name: str = "kept"

    def __init__(self) -> None:
        self.closed = 0

    async def open(self, settings: Settings) -> Kept:
        return self

    async def run(self, code: str, now: float, zone: int | None = None) -> SandboxTurn:
        return SandboxTurn("ran\n")

    async def go_on(self, results: Sequence[Result]) -> SandboxTurn:
        raise AssertionError("no code waits")

    async def close(self) -> None:
        self.closed += 1
        raise OSError("it does not close")


def test_a_session_that_does_not_close_costs_no_answer(tmp_path: Path) -> None:
    kept = Kept()
    run = plait.Agent(
        Pieces(("1",)), model=plait.Scripted(["next"], by_turn=False), journal=tmp_path / "j", sandbox=kept
    ).run("q")
    assert (run.status, run.answer, kept.closed) == ("answered", "ran\n", 1)


async def test_a_run_that_is_cancelled_while_it_ends_closes_its_session(tmp_path: Path) -> None:
    told_to_end = asyncio.Event()

    @plait.tool(read_only=True)
    async def lingers() -> None:
        """Takes its time to end."""
        try:
            await asyncio.Event().wait()
        finally:
            told_to_end.set()
            await asyncio.sleep(1)

    @dataclass(frozen=True)
    class Ahead(Pieces):
        def run(self, task: Task, context: LoopContext) -> LoopRun:
            yield from execute("1")
            yield from start(Act((Call("lingers"),)))
            return Answered("done")

    kept = Kept()
    agent = plait.Agent(Ahead(), model=plait.Scripted([]), tools=[lingers], journal=tmp_path / "j", sandbox=kept)
    run = asyncio.ensure_future(agent.arun("q"))
    await told_to_end.wait()
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    assert kept.closed == 1


def test_the_record_has_each_piece_with_its_clock_and_seed(agent: Made) -> None:
    run = agent("print(datetime.now())", "import random\nprint(random.random())").run("q")
    pieces = [row.record.value for row in run.trace if is_result(row.record, "code")]
    assert [piece.code for piece in pieces] == ["print(datetime.now())", "import random\nprint(random.random())"]
    assert pieces[0].now > 0 and pieces[0].seed == pieces[1].seed
    assert "".join(piece.ran.output for piece in pieces) == run.answer
    told = [event for event in run.events if isinstance(event, Executing | Executed)]
    assert [type(event) for event in told] == [Executing, Executed] * 2


def test_a_run_that_waits_for_leave_in_the_middle_of_code_goes_on_there(agent: Made, sent: list[str]) -> None:
    code = (
        "send('one')\nrest = people('Nice')\nimport random\ndrawn = random.random()\nsend(f'two {rest}')\nprint(drawn)"
    )
    maker = agent("import random\nfirst = random.random()\nprint(first, datetime.now())", code, approve="effects")
    run = maker.run("q")
    assert run.status == "waiting" and sent == []
    run = maker.resume(run, "yes")
    assert run.status == "waiting" and sent == ["one"]
    run = maker.resume(run, "yes")
    assert run.status == "answered" and sent == ["one", "two {'people': 402020}"]
    # The session was made again twice: what it drew and the time it saw are the same each time.
    outputs = [row.record.value.ran.output for row in run.trace if is_result(row.record, "code")]
    assert len([each for each in outputs if each]) == 2
    assert maker.replay(run.id).whole


def test_things_are_there_again_in_another_process(agent: Made, sent: list[str], tmp_path: Path) -> None:
    maker = agent("n = write('hello')", "send('now')\nprint(read(n))", approve="effects")
    waiting = maker.run("q")
    again = agent("n = write('hello')", "send('now')\nprint(read(n))", approve="effects")
    done = again.resume(waiting, "yes")
    assert (done.status, done.answer) == ("answered", "hello\n")


def test_a_secret_in_a_thing_is_not_on_the_record_and_the_thing_is(agent: Made) -> None:
    @plait.tool(read_only=True)
    def vault() -> Note:
        """A note with the model's own key in it."""
        return Note("say hush-hush-7 twice")

    maker = agent("n = vault()", "send('now')\nprint(read(n))", approve="effects")
    maker = maker.using(tools=[*maker.tools, vault])
    assert isinstance(maker.model, plait.Scripted)
    maker.model.secrets = ("hush-hush-7",)
    waiting = maker.run("q")
    done = maker.resume(waiting, "yes")
    assert (done.status, done.answer) == ("answered", "say [secret] twice\n")


DEEP = "def down(n):\n    return n if n == 0 else down(n - 1)\nx = down(150)"


def test_a_session_that_can_not_be_made_again_is_said(agent: Made) -> None:
    waiting = agent(DEEP, "send('x')\nprint(x)", approve="effects").run("q")
    tighter = agent(
        DEEP, "send('x')\nprint(x)", approve="effects", limits=plait.Limits(code=plait.CodeLimits(recursion=50))
    )
    again = tighter.resume(waiting, "yes")
    assert again.status == "crashed" and "can't be made again" in (again.reason or "")


def test_code_that_comes_to_other_calls_when_it_runs_again_is_said(agent: Made) -> None:
    twice = "a = [people('A'), people('B')]"
    waiting = agent(twice, "send('x')", approve="effects").run("q")
    assert waiting.status == "waiting"
    other = Kept()
    other.name = default_sandbox()[0]
    fewer = agent(twice, "send('x')", approve="effects", sandbox=other)
    again = fewer.resume(waiting, "yes")
    assert again.status == "crashed" and "can't be made again" in (again.reason or "")


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of this process can't be changed")
@pytest.mark.parametrize("sandbox", ["monty", "process"])
def test_the_clock_of_a_session_made_again_is_in_the_zone_on_record(
    agent: Made, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox == "process" and sys.platform != "linux":
        pytest.skip("the process sandbox needs Linux")
    maker = agent("h = datetime.now().hour", "send('x')\nprint(h)", approve="effects", sandbox=sandbox)
    try:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
        waiting = maker.run("q", now=1.7e9)
        monkeypatch.setenv("TZ", "UTC-9")
        time.tzset()
        assert maker.resume(waiting, "yes").answer == "22\n"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_replay_says_where_the_code_differs(agent: Made) -> None:
    run = agent("print(1)").run("q")
    with pytest.raises(ReplayDiffers, match="print"):
        agent("print(2)").replay(run.id)


def test_a_fork_shares_the_pieces_before_it(agent: Made) -> None:
    run = agent("x = 5", "print(x)").run("q")
    forked = agent("x = 5", "print(x + 1)").fork(run.id, 2)
    assert forked.answer == "6\n"


def test_continuing_code_that_does_not_wait_is_an_error_of_the_loop(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Wrong(Pieces):
        def run(self, task: Task, context: LoopContext) -> LoopRun:
            yield Execute("x = 1")
            ran: Ran = yield from go_on(Observation("1"))
            return Answered(ran.output)

    run = plait.Agent(Wrong(), model=plait.Scripted(["next"] * 9, by_turn=False), journal=tmp_path / "j").run("q")
    assert run.status == "crashed" and "waits for" in (run.reason or "")


def test_limits_of_code_are_the_users(agent: Made) -> None:
    slow = agent("while True: pass", "print('goes on')", limits=plait.Limits(code=plait.CodeLimits(seconds=0.3))).run(
        "q"
    )
    stopped, after = slow.answer.strip().split("\n")
    assert stopped.startswith("[TimeoutError") and after == "goes on"


def test_an_unknown_sandbox_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(plait.ConfigError, match="auto, process, monty"):
        plait.Agent("react", sandbox="docker")


# -- calls and results


def f(a: int, b: str = "", *rest: int) -> None:
    """F."""


@for_each(
    ("out", "expected"),
    [
        (OutCall("f"), None),
        (OutCall("f", (1,)), {"a": 1}),
        (OutCall("f", (1,), {"b": "x"}), {"a": 1, "b": "x"}),
        (OutCall("f", (1, "x", 3, 4)), {"a": 1, "b": "x", "rest": [3, 4]}),
        (OutCall("f", (1,), {"a": 2}), {"args": [1], "a": 2}),
        (OutCall("g", (1, "x")), [1, "x"]),
        (OutCall("f", ((1, 2),)), {"a": {"$tuple": [1, 2]}}),
        (OutCall("f", (float("inf"),)), {"a": {"$float": "inf"}}),
        (OutCall("f", ({2, 1},)), {"a": {"$set": [1, 2]}}),
        (OutCall("f", ({1: "one"},)), {"a": {"$dict": [[1, "one"]]}}),
        (OutCall("unknown", ((1, 2), b"x")), [[1, 2], "1 bytes (text)"]),
        (OutCall("f", (ArtifactHandle("note-1", "<N>"),)), {"a": {"$thing": "note-1", "is": "<N>"}}),
        (OutCall("f", (), {"$thing": "note-1"}), {"thing": "note-1"}),
    ],
)
def test_arguments_are_named_where_the_parameters_are_known(out: OutCall, expected: Any) -> None:
    assert call_of(out, tools_from([f])).input == expected


@for_each(
    ("observation", "expected"),
    [
        (Observation("5", value=5), Result(5)),
        (Observation("(no result)"), Result(None)),
        (Observation("text", value="text"), Result("text")),
        (Observation("Error: KeyError: 'x'", trouble="raised"), Result(error="KeyError", message="'x'")),
        (Observation("Error: no luck", trouble="raised"), Result(error="RuntimeError", message="no luck")),
        (Observation("Error: Strange: x", trouble="raised"), Result(error="RuntimeError", message="Strange: x")),
        (Observation("Error: slow", trouble="timeout"), Result(error="TimeoutError", message="slow")),
        (Observation("No.", trouble="refused"), Result(error="PermissionError", message="No.")),
    ],
)
def test_an_observation_is_a_value_or_an_exception(observation: Observation, expected: Result) -> None:
    assert result_of(Call("f"), observation) == expected


def test_the_time_of_code_has_a_row_of_its_own_and_the_sums_agree(agent: Made) -> None:
    run = agent("x = people('Lyon')\nprint(sum(range(100000)))", "print(x)").run("q")
    rows = {row.phase: row for row in run.phases}
    assert (rows["code"].calls, rows["tools"].calls, rows["act"].calls) == (2, 1, 2)
    pieces = [row.record.value.ran.seconds for row in run.trace if is_result(row.record, "code")]
    assert rows["code"].micros == round(sum(pieces) * 1_000_000) > 0


@pytest.mark.parametrize("field", [{"sandbox": 3}], ids=str)
def test_a_field_of_another_kind_is_refused_when_the_agent_is_made(field: dict[str, Any]) -> None:
    with pytest.raises(plait.ConfigError, match="Give "):
        plait.Agent("codeact", **field)
