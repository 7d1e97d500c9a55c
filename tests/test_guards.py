"""Guards see a call as its tool gets it: hooks, `approve=`, questions, grounding, edits."""

from __future__ import annotations

import asyncio
import enum
import json
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import InitVar, dataclass, field
from datetime import date
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, RootModel, SecretStr

import plait
from guard_cases import Account, cases, try_guard
from plait.core import Call, Observation, Reply, Waiting
from plait.core import events as ev
from plait.hooks import RetryTools

GOT: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_got() -> None:
    GOT.clear()


class Watch(plait.Hook):
    def __init__(self) -> None:
        self.saw: list[Any] = []

    def before_tool(self, context: plait.Context[Any], call: Call) -> None:
        self.saw.append(call.input)


def agent_of(tool: plait.Tool, *given: Any, **fields: Any) -> plait.Agent[Any]:
    """An agent whose model calls the tool with these inputs, all in one turn."""
    calls = tuple(Call(tool.name, each, str(n)) for n, each in enumerate(given))
    model = plait.Scripted([Reply("", calls=calls), "ok", "ok"])
    return plait.Agent("tool_calling", model=model, tools=[tool], **{"journal": False, **fields})


def results(run: plait.Run[Any]) -> list[Observation]:
    return [each.observation for each in run.events if isinstance(each, ev.Observed)]


@plait.tool
def pay(to: str, amount: float) -> str:
    """Pays."""
    GOT.append((to, amount))
    return "paid"


# -- every lenient form


@pytest.mark.parametrize("case", cases()[::6007], ids=lambda case: "-".join(case[:4]))
def test_no_form_of_an_input_gets_past_a_guard(case: Any, tmp_path: Path) -> None:
    """A sample; the campaign tries the others."""
    tried = try_guard(case, tmp_path)
    assert (tried.fell, tried.differs) == ("", "")


class Color(enum.Enum):
    RED = "red"


class Order(BaseModel):
    amount: float = Field(alias="Sum", exclude=True)
    tip: float = 1.5


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    amount: float = Field(5, alias="Sum")


class Numbers(RootModel[list[float]]):
    pass


@dataclass
class Parts:
    first: int = 0
    rest: list[int] = field(default_factory=lambda: [7])


HIDDEN = SecretStr("hidden")


@plait.tool
def many(
    color: Color = Color.RED,
    day: date = date(2026, 1, 2),
    exact: Decimal = Decimal("1.5"),
    order: Order | None = None,
    loose: Loose | None = None,
    parts: Parts = Parts(),  # noqa: B008
    numbers: Numbers | None = None,
    tags: set[str] = set(),  # noqa: B006
    most: float = inf,
    key: SecretStr = HIDDEN,
    other: Any = object(),  # noqa: B008
) -> str:
    """Takes many types."""
    GOT.append((color, day, exact, order, loose, parts, numbers, tags, most, key, other))
    return "done"


DEFAULTS = {
    "color": "red",
    "day": "2026-01-02",
    "exact": 1.5,
    "order": None,
    "loose": None,
    "parts": {"first": 0, "rest": [7]},
    "numbers": None,
    "tags": [],
    "most": "inf",
}


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, {}),
        (None, {}),
        ({"COLOR": "RED", "Day": "2026-03-04"}, {"day": "2026-03-04"}),
        ({"exact": "5000"}, {"exact": 5000}),
        ({"exact": "12345678901234567.89"}, {"exact": "12345678901234567.89"}),
        ({"order": {"Sum": "5000"}}, {"order": {"amount": 5000.0, "tip": 1.5}}),
        ({"order": json.dumps({"amount": 5000})}, {"order": {"amount": 5000.0, "tip": 1.5}}),
        ({"loose": {"Sum": 1, "note": "x"}}, {"loose": {"amount": 1.0, "note": "x"}}),
        ({"parts": {"first": "3"}}, {"parts": {"first": 3, "rest": [7]}}),
        ({"numbers": ["5,000"]}, {"numbers": [5000.0]}),
        ({"tags": ["b", "a", "b"]}, {"tags": ["a", "b"]}),
        ({"key": "given"}, {"key": "given"}),
    ],
)
def test_a_guard_sees_names_types_and_defaults(given: Any, seen: dict[str, Any]) -> None:
    watch = Watch()
    agent_of(many, given, hooks=[watch]).run("go")
    assert watch.saw == [DEFAULTS | seen]
    assert len(GOT) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"loose": {"Sum": 1, "amount": 5000}},
        {"exact": "NaN"},
        {"most": True},
        {"colour": "red"},
        {"Color": "red", "color": "red"},
    ],
)
def test_a_call_that_cannot_be_bound_passes_no_guard_and_gets_its_error(given: Any) -> None:
    watch = Watch()
    run = agent_of(many, given, hooks=[watch], approve="always", grounding="refuse").run("go")
    assert (run.status, watch.saw, GOT) == ("answered", [], [])
    assert [each.trouble for each in results(run)] == ["bad_input"]


def test_two_keys_that_are_one_in_json_are_refused_from_code(journal: Path) -> None:
    @plait.tool
    def row(row: dict[Any, Any]) -> str:
        """Takes a row."""
        GOT.append(row)
        return "done"

    code = (
        "I call.\nACTION 1:\n```python\ntry:\n    row({'1': 5000, 1: 5})\nexcept TypeError as e:\n    stop(str(e))\n```"
    )
    model = plait.Scripted({"decompose": ["1. x"], "act": [code] * 2})
    run = plait.Agent("codeact", model=model, tools=[row], journal=journal, limits=plait.Limits(tools=0)).run("go")
    assert GOT == [] and "same in JSON" in str(run.answer)


COUNTED: list[str] = []


def count(value: str) -> str:
    COUNTED.append(value)
    return f"{value}{len(COUNTED)}"


def test_a_validator_runs_once_and_its_value_is_what_everybody_sees() -> None:
    COUNTED.clear()

    @plait.tool
    def take(text: Annotated[str, BeforeValidator(count)], amount: float = 1) -> str:
        """Takes a text."""
        GOT.append((text, amount))
        return "done"

    class Changes(plait.Hook):
        def before_tool(self, context: plait.Context[Any], call: Call) -> Call:
            return structs.replace(call, input={**call.input, "amount": "5,000"})

    watch = Watch()
    agent_of(take, {"text": "a"}, hooks=[Changes(), watch]).run("go")
    assert (watch.saw, GOT, COUNTED) == ([{"text": "a1", "amount": 5000.0}], [("a1", 5000.0)], ["a"])


def test_a_default_is_the_same_for_each_call() -> None:
    @plait.tool
    def add(item: int, items: list[int] = []) -> str:  # noqa: B006
        """Adds."""
        items.append(item)
        GOT.append(list(items))
        return "done"

    watch = Watch()
    agent_of(add, [1], [2], hooks=[watch]).run("go")
    assert watch.saw == [{"item": 1, "items": []}, {"item": 2, "items": []}]
    assert sorted(GOT) == [[1], [2]]


# -- types without a JSON form of their own


class Transfer(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    account: Account = Field(alias="To")
    amount: float = Field(5, alias="Sum")
    source: Account = Field(default_factory=lambda: Account("own"))
    names: Iterable[int] = ()


@dataclass
class Rooted:
    root: str
    file: Path


@dataclass
class Transient:
    amount: float
    account: InitVar[str] = "own"


Cents = Annotated[int, AfterValidator(lambda value: value * 100)]

TYPES: list[tuple[Any, Any, Any, Any]] = [
    (Path, "/etc/passwd", "/etc/passwd", Path("/etc/passwd")),
    (list[Path], ["a/../b", "/c"], ["a/../b", "/c"], [Path("a/../b"), Path("/c")]),
    (Rooted, {"root": "r", "file": "/f"}, {"root": "r", "file": "/f"}, Rooted("r", Path("/f"))),
    (Account, "eve", "eve", Account("eve")),
    (list[Account], ["eve", "bob"], ["eve", "bob"], [Account("eve"), Account("bob")]),
    (deque[Account], ["eve"], ["eve"], deque([Account("eve")])),
    (deque[Iterable[int]], [["1"]], [[1]], deque([[1]])),
    (Cents | Iterable[int], 5, 500, 500),
    (dict[str, Account], {"x": "eve"}, {"x": "eve"}, {"x": Account("eve")}),
    (ZoneInfo, "Europe/Paris", "Europe/Paris", ZoneInfo("Europe/Paris")),
    (
        Transfer,
        {"To": "eve", "Sum": "5,000", "names": [1, "2"]},
        {"account": "eve", "amount": 5000.0, "names": [1, 2]},
        Transfer.model_construct(account=Account("eve"), amount=5000.0, names=[1, 2]),
    ),
    (
        Transfer,
        '{"To": "eve", "source": "bob"}',
        {"account": "eve", "amount": 5.0, "source": "bob", "names": []},
        Transfer.model_construct(account=Account("eve"), source=Account("bob")),
    ),
    (Iterable[int], ["1", 2], [1, 2], [1, 2]),
    (Generator[Iterable[int], None, None], [[1], [2]], [[1], [2]], [[1], [2]]),
    (Cents, 5, 500, 500),
]


def taking(hint: Any, memo: float = inf) -> plait.Tool:
    def take(value: Any, memo: float = memo) -> str:
        """Takes."""
        GOT.append((value, memo))
        return "taken"

    take.__annotations__["value"] = hint
    return plait.tool(take)


@pytest.mark.parametrize(("hint", "given", "seen", "got"), TYPES)
def test_a_guard_sees_what_a_value_was_made_from(hint: Any, given: Any, seen: Any, got: Any, journal: Path) -> None:
    """Directly, with a change of another parameter that is waited for, and as an edit."""
    watch = Watch()
    agent_of(taking(hint), {"value": given}, hooks=[watch]).run("go")
    assert watch.saw == [{"value": seen} | {"memo": "inf"}]
    assert len(GOT) == 1 and GOT[0] == (got, inf)
    other = changing(lambda each: {**each, "memo": 2})
    for hooks, answer in (([other], "yes"), ([], "edit " + json.dumps({"value": given, "memo": 2}))):
        GOT.clear()
        agent = agent_of(taking(hint), {"value": given}, hooks=hooks, approve="effects", journal=journal)
        run = agent.resume(agent.run("go"), answer)
        assert (run.status, GOT) == ("answered", [(got, 2.0)])


def test_a_change_is_bound_from_its_own_words_when_the_run_goes_on(journal: Path) -> None:
    more = changing(lambda given: {**given, "value": 7} if given["value"] == 500 else given)
    agent = agent_of(taking(Cents), {"value": 5}, hooks=[more], approve="effects", journal=journal)
    run = agent.run("go")
    assert '"value":700' in str(run.reason)
    assert agent.resume(run, "yes").status == "answered" and GOT[0] == (700, inf)


def test_an_edited_call_is_repeated_with_what_its_words_make(journal: Path) -> None:
    @plait.tool(read_only=True, requires_approval=True)
    def look(cents: Cents) -> str:
        """Looks."""
        GOT.append(cents)
        if len(GOT) == 1:
            raise RuntimeError("once")
        return "seen"

    agent = agent_of(look, {"cents": 5}, hooks=[RetryTools(2, wait=0)], journal=journal)
    assert agent.resume(agent.run("go"), 'edit {"cents": 6}').status == "answered"
    assert GOT == [600, 600]


def test_calls_of_other_accounts_and_paths_are_other_calls() -> None:
    for hint in (Path, Account):
        GOT.clear()
        assert agent_of(taking(hint), *([f"/{n}"] for n in range(7))).run("go").status == "answered"
        assert len(GOT) == 7


def test_a_type_that_hides_what_it_was_given_is_refused() -> None:
    with pytest.raises(plait.ConfigError, match="InitVar"):
        _ = taking(list[Transient]).spec


def test_hooks_get_the_tools_own_name() -> None:
    seen: list[str] = []

    class Names(plait.Hook):
        def before_tool(self, context: plait.Context[Any], call: Call) -> Call:
            seen.append(call.tool)
            return structs.replace(call, input={"to": "Ada", "amount": 7.0})

        def after_tool(self, context: plait.Context[Any], call: Call, observation: Observation) -> None:
            seen.append(call.tool)

    tool = structs.replace(pay, name="bank.pay")
    model = plait.Scripted([Reply("", calls=(Call("bank_pay", ["Ada", 5], "1"),)), "ok"])
    run = plait.Agent("tool_calling", model=model, tools=[tool], hooks=[Names()], journal=False).run("go")
    assert (seen, GOT) == (["bank.pay", "bank.pay"], [("Ada", 7.0)])
    assert run.timeline.tool_calls[0].call.tool == "bank_pay"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), plait.EndRun("owned")])
def test_a_validator_that_ends_the_process_is_a_bad_input(error: BaseException) -> None:
    def fail(value: Any) -> Any:
        raise error

    run = agent_of(taking(Annotated[str, AfterValidator(fail)]), {"value": "x"}).run("go")
    assert run.status == "answered" and results(run)[0].trouble == "bad_input"
    if not isinstance(error, KeyboardInterrupt):
        with pytest.raises(plait.ConfigError, match="instructions broke"):
            agent_of(pay, ["Ada", 5], instructions=lambda: fail("")).run("go")


# -- hooks that change


def changing(change: Callable[[dict[str, Any]], Any], name: str = "Changing") -> plait.Hook:
    def method(self: plait.Hook, context: Any, call: Call) -> Call:
        return structs.replace(call, input=change(call.input))

    return type(name, (plait.Hook,), {"before_tool": method})()


class Limit(plait.Hook):
    def before_tool(self, context: plait.Context[Any], call: Call) -> plait.Refuse | plait.AskApproval | None:
        if call.input["amount"] > 1000:
            return plait.Refuse("too much")
        return plait.AskApproval("It is much.") if call.input["amount"] > 100 else None


def test_a_hook_sees_what_later_hooks_changed() -> None:
    larger = changing(lambda given: {**given, "Amount": "5,000"} if "Amount" not in given else given)
    run = agent_of(pay, ["Ada", 5], hooks=[Limit(), changing(lambda given: {**given, "amount": 5000})]).run("go")
    assert GOT == [] and "too much" in results(run)[0].text
    run = agent_of(pay, ["Ada", 5], hooks=[Limit(), larger]).run("go")
    assert GOT == [] and "does not take" in results(run)[0].text


@pytest.mark.parametrize("given", [{"nope": 1}, {"to": "Ada"}, {"to": "Ada", "amount": "much"}, 7, None])
def test_a_hook_that_makes_an_impossible_input_is_named(given: Any) -> None:
    run = agent_of(pay, ["Ada", 5], hooks=[changing(lambda _: given)]).run("go")
    assert GOT == []
    [seen] = results(run)
    assert seen.trouble == "refused" and "hook Changing gave it an input that the tool does not take" in seen.text


def test_a_hook_may_change_a_call_without_end_only_alone() -> None:
    more = changing(lambda given: {**given, "amount": given["amount"] + 1})
    agent_of(pay, ["Ada", 5], hooks=[more]).run("go")
    assert GOT == [("Ada", 6.0)]
    also = changing(lambda given: {**given, "amount": given["amount"] + 1}, "Also")
    run = agent_of(pay, ["Ada", 5], hooks=[more, also]).run("go")
    assert len(GOT) == 1 and "again and again" in results(run)[0].text


def test_what_a_guard_writes_into_its_input_reaches_nobody() -> None:
    class Writes(plait.Hook):
        def before_tool(self, context: plait.Context[Any], call: Call) -> None:
            call.input["amount"] = 5000

    def writes(call: Call) -> bool:
        call.input["amount"] = 5000
        return True

    def answers(waiting: Waiting) -> str:
        waiting.input["amount"] = 5000
        return "yes"

    watch = Watch()
    agent_of(pay, ["Ada", 5], hooks=[Writes(), watch], approve=writes).run("go", on_wait=answers)
    assert watch.saw == [{"to": "Ada", "amount": 5.0}] * 2 and GOT == [("Ada", 5.0)]  # also after the answer


def test_a_hook_that_returns_a_new_observation_keeps_the_marks() -> None:
    @plait.tool(read_only=True, open_world=True)
    def read(name: str) -> str:
        """Reads."""
        return "from outside"

    class New(plait.Hook):
        def after_tool(self, context: plait.Context[Any], call: Call, observation: Observation) -> Observation:
            return Observation("new")

    run = agent_of(read, "a", "a", hooks=[New()], taint="ask").run("go")
    assert run.outside
    assert [each.outside for each in results(run)] == [True, True]


# -- approvals and edits


def test_approve_and_the_question_get_the_bound_input(journal: Path) -> None:
    agent = agent_of(pay, '{"to": "Ada", "Amount": "5,000"}', approve=lambda call: call.input["amount"] > 1000)
    run = agent.using(journal=journal).run("go")
    assert run.reason == """May 'pay' be called with {"to":"Ada","amount":5000.0}?"""
    assert run.outcome.input == {"to": "Ada", "amount": 5000.0}  # type: ignore[union-attr]
    agent.using(journal=journal).resume(run, "yes")
    assert GOT == [("Ada", 5000.0)]


@pytest.mark.parametrize("edit", ['["Ada", 5000]', '{"to": "Ada", "AMOUNT": "5,000"}'])
def test_an_edit_passes_all_guards_again(edit: str, journal: Path) -> None:
    agent = agent_of(pay, ["Ada", 5], hooks=[Limit()], approve="effects", journal=journal)
    run = agent.resume(agent.run("go"), f"edit {edit}")
    assert run.status == "answered" and GOT == []
    assert run.timeline.tool_calls[0].call.input == {"to": "Ada", "amount": 5000.0}
    assert "too much" in results(run)[0].text
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome


def test_an_edit_is_approval_for_the_guard_that_asked_and_for_no_other(journal: Path) -> None:
    agent = agent_of(pay, ["Ada", 5], hooks=[Limit()], approve="effects", journal=journal)
    run = agent.resume(agent.run("go"), 'edit ["Ada", 50]')
    assert run.status == "answered" and GOT == [("Ada", 50.0)]
    run = agent.resume(agent.run("go"), 'edit ["Ada", 500]')
    assert run.reason == """May 'pay' be called with {"to":"Ada","amount":500.0}? It is much."""
    run = agent.resume(run, 'edit ["Ada", 600]')
    assert run.reason == """May 'pay' be called with {"to":"Ada","amount":600.0}?""" and len(GOT) == 1
    run = agent.resume(run, "yes")
    assert run.status == "answered" and GOT[1:] == [("Ada", 600.0)]
    assert len(run.timeline.questions) == 3 and not run.timeline.open_questions
    assert agent.replay(run).outcome == run.outcome


def test_an_edit_back_to_the_first_input_is_asked_about_and_made(journal: Path) -> None:
    agent = agent_of(pay, ["Ada", 5], hooks=[Limit()], approve="effects", journal=journal)
    run = agent.resume(agent.run("go"), 'edit ["Ada", 500]')
    run = agent.resume(run, 'edit ["Ada", 5]')
    assert run.reason == """May 'pay' be called with {"to":"Ada","amount":5.0}?""" and GOT == []
    run = agent.resume(run, "yes")
    assert run.status == "answered" and GOT == [("Ada", 5.0)]
    assert agent.replay(run).outcome == run.outcome


def test_a_call_that_is_edited_too_often_is_not_made(journal: Path) -> None:
    agent = agent_of(pay, ["Ada", 5], hooks=[Limit()], approve="effects", journal=journal)
    run = agent.run("go")
    for amount in (500, 501, 502, 503, 504):
        assert run.status == "waiting"
        run = agent.resume(run, f'edit ["Ada", {amount}]')
    assert run.status == "answered" and GOT == []
    assert results(run)[0].text == "The call was edited too often. It was not made."


def test_a_question_about_an_edit_stays_open_while_another_call_is_answered(journal: Path) -> None:
    """The policy of the run above asks about the edit: the question before it was about another input."""
    child = agent_of(pay, ["Ada", 5], ["Bob", 5], approve="effects", journal=journal)
    parent = agent_of(child.as_tool("child"), "go", approve=lambda call: call.input.get("amount", 0) > 100)
    parent = parent.using(journal=journal)
    run = parent.resume(parent.run("go"), 'edit ["Ada", 500]')
    asked = {each.call.input["to"]: each for each in run.children[0].timeline.open_questions if each.call is not None}
    assert {each.call and each.call.input["amount"] for each in asked.values()} == {500, 5}
    run = parent.resume(run, "yes", question=asked["Bob"].question)
    assert run.status == "waiting" and GOT == [("Bob", 5.0)]
    assert parent.resume(run, "yes").status == "answered" and GOT == [("Bob", 5.0), ("Ada", 500.0)]


def test_policies_of_runs_above_look_at_an_edit_if_they_had_not_asked(journal: Path) -> None:
    child = agent_of(pay, ["Ada", 5], approve="effects", journal=journal)
    parent = agent_of(child.as_tool("child"), "go", approve=lambda call: call.input.get("amount", 0) > 100)
    parent = parent.using(journal=journal)
    run = parent.resume(parent.run("go"), 'edit ["Ada", 500]')
    assert run.status == "waiting" and GOT == []
    assert parent.resume(run, "yes").status == "answered" and GOT == [("Ada", 500.0)]


def test_grounding_looks_at_the_converted_input_and_at_edits_but_not_at_defaults(journal: Path) -> None:
    @plait.tool
    def send(to: str, amount: int = 4711, parts: Parts = Parts(1, [77])) -> str:  # noqa: B008
        """Sends."""
        GOT.append((to, amount))
        return "sent"

    agent_of(send, ["Ada"], grounding="refuse").run("Send to Ada.")
    assert GOT == [("Ada", 4711)]
    run = agent_of(send, ["Ada", "5,555"], grounding="refuse").run("Send to Ada.")
    assert len(GOT) == 1 and "amount: 5555" in results(run)[0].text
    agent = agent_of(send, ["Ada"], grounding="ask", approve="effects", journal=journal)
    run = agent.resume(agent.run("Send to Ada."), 'edit ["Ada", 5555]')
    assert run.status == "waiting" and "amount: 5555" in str(run.reason)


def test_a_hook_after_an_edit_that_changes_it_asks_anew(journal: Path) -> None:
    lower = changing(lambda given: {**given, "amount": min(given["amount"], 100)})
    agent = agent_of(pay, ["Ada", 5], hooks=[lower], approve="effects", journal=journal)
    run = agent.resume(agent.run("go"), 'edit ["Ada", 500]')
    assert run.reason == """May 'pay' be called with {"to":"Ada","amount":100.0}?"""
    assert agent.resume(run, "yes").status == "answered" and GOT == [("Ada", 100.0)]


def test_two_calls_that_are_bound_alike_are_two_questions_and_one_call_for_the_loop_breaker(journal: Path) -> None:
    agent = agent_of(pay, ["Ada", 5], {"to": "Ada", "Amount": "5"}, approve="effects", journal=journal)
    run = agent.run("go")
    first = run.outcome.question  # type: ignore[union-attr]
    run = agent.resume(run, "yes")
    assert run.outcome.question != first and len(GOT) == 1  # type: ignore[union-attr]
    assert agent.resume(run, "no").status == "answered" and len(GOT) == 1
    run = agent_of(pay, ["Ada", 5], {"to": "Ada", "Amount": "5"}).run("go")
    assert [each.repeated for each in results(run)] == [False, False]  # in one turn


def test_a_decision_is_for_the_input_that_was_seen(journal: Path) -> None:
    """The program changes while the run waits: the tool must not get a default that nobody has seen."""

    def paying(amount: int) -> plait.Agent[Any]:
        @plait.tool
        def pay_some(to: str, amounts: list[int] = [amount]) -> str:  # noqa: B006
            """Pays."""
            GOT.append((to, amounts))
            return "paid"

        return agent_of(pay_some, ["Ada"], approve="effects", journal=journal)

    run = paying(5).run("go")
    assert run.outcome.input == {"to": "Ada", "amounts": [5]}  # type: ignore[union-attr]
    assert paying(5000).resume(run, "yes").status == "answered"
    assert GOT == [("Ada", [5])]


UNIT = {"": 1.0}


@plait.tool
def pay_units(amount: Annotated[float, AfterValidator(lambda value: value * UNIT[""])]) -> str:
    """Pays."""
    GOT.append(amount)
    return "paid"


def test_a_tool_that_would_get_another_input_than_was_approved_is_not_called(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(pay_units, [5], approve="effects", journal=journal)
    run = agent.run("go")
    monkeypatch.setitem(UNIT, "", 1000.0)
    run = agent.resume(run, "yes")
    assert GOT == [] and [each.trouble for each in results(run)] == ["bad_input"]


def test_the_journal_has_the_call_as_written_and_as_made(journal: Path) -> None:
    half = changing(lambda given: {**given, "amount": min(given["amount"], 2.5)})
    run = agent_of(pay, ["Ada", "5"], hooks=[half], journal=journal).run("go")
    [made] = run.timeline.tool_calls
    assert made.planned.input == ["Ada", "5"]
    assert (made.call.input, made.changed_by) == ({"to": "Ada", "amount": 2.5}, "hook")
    shown = [each.call.input for each in run.events if isinstance(each, ev.Called)]
    assert shown == [{"to": "Ada", "amount": 2.5}]
    run = agent_of(pay, {"to": "Ada", "amount": 5}, journal=journal).run("go")
    assert repr(run.timeline.tool_calls[0].call.input) == "{'to': 'Ada', 'amount': 5.0}"
    unchanged = agent_of(pay, ["Ada", "5"], journal=journal).run("go")
    assert [each.call.input for each in unchanged.events if isinstance(each, ev.Called)] == [["Ada", "5"]]


async def test_an_edited_call_that_is_made_again_has_the_edited_input(journal: Path) -> None:
    began = asyncio.Event()

    @plait.tool(idempotent=True)
    async def pay_again(to: str, amount: float) -> str:
        """Pays."""
        GOT.append(amount)
        if len(GOT) == 1:
            began.set()
            await asyncio.sleep(60)
        return "paid"

    agent = agent_of(pay_again, ["Ada", 5], approve="always", journal=journal)
    run = await agent.arun("go")
    going_on = asyncio.create_task(agent.aresume(run, 'edit ["Ada", 50]'))
    await began.wait()
    going_on.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going_on
    assert (await agent.aresume(run.id)).status == "answered"
    assert GOT == [50.0, 50.0]


COMPUTED: Any = Field(default_factory=lambda: [len(GOT)])


def test_computed_defaults_make_no_call_new_for_the_loop_breaker_and_for_doubts(journal: Path) -> None:
    @plait.tool(timeout=0.05)
    async def pay_once(to: str, code: list[int] = COMPUTED) -> str:
        """Pays."""
        GOT.append(to)
        await asyncio.sleep(0 if to == "Bob" else 60)
        return "paid"

    def turns(*inputs: Any) -> plait.Agent[Any]:
        replies = [Reply("", calls=(Call("pay_once", each, "1"),)) for each in inputs]
        return plait.Agent("tool_calling", model=plait.Scripted([*replies, "ok"]), tools=[pay_once], journal=journal)

    run = turns(["Ada"], {"To": "Ada"}).run("go")
    assert run.status == "waiting" and "The same call was made before" in str(run.reason)
    run = turns(*[["Bob"]] * 6).run("go")
    assert (run.status, run.outcome.limit) == ("stopped", "loop")  # type: ignore[union-attr]


def test_hooks_of_the_same_name_in_a_run_and_the_run_above_both_decide(journal: Path) -> None:
    def limit(most: float, asks: float) -> plait.Hook:
        def method(self: plait.Hook, context: Any, call: Call) -> Any:
            amount = call.input.get("amount", 0)
            return plait.Refuse(f"above {most}") if amount > most else plait.AskApproval("?") if amount > asks else None

        return type("Limit", (plait.Hook,), {"before_tool": method})()

    def run(above: plait.Hook, below: plait.Hook) -> tuple[plait.Agent[Any], plait.Run[Any]]:
        child = agent_of(pay, ["Ada", 50], hooks=[below], journal=journal)
        parent = agent_of(child.as_tool("child"), "go", hooks=[above], journal=journal)
        return parent, parent.run("go")

    for hooks in ((limit(10, 10), limit(99, 99)), (limit(99, 99), limit(10, 10))):
        assert run(*hooks)[1].status == "answered" and GOT == []
    parent, waiting = run(limit(999, 10), limit(999, 60))
    waiting = parent.resume(waiting, 'edit ["Ada", 70]')  # the other hook has not asked
    assert waiting.status == "waiting" and GOT == []
    assert parent.resume(waiting, "yes").status == "answered" and GOT == [("Ada", 70.0)]
