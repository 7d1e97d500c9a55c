"""Guards and hooks with mistakes in them: what they return or write into never reaches a tool or the record unseen."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from plait.core import Call, LimitNear, Observation, Reply, Think
from plait.core.errors import ConfigError
from plait.core.hosted import HostedTool
from plait.journal.store import Journal
from plait.models.chat import ChatModel
from plait.runtime.guard import Attempt, EndedByRefusal, Entry, Finish, LimitReached, StartChild
from plait.runtime.hooks import BUILT_IN
from plait.runtime.make_guards import make_guards

DONE: list[tuple[str, str, float]] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@plait.tool
def pay(to: str, amount: float) -> str:
    """Pays."""
    DONE.append(("pay", to, amount))
    return f"paid {amount} to {to}"


@plait.tool
def draft(to: str, amount: float) -> str:
    """Drafts a payment."""
    DONE.append(("draft", to, amount))
    return "drafted"


@plait.tool(timeout=0.02)
async def pay_slowly(to: str, amount: float) -> str:
    """Pays, and then takes too long to say so."""
    DONE.append(("slow", to, amount))
    await asyncio.sleep(60)
    return "paid"


def act(tool: str, **given: Any) -> Reply:
    return Reply("", calls=(Call(tool, given, "c1"),))


def agent_with(journal: Path, *hooks: Any, script: Any = None, **options: Any) -> plait.Agent[Any]:
    script = script or [act("pay", to="Ada", amount=500), "ok", "ok"]
    options = {"tools": [pay, draft], **options}
    return plait.Agent("tool_calling", model=plait.Scripted(script), hooks=hooks, journal=journal, **options)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


class Sees(plait.Guard):
    """A guard of tool calls that does what a test says."""

    points = (Call,)

    def __init__(self, before: Any = None, after: Any = None) -> None:
        self._before, self._after = before, after

    async def before(self, entry: Entry) -> Any:
        return self._before(entry) if self._before else entry.effect

    async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
        return self._after(result) if self._after and fresh else result


def assign(entry: Entry) -> Any:
    entry.effect = structs.replace(entry.effect, input={"to": "Eve", "amount": 5.0})
    return entry.effect


def write(entry: Entry) -> Any:
    entry.effect.input["amount"] = 1.0
    return entry.effect


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (lambda entry: structs.replace(entry.effect, tool="draft"), "returned Call(tool='draft'"),
        (lambda entry: None, "returned None"),
        (lambda entry: "no", "returned 'no'"),
        (lambda entry: entry.effect.input, "returned {"),
        (assign, "wrote into the Call"),
        (write, "wrote into the Call"),
    ],
)
def test_a_guard_that_gives_another_call_or_none_makes_no_call_and_the_run_goes_on_when_it_is_corrected(
    journal: Path, before: Any, said: str
) -> None:
    agent = agent_with(journal, Sees(before), approve=lambda call: call.input["amount"] > 100)
    run = agent.run("q")
    assert run.status == "crashed" and said in (run.reason or "") and "'Sees'" in (run.reason or "")
    assert "returned" not in said or "plait.Refuse" in run.outcome.hint
    assert not DONE
    run = agent.using(hooks=[Sees()]).resume(run)
    assert run.status == "waiting" and '"amount":500.0' in (run.reason or str(run.outcome))
    run = agent.using(hooks=[Sees()]).resume(run, "yes")
    assert run.status == "answered" and DONE == [("pay", "Ada", 500.0)]


@pytest.mark.parametrize(
    "after",
    [
        lambda result: None,
        lambda result: result.text,
        lambda result: structs.replace(result, text=None),
        lambda result: structs.replace(result, attachments=7),
    ],
)
def test_a_guard_that_gives_no_result_behind_an_effect_loses_nothing_and_repeats_nothing(
    journal: Path, after: Any
) -> None:
    agent = agent_with(journal, Sees(after=after))
    run = agent.run("q")
    assert run.status == "crashed" and "The guard 'Sees' returned" in (run.reason or "")
    run = agent.using(hooks=[Sees()]).resume(run)
    assert run.status == "answered" and DONE == [("pay", "Ada", 500.0)]
    assert run.timeline.tool_calls[0].seen.text == "paid 500.0 to Ada"
    assert agent.using(hooks=[]).replay(run).whole


def test_a_guard_that_writes_into_a_result_ends_the_run_and_the_record_has_the_result_as_it_was(journal: Path) -> None:
    @plait.tool(read_only=True)
    def account() -> dict[str, str]:
        """Returns an account."""
        return {"iban": "DE1"}

    def hide(result: Observation) -> Observation:
        result.value["iban"] = "***"
        return result

    agent = agent_with(journal, Sees(after=hide), script=[act("account"), "ok"], tools=[account])
    run = agent.run("q")
    assert run.status == "crashed" and "wrote into the Observation" in (run.reason or "")
    assert run.timeline.tool_calls[0].observation.value == {"iban": "DE1"}


@pytest.mark.parametrize("method", ["start", "before", "after", "release", "restore", "recall", "carry"])
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_the_error_of_a_guard_names_it_and_the_run_can_be_resumed(
    journal: Path, method: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error("no ledger")

    def fail_for_draft(entry: Entry) -> Any:
        return fail() if entry.effect.tool == "draft" else entry.effect

    script = [act("pay", to="Ada", amount=500), act("draft", to="Bo", amount=1), "ok", "ok"]
    approve = "effects" if method == "release" else "never"  # a call that waits for the user is released
    agent = agent_with(journal, Sees(), script=script, approve=approve)
    if method in ("restore", "recall"):
        assert agent.using(hooks=[Sees(before=fail_for_draft)]).run("q").status == "crashed"
    with monkeypatch.context() as patch:
        patch.setattr(Sees, method, fail)
        if method == "start":
            with pytest.raises(ConfigError, match="The guard 'Sees' failed"):
                agent.run("q")
        else:
            run = agent.resume("last") if method in ("restore", "recall") else agent.run("q")
            assert f"The guard 'Sees' failed: {error.__name__}: no ledger" in (run.reason or "")
    assert [row.status for row in Journal(journal).runs()] == ["crashed"]
    run = agent.resume("last")
    while run.status == "waiting":
        run = agent.resume(run, "yes")
    assert run.status == "answered" and [tool for tool, *_ in DONE] == ["pay", "draft"]
    assert agent.using(hooks=[]).replay(run).whole


@pytest.mark.parametrize("signal", [LimitNear("mine", "enough"), LimitReached("mine", "enough"), EndedByRefusal("no")])
def test_what_a_guard_raises_about_the_end_of_a_run_is_on_record(journal: Path, signal: Exception) -> None:
    class EndsOtherwise(plait.Guard):
        points = (Finish,)

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            if fresh:
                raise signal
            return result

    agent = agent_with(journal, EndsOtherwise())
    run = agent.run("q")
    assert run.status == ("failed" if isinstance(signal, EndedByRefusal) else "stopped")
    assert agent.using(hooks=[]).replay(run).whole


@pytest.mark.parametrize("max_tokens", [0, -1, 2.5, "5"])
def test_a_guard_can_only_shorten_a_request(journal: Path, max_tokens: Any) -> None:
    class Shortens(plait.Guard):
        points = (Attempt,)

        async def before(self, entry: Entry) -> Any:
            return dataclasses.replace(entry.effect, max_tokens=max_tokens)

    run = agent_with(journal, Shortens()).run("q")
    assert run.status == "crashed" and "The guard 'Shortens' returned" in (run.reason or "")
    assert "a smaller max_tokens" in run.outcome.hint


def test_a_guard_that_changes_the_response_of_an_attempt_is_told_to_change_the_reply(journal: Path) -> None:
    class Changes(plait.Guard):
        points, points_after = (), (Attempt,)

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            return structs.replace(result, seconds=9.0) if fresh else result

    run = agent_with(journal, Changes()).run("q")
    assert run.status == "crashed" and "changed the response of an attempt" in (run.reason or "")
    assert "change the reply" in run.outcome.hint


def test_two_guards_that_change_a_request_in_turn_leave_requests_that_a_replay_makes_again(journal: Path) -> None:
    def ends_with(mark: str, after: str) -> type[plait.Guard]:
        class Marks(plait.Guard):
            points = (Think,)

            @property
            def name(self) -> str:
                return f"marks {mark}"

            async def before(self, entry: Entry) -> Any:
                *first, last = entry.effect.messages
                if not last.content.endswith(after):
                    return entry.effect
                last = structs.replace(last, content=last.content + mark)
                return structs.replace(entry.effect, messages=(*first, last))

        return Marks

    hooks = [ends_with("!", "q")(), ends_with("?", "!")(), ends_with("!", "q!?")()]
    hooks[2].__class__.name = "marks again"  # type: ignore[misc, assignment]
    agent = agent_with(journal, *hooks, script=["ok"])
    run = agent.run("q")
    assert run.status == "answered" and b"q!?!" in (run.timeline.model_calls[0].request or b"")
    assert agent.using(hooks=[]).replay(run).whole


def test_a_guard_may_be_a_data_class_that_cannot_be_hashed(journal: Path) -> None:
    @dataclasses.dataclass
    class Counts(plait.Guard):
        points = (Call, Think)
        calls: int = 0

        async def before(self, entry: Entry) -> Any:
            self.calls += isinstance(entry.effect, Call)
            return plait.Refuse("no") if isinstance(entry.effect, Call) else entry.effect

    run = agent_with(journal, Counts()).run("q")
    assert run.status == "answered" and not DONE


# -- names, and child runs


def test_no_hook_has_the_name_of_a_guard_of_plait(journal: Path) -> None:
    seen: set[str] = set()

    class Looks(plait.Guard):
        points = (Think,)

    def make(engine: Any, **options: Any) -> Any:
        guards = make_guards(engine, **options)
        seen.update(guard.name for guard in guards)
        return guards

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plait.runtime.runs.make_guards", make)
        output = plait.OutputType(dict[str, int])
        script = ['{"a": 1}']
        agent_with(journal, Looks(), script=script, output=output).run("q")
        few = {"claims", "grounding", "sources", "spend", "background", "hosted"}  # only of runs that have such a part
        assert seen - {"Looks"} == BUILT_IN - few
        with_parts: dict[str, Any] = {"claims": "note", "grounding": "note", "spend": ["runs=9,user=*"]}
        with_parts |= {"tools": [plait.tool(lambda: "dug", name="dig", description="Dig.", background=True)]}
        agent_with(journal, Looks(), script=script, **with_parts).run("q", user="ada")
        model = ChatModel(spec="groq:m", name="m", endpoint="http://127.0.0.1:9", hosted=(HostedTool("web_search"),))
        assert plait.Agent("react", model=model, approve="always", journal=False).run("q").status == "failed"
    assert seen - {"Looks"} == BUILT_IN

    for name in (*BUILT_IN, "^Looks"):
        hook = type(name, (plait.Hook,), {})()
        with pytest.raises(ConfigError, match="another name"):
            agent_with(journal, hook)


class Most(plait.Guard):
    points = (Call,)

    def __init__(self, most: float) -> None:
        self.most, self.seen = most, list[str]()

    async def before(self, entry: Entry) -> Any:
        if entry.effect.tool != "pay":
            return entry.effect
        self.seen.append(entry.effect.input["to"])
        return plait.Refuse(f"more than {self.most}") if entry.effect.input["amount"] > self.most else entry.effect

    def start(self, context: plait.Context[Any]) -> Most:
        return self


@pytest.mark.parametrize(("below", "above"), [(100, 1000), (1000, 100)])
def test_a_child_run_obeys_its_own_guard_and_the_one_above_of_the_same_name(
    journal: Path, below: float, above: float
) -> None:
    child = agent_with(journal, Most(below))
    guard = Most(above)
    agent = agent_with(journal, guard, script=[act("ask_agent", question="q"), "ok"], tools=[child.as_tool()])
    run = agent.run("q")
    assert run.status == "answered" and not DONE
    assert guard.seen == ["Ada"]
    assert agent.using(hooks=[]).replay(run).whole


def test_what_a_guard_above_carries_comes_from_it_and_not_from_the_child_s_own_of_its_name(journal: Path) -> None:
    told: list[Any] = []

    class Carries(plait.Guard):
        points_after = (StartChild,)

        def __init__(self, word: str) -> None:
            self.word = word

        def carry(self) -> Any:
            return self.word

        async def after(self, entry: Entry, result: Any, fresh: bool) -> Any:
            if not isinstance(result, LimitNear):
                told.append(result.totals["guards"]["Carries"])
            return result

    child = agent_with(journal, Carries("child"), script=["ok"])
    agent = agent_with(
        journal, Carries("parent"), script=[act("ask_agent", question="q"), "ok"], tools=[child.as_tool()]
    )
    assert agent.run("q").status == "answered"
    assert told == ["parent"]


# -- doubts


def test_an_edit_of_a_call_in_doubt_into_another_one_in_doubt_is_asked_about(journal: Path) -> None:
    script = [act("pay_slowly", to="A", amount=each) for each in (5, 7, 5)]
    agent = agent_with(journal, script=[*script, "ok"], tools=[pay_slowly])
    run = agent.run("q")
    assert run.status == "waiting" and "5.0" in str(run.outcome)
    run = agent.resume(run, 'edit {"to": "A", "amount": 7}')
    assert run.status == "waiting" and "7.0" in str(run.outcome) and "not known" in str(run.outcome)
    assert DONE == [("slow", "A", 5.0), ("slow", "A", 7.0)]
    assert agent.resume(run, "yes").status == "answered"
    assert DONE == [("slow", "A", 5.0), ("slow", "A", 7.0), ("slow", "A", 7.0)]


# -- hooks that write into what they get


class HidesBefore(plait.Hook):
    def before_answer(self, context: Any, answer: Any) -> Any:
        answer["iban"] = "***"
        return answer


class HidesAfter(plait.Hook):
    def after_answer(self, context: Any, answer: Any) -> Any:
        answer["iban"] = "***"
        return answer


class Forgets(plait.Hook):
    def before_answer(self, context: Any, answer: Any) -> Any:
        answer["iban"] = "***"


@pytest.mark.parametrize(("hook", "iban"), [(HidesBefore(), "***"), (HidesAfter(), "***"), (Forgets(), "DE1")])
@pytest.mark.parametrize("loop", ["tool_calling", "json", "react"])
def test_an_answer_that_a_hook_writes_into_and_returns_is_a_change_on_record(
    journal: Path, hook: plait.Hook, iban: str, loop: str
) -> None:
    answer = json.dumps({"iban": "DE1", "n": [1]})
    script = {
        "tool_calling": [answer],
        "json": [json.dumps({"thought": "t", "tool": "final_answer", "tool_input": json.loads(answer)})],
        "react": [f"Thought: x\nFinal Answer: {answer}"],
    }[loop]
    agent = plait.Agent(
        loop, model=plait.Scripted(script), hooks=[hook], journal=journal, output=dict[str, Any], tools=[pay]
    )
    run = agent.run("q")
    assert run.output == {"iban": iban, "n": [1]}
    replayed = agent.using(hooks=[]).replay(run)
    assert replayed.whole and replayed.outcome == run.outcome


def test_calls_and_results_that_a_hook_writes_into_and_returns_are_changes_on_record(journal: Path) -> None:
    class Writes(plait.Hook):
        def after_model(self, context: Any, reply: Reply) -> Reply:
            for call in reply.calls:
                call.input["to"] = "Bob"
            return reply

        def after_tool(self, context: Any, call: Call, seen: Observation) -> Observation:
            seen.value["to"] = "Zoe"
            return seen

    @plait.tool(read_only=True)
    def look(to: str) -> dict[str, str]:
        """Looks."""
        return {"to": to}

    agent = agent_with(journal, Writes(), script=[act("look", to="Ada"), "ok"], tools=[look])
    run = agent.run("q")
    call = run.timeline.tool_calls[0]
    assert call.observation.value == {"to": "Bob"} and call.seen.value == {"to": "Zoe"}
    assert agent.using(hooks=[]).replay(run).whole
