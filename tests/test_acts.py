"""Acts: how the calls of one turn pass the guards, and how they end together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import structs

import plait
from conftest import some_of
from plait.core import Act, Answered, Call, Effects, LimitNear, LoopContext, Observation, Stopped, Task, events
from plait.core.errors import ReplayDiffers
from plait.journal.open_questions import find_open_questions
from plait.journal.owner import owner_of_this_process
from plait.journal.records import IntentRecord, NoteRecord, RaisedRecord, ResultRecord, Row
from plait.journal.store import Journal, wait_for
from plait.runtime import runs
from plait.runtime.guard import AskApproval, Entry, Guard, Refuse, StartChild
from plait.toolkits.questions import ask_user

MADE: list[str] = []
NO_MODEL = plait.Scripted([])


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    MADE.clear()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@plait.tool
async def send(text: str, seconds: float = 0.0) -> str:
    """Sends a text after some seconds."""
    MADE.append(f"{text} begins")
    await asyncio.sleep(seconds)
    MADE.append(f"{text} ends")
    return f"sent {text}"


class NoModel:
    """A loop that asks no model."""

    name: ClassVar[str] = "acts"
    phases: ClassVar[tuple[str, ...]] = ()

    def splitter(self, phase: str) -> Any:
        raise AssertionError("no model is asked")


class Acts(NoModel):
    """A loop that acts once for each of its tuples of calls. It answers with the results, or with a signal."""

    def __init__(self, *acts: tuple[Call, ...]) -> None:
        self.acts = acts

    def run(self, task: Task, context: LoopContext) -> Effects[Answered]:
        texts: list[str] = []
        for calls in self.acts:
            try:
                seen: tuple[Observation, ...] = yield Act(calls)
            except LimitNear as why:
                texts.append(f"signal {why.limit}")
            else:
                texts += [each.text for each in seen]
        return Answered(texts)


class Recorder(Guard):
    """Follows what it holds, and decides by functions. It asks, refuses or raises before the calls named in `on`."""

    points = (Call, StartChild)
    name = "recorder"

    def __init__(self, on: dict[str, Any] | None = None, after: Callable[[Entry, Any], Any] | None = None) -> None:
        self.on, self.decide_after = on or {}, after
        self.held: list[str] = []
        self.taken: list[str] = []
        self.told: list[str] = []

    def start(self, context: Any) -> Guard:
        return self

    async def before(self, entry: Entry) -> Any:
        made = self.on.get(entry.effect.input["text"]) if isinstance(entry.effect, Call) else None
        if isinstance(made, Exception):
            raise made
        if made is None:
            self.restore(entry, None)
        return entry.effect if made is None else made

    def restore(self, entry: Entry, decision: Any) -> None:
        self.held.append(entry.key)
        self.taken.append(entry.key)

    def release(self, entry: Entry) -> None:
        self.held.remove(entry.key)
        self.told.append(f"{entry.key} released")

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        if entry.key in self.held:
            self.held.remove(entry.key)
        self.told.append(f"{entry.key} {'fresh' if fresh else 'told'}")
        return self.decide_after(entry, result) if self.decide_after is not None and fresh else result


def texts(*names: str, seconds: Iterable[float] = ()) -> tuple[Call, ...]:
    """Return calls of `send`, side by side."""
    waits = dict(zip(names, seconds, strict=False))
    return tuple(Call("send", {"text": each, "seconds": waits.get(each, 0.0)}) for each in names)


def make(monkeypatch: pytest.MonkeyPatch, journal: Path, guards: list[Guard], *acts: Any, **fields: Any) -> plait.Agent:
    monkeypatch.setattr(runs, "make_guards", lambda engine, **_: guards)
    fields = {"tools": [send], **fields}
    return plait.Agent(Acts(*acts), model=plait.Scripted([]), journal=journal, **fields)


def questions(agent: plait.Agent, run: Any) -> list[tuple[str, str, str]]:
    """Return the open questions of a run: their kinds, texts and ids."""
    return [(each.kind, each.text, each.question) for each in run.timeline.open_questions]


def records(run: Any, kind: type[IntentRecord | ResultRecord | RaisedRecord], key: str) -> list[Any]:
    """Return the records of one kind that an entry has."""
    return [row.record for row in run.rows() if isinstance(row.record, kind) and row.record.key == key]


def test_events_show_results_of_calls_side_by_side_as_the_loop_gets_them(journal: Path) -> None:
    """Live, from the record, and in it: with what the loop breaker and grounding add."""
    twice, invented = texts("a", "b"), (Call("send", {"text": "Mail 870335"}), Call("send", {"text": "them"}))
    agent = plait.Agent(Acts(twice, twice, invented), tools=[send], grounding="warn", journal=journal, model=NO_MODEL)
    live: list[events.Event] = []
    run = asyncio.run(agent.arun("Send them.", on_event=live.append))
    seen, replayed = ([each for each in found if isinstance(each, events.Observed)] for found in (live, run.events))
    recorded = [each.seen for each in run.timeline.tool_calls]
    assert sorted(map(repr, seen)) == sorted(map(repr, replayed))
    assert sorted(repr(each.observation) for each in seen) == sorted(map(repr, recorded))
    notes = {each.observation.text: each.observation.note for each in seen}
    assert all("exactly this call before" in notes[f"sent {each}"] for each in "ab") and not notes["sent them"]
    assert "870335" in notes["sent Mail 870335"]


def test_events_show_a_withheld_result_and_a_changed_call_that_was_refused_as_the_record_does(journal: Path) -> None:
    class Changes(plait.Hook):
        def before_tool(self, context: Any, call: Call) -> Call:
            return structs.replace(call, input={**call.input, "seconds": 0.001})

    class Withholds(Guard):
        points = (Call,)

        async def before(self, entry: Entry) -> Any:
            return Refuse("not b") if entry.effect.input["text"] == "b" else entry.effect

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            return Refuse("it is secret") if isinstance(result, Observation) and result.ok else result

    hooks = [Changes(), Withholds()]
    agent = plait.Agent(Acts(texts("a", "b")), tools=[send], hooks=hooks, journal=journal, model=NO_MODEL)
    live: list[events.Event] = []
    run = asyncio.run(agent.arun("Send them.", on_event=live.append))
    seen, replayed = ([each for each in found if isinstance(each, events.Observed)] for found in (live, run.events))
    assert sorted(map(repr, seen)) == sorted(map(repr, replayed))
    assert {each.observation.text for each in seen} == set(run.answer)
    assert "Error: the result of 'send' is withheld. It is secret." in run.answer


def test_a_result_is_reported_as_soon_as_its_call_has_ended_unless_a_guard_may_change_it(journal: Path) -> None:
    acts = texts("a", "slow", seconds=(0.0, 0.05)), texts("a", "b", "slow", seconds=(0.0, 0.0, 0.05))
    agent = plait.Agent(Acts(*acts), tools=[send], journal=journal, model=NO_MODEL)

    def listen(event: events.Event) -> None:
        if isinstance(event, events.Observed):
            MADE.append(f"{event.observation.text}, shown")

    asyncio.run(agent.arun("Send them.", on_event=listen))
    first, second = MADE[: len(MADE) // 2 - 1], MADE[len(MADE) // 2 - 1 :]
    assert first.index("sent a, shown") < first.index("slow ends")
    assert second.index("sent b, shown") < second.index("slow ends") < second.index("sent a, shown")


def test_a_signal_during_the_first_admission_starts_nothing(monkeypatch: pytest.MonkeyPatch, journal: Path) -> None:
    guard = Recorder({"b": LimitNear("tool_calls", "no call is left")})
    agent = make(monkeypatch, journal, [guard], texts("a", "b"))
    run = agent.run("q")
    assert MADE == [] and guard.held == []
    assert run.outcome == Stopped("tool_calls", "No call is left.", ["signal tool_calls"])
    assert [each.kind for each in records(run, RaisedRecord, "0")] == ["LimitNear"]
    assert not records(run, IntentRecord, "0.0") and not records(run, ResultRecord, "0.0")
    assert agent.replay(run.id).whole


def test_a_question_lets_the_other_calls_end_and_its_answer_starts_only_the_rest(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    guard = Recorder({"a": AskApproval("May a be sent?"), "c": AskApproval("And c?")})
    agent = make(monkeypatch, journal, [guard], texts("a", "b", "c"))
    run = agent.run("q")
    assert (run.status, MADE, guard.held) == ("waiting", ["b begins", "b ends"], [])
    assert guard.told == ["0.1 told"]
    (_, first, one), (_, second, two) = questions(agent, run)
    assert (first, second) == ("May a be sent?", "And c?")
    guard.taken.clear()
    run = agent.resume(run.id, "yes", question=one)
    assert guard.taken == ["0.1", "0.0"]  # what is on record comes first
    assert (run.status, guard.held) == ("waiting", [])
    assert MADE == ["b begins", "b ends", "a begins", "a ends"]
    run = agent.resume(run.id, "not before noon", question=two)
    assert run.answer == ["sent a", "sent b", "The person refused this call: not before noon"]
    assert len(MADE) == 4 and guard.held == []
    assert agent.replay(run.id).whole


def test_a_signal_after_the_first_admission_refuses_only_the_unstarted_calls(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    guard = Recorder({"a": AskApproval("May a be sent?")})
    limit = Recorder()
    limit.name, limit.order = "limit", 90.0  # type: ignore[misc]
    agent = make(monkeypatch, journal, [guard, limit], texts("a", "b"))
    run = agent.run("q")
    limit.on["a"] = LimitNear("tool_calls", "the limit is reached")
    run = agent.resume(run, "yes")
    assert run.answer == ["The call is refused: The limit is reached.", "sent b"]
    assert MADE == ["b begins", "b ends"] and guard.held == limit.held == []


def test_results_are_settled_in_the_order_of_the_calls_when_all_have_ended(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    def mark(entry: Entry, result: Observation) -> Observation | Refuse:
        MADE.append(f"{entry.effect.input['text']} settled")
        return Refuse("It is secret") if entry.effect.input["text"] == "b" else result

    guard = Recorder(after=mark)
    agent = make(monkeypatch, journal, [guard], texts("a", "b", seconds=(0.05, 0.0)))
    run = agent.run("q")
    assert MADE == ["a begins", "b begins", "b ends", "a ends", "a settled", "b settled"]
    assert run.answer == ["sent a", "Error: the result of 'send' is withheld. It is secret."]
    assert agent.replay(run.id).whole and MADE.count("b settled") == 1


def test_calls_side_by_side_have_their_intents_on_the_disk_before_one_begins(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    found: list[int] = []

    @plait.tool
    async def look(text: str) -> str:
        """Looks at the journal."""
        (row,) = Journal(journal).runs()
        found.append(sum(isinstance(each.record, IntentRecord) for each in Journal(journal).rows(row.head.run)))
        return text

    agent = make(monkeypatch, journal, [], (Call("look", "a"), Call("look", "b")), tools=[look])
    assert agent.run("q").answer == ["a", "b"] and found == [2, 2]


async def test_a_cancelled_run_releases_what_is_under_way_and_leaves_it_in_doubt(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    guard = Recorder()
    agent = make(monkeypatch, journal, [guard], texts("a", "b", seconds=(0.0, 9.0)))
    going = asyncio.create_task(agent.arun("q"))
    while "a ends" not in MADE or "b begins" not in MADE:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert guard.held == [] and guard.told == ["0.0 told", "0.1 released"]
    (row,) = Journal(journal).runs()
    run = await agent.aresume(row.head.run)
    assert run.answer[0] == "sent a" and run.answer[1].startswith("Error: the run was interrupted while 'send'")
    assert MADE.count("b begins") == 1


def test_a_child_that_waits_does_not_cancel_the_calls_beside_it(monkeypatch: pytest.MonkeyPatch, journal: Path) -> None:
    class Asks(NoModel):
        def run(self, task: Task, context: LoopContext) -> Effects[Answered]:
            said = yield plait.core.AskUser(f"{task.question}?")
            return Answered(f"{task.question}: {said}")

    guard = Recorder()
    child = plait.Agent(Asks(), model=plait.Scripted([])).as_tool("child", "Asks.")
    calls = (Call("child", "x"), *texts("a", seconds=(0.05,)), Call("child", "y"))
    agent = make(monkeypatch, journal, [guard], calls, tools=[send, child])
    guard.before = lambda entry: _hold(guard, entry)  # type: ignore[method-assign]
    run = agent.run("q")
    assert (run.status, MADE, guard.held) == ("waiting", ["a begins", "a ends"], [])
    store = Journal(journal)
    open_now = wait_for(find_open_questions(store.store, run.id))
    assert [each.text for each in open_now] == ["x?", "y?"]
    run = agent.resume(run.id, "two", question=open_now[1].question)
    assert run.status == "waiting"
    (rest,) = wait_for(find_open_questions(store.store, run.id))
    run = agent.resume(run.id, "one", question=rest.question)
    assert run.answer == ["x: one", "sent a", "y: two"] and len(MADE) == 2 and guard.held == []
    assert agent.replay(run.id).whole


async def _hold(guard: Recorder, entry: Entry) -> Any:
    guard.restore(entry, None)
    return entry.effect


def test_a_call_that_the_user_answers_is_a_question_answered_by_text(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    agent = make(monkeypatch, journal, [], (Call("ask_user", "Where to?"), *texts("a")), tools=[send, ask_user])
    run = agent.run("q")
    assert run.status == "waiting" and MADE == ["a begins", "a ends"]
    ((kind, text, id),) = questions(agent, run)
    assert (kind, text) == ("question", "Where to?")
    run = agent.resume(run.id, "yes, home", question=id)
    assert run.answer == ["yes, home", "sent a"] and len(MADE) == 2
    assert agent.replay(run.id).whole


def test_the_record_must_have_an_act_with_at_most_as_many_calls(monkeypatch: pytest.MonkeyPatch, journal: Path) -> None:
    run = make(monkeypatch, journal, [], texts("a", "b")).run("q")
    for calls in (texts("a"), texts("a", "x")):
        with pytest.raises(ReplayDiffers):
            make(monkeypatch, journal, [], calls).replay(run.id)


def test_calls_that_cannot_be_bound_have_a_result_without_an_intent_and_pass_no_guard(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    guard = Recorder()
    agent = make(monkeypatch, journal, [guard], (Call("sent", "a"), Call("send", {"words": "b"})))
    run = agent.run("q")
    assert run.answer[0].startswith("There is no tool named 'sent'.") and "text" in run.answer[1]
    assert guard.told == ["0.0 fresh", "0.1 fresh"] and guard.held == []
    assert not records(run, IntentRecord, "0.0") and records(run, ResultRecord, "0.1")[0].asked == Call(
        "send", {"words": "b"}
    )
    assert agent.replay(run.id).whole


def test_a_failed_call_of_a_repeatable_tool_is_repeated_after_the_longest_time_that_a_guard_names(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    @plait.tool(read_only=True)
    def flaky(text: str) -> str:
        """Fails twice."""
        MADE.append(text)
        if len(MADE) < 3:
            raise ValueError("not yet")
        return "at last"

    class Retries(Recorder):
        def __init__(self, name: str, seconds: float | None) -> None:
            super().__init__()
            self.name, self.seconds = name, seconds

        async def retry_after(self, entry: Entry, result: Any, attempt: int) -> float | None:
            return None if attempt > 2 else self.seconds

    guards: list[Guard] = [Retries("one", 0.0), Retries("two", 0.01), Retries("three", None)]
    run = make(monkeypatch, journal, guards, (Call("flaky", "a"),), tools=[flaky]).run("q")
    assert run.answer == ["at last"] and MADE == ["a"] * 3
    notes = [
        each.text
        for each in (row.record for row in run.rows())
        if isinstance(each, NoteRecord) and each.kind == "retry"
    ]
    assert len(notes) == 2 and notes[0].endswith("Calling it again in 0.0 s.")


def test_a_guard_that_writes_the_same_input_in_other_words_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, journal: Path
) -> None:
    guard = Recorder({"a": Call("send", {"text": "a", "seconds": "0"})})
    run = make(monkeypatch, journal, [guard], texts("a")).run("q")
    assert run.answer == ["sent a"] and guard.held == []
    assert records(run, ResultRecord, "0.0")[0].value.note == ""


def test_a_changed_input_is_bound_and_the_model_is_told(monkeypatch: pytest.MonkeyPatch, journal: Path) -> None:
    guard = Recorder({"a": Call("send", {"text": "b", "seconds": "0"})})
    agent = make(monkeypatch, journal, [guard], texts("a"))
    run = agent.run("q")
    (intent,) = records(run, IntentRecord, "0.0")
    assert (intent.made.call.input, intent.made.by) == ({"text": "b", "seconds": 0.0}, "hook")
    assert records(run, ResultRecord, "0.0")[0].value.note.startswith("A hook changed this call before it was made.")
    assert run.answer == ["sent b"] and agent.replay(run.id).whole


def test_an_approval_counts_for_a_default_that_is_computed_anew(monkeypatch: pytest.MonkeyPatch, journal: Path) -> None:
    def make_agent(default: int) -> plait.Agent:
        @plait.tool
        def pay(text: str, amounts: list[int] = [default]) -> str:  # noqa: B006
            """Pays."""
            MADE.append(f"{text} {amounts}")
            return "paid"

        return make(monkeypatch, journal, [Recorder({"a": AskApproval("Pay?")})], (Call("pay", "a"),), tools=[pay])

    run = make_agent(5).run("q")
    assert run.outcome.input == {"text": "a", "amounts": [5]}  # type: ignore[union-attr]
    assert make_agent(6).resume(run, "yes").answer == ["paid"] and MADE == ["a [5]"]


def test_a_call_in_doubt_stays_so_if_the_tool_takes_another_input_by_now(
    monkeypatch: pytest.MonkeyPatch, journal: Path, tmp_path: Path
) -> None:
    @plait.tool(name="send")
    def send_words(words: str) -> str:
        """Sends words."""
        raise AssertionError("it is not called")

    run = make(monkeypatch, journal, [], texts("a")).run("q")
    records = [(row.record, row.body) for row in run.rows() if isinstance(row.record, IntentRecord)]
    path = tmp_path / "cut.db"
    asyncio.run(_begin(path, Journal(journal).head(run.id), records))
    (said,) = make(monkeypatch, path, [], texts("a"), tools=[send_words]).resume(run.id, force=True).answer
    assert said.startswith("Error: the run was interrupted while 'send' was being called.")


async def _begin(path: Path, head: Any, records: Any) -> None:
    await Journal(path).store.begin(head, owner_of_this_process(), records)


def read_rows(store: Journal, run: str) -> list[tuple[float, str, Row]]:
    """Return the rows of a run and its child runs with their times."""
    found = [(row.at, run, row) for row in store.rows(run)]
    for child in store.children(run):
        found += read_rows(store, child.head.run)
    return found


def is_sending(row: tuple[float, str, Row]) -> bool:
    """Return whether a row is the intent of a call of `send`."""
    record = row[2].record
    return isinstance(record, IntentRecord) and record.work == "call" and record.asked.tool == "send"


def test_acts_and_child_runs_killed_after_each_row_repeat_nothing_and_lose_nothing(
    monkeypatch: pytest.MonkeyPatch, journal: Path, tmp_path: Path
) -> None:
    child = plait.Agent(Acts(texts("c"), texts("d")), model=plait.Scripted([]), tools=[send]).as_tool("child", "Sends.")
    acts = ((*texts("a"), Call("child", "x")), (Call("child", "x"), Call("child", "y")), texts("b"))

    def make_agent(path: Path) -> plait.Agent:
        return make(monkeypatch, path, [], *acts, tools=[send, child])

    async def begin_runs(path: Path, rows: list[tuple[float, str, Row]]) -> None:
        kept: dict[str, list[Row]] = {run.id: []}
        for _, name, row in rows:
            kept.setdefault(name, []).append(row)
        for name, its in kept.items():
            records, whole = [(row.record, row.body) for row in its], Journal(journal).run(name)
            log = await Journal(path).store.begin(whole.head, owner_of_this_process(), records)
            if name != run.id and len(its) == len(Journal(journal).rows(name)):
                await log.end(whole.status, whole.outcome or {}, whole.totals)

    run = make_agent(journal).run("q")
    rows = sorted(read_rows(Journal(journal), run.id), key=lambda each: each[0])
    assert len(rows) > 20 and sum(map(is_sending, rows)) == 8
    for cut in some_of(range(1, len(rows))):
        path = tmp_path / f"{cut}.db"
        asyncio.run(begin_runs(path, rows[:cut]))
        MADE.clear()
        resumed = make_agent(path).resume(run.id, force=True)
        assert resumed.status == "answered", (cut, resumed.reason)
        begun = {(name, row.record.key) for _, name, row in rows[:cut] if is_sending((0.0, name, row))}
        assert len(begun) + sum(each.endswith("begins") for each in MADE) == 8, (cut, MADE)
        ended = {(name, row.record.key) for _, name, row in rows[:cut] if isinstance(row.record, ResultRecord)}
        unknown = str(resumed.answer).count("Whether the call took effect is not known")
        assert unknown == str(resumed.answer).count("Error") == len(begun - ended), (cut, resumed.answer)
        assert make_agent(path).replay(run.id).whole, cut
