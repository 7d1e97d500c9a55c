"""Hooks observe, change, refuse and ask at each point of a run, and the journal has what they decided."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from cli_support import Shell, action, final, question
from conftest import some_of
from crash_support import kill_and_resume, run_script
from loop_scripts import ANSWER, LOOPS, QUESTION, SCRIPTS, reply_of
from plait.core import Call, Message, Observation, Reply, Think, Waiting
from plait.core import events as ev
from plait.core.errors import ConfigError
from plait.journal.store import Journal

SENT: list[str] = []
FAILS: list[int] = []


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_happened() -> None:
    SENT.clear()
    FAILS.clear()


@plait.tool
def send(text: str) -> str:
    """Sends a text."""
    SENT.append(text)
    return f"sent {text} to ada@example.com"


@plait.tool(read_only=True)
def flaky(key: str) -> str:
    """Fails the first two times."""
    FAILS.append(1)
    if len(FAILS) < 3:
        raise RuntimeError("busy")
    return f"value of {key}"


class Seen(plait.Hook):
    """Remembers what it was called with, and changes nothing."""

    def __init__(self) -> None:
        self.points: list[str] = []

    def before_model(self, context: plait.Context[Any], request: Think) -> None:
        self.points.append("before_model")

    async def after_model(self, context: plait.Context[Any], reply: Reply) -> None:
        self.points.append("after_model")

    def before_tool(self, context: plait.Context[Any], call: Call) -> None:
        self.points.append(f"before_tool {call.input['text']} {context.step} {context.deps}")

    async def after_tool(self, context: plait.Context[Any], call: Call, seen: Observation) -> None:
        self.points.append(f"after_tool {seen.text.split()[0]}")

    def before_answer(self, context: plait.Context[Any], answer: Any) -> None:
        self.points.append(f"before_answer {answer}")

    async def after_answer(self, context: plait.Context[Any], answer: Any) -> None:
        self.points.append(f"after_answer {answer}")


def make(journal: Path, hook: plait.Hook | list[plait.Hook], *replies: str, **fields: Any) -> plait.Agent[Any]:
    script = replies or (action("send", {"text": "one"}), final("Over."))
    hooks = hook if isinstance(hook, list) else [hook]
    given = {"tools": [send, flaky], "journal": journal, "hooks": hooks, **fields}
    return plait.Agent("react", model=plait.Scripted([*script], chunk=4), **given)


def on(point: str, result: Any) -> plait.Hook:
    """A hook that returns a value, or what a function makes of the subject, at one point."""

    def method(self: plait.Hook, context: Any, *values: Any) -> Any:
        return result(values[-1]) if callable(result) else result

    return type(f"On_{point}", (plait.Hook,), {point: method})()


# -- observing


def test_hooks_see_each_model_call_tool_call_and_answer(journal: Path) -> None:
    seen = Seen()
    run = make(journal, seen, deps=str).run("go", deps="db")
    assert run.answer == "Over."
    assert seen.points == [
        *("before_model", "after_model", "before_tool one 1 db", "after_tool sent"),
        *("before_model", "after_model", "before_answer Over.", "after_answer Over."),
    ]


def test_hooks_run_in_order_before_and_in_reverse_order_after(journal: Path) -> None:
    def adding(letter: str) -> plait.Hook:
        def call(self: plait.Hook, context: Any, call: Call) -> Call:
            text = call.input["text"]
            return call if letter in text[3:] else structs.replace(call, input={"text": text + letter})

        def result(self: plait.Hook, context: Any, call: Call, seen: Observation) -> Observation:
            return structs.replace(seen, text=seen.text + letter)

        return type(letter, (plait.Hook,), {"before_tool": call, "after_tool": result})()

    run = make(journal, [adding("a"), adding("b")]).run("go")
    assert SENT == ["oneab"]
    [(_, observation)] = run.timeline.results
    assert observation.text == "sent oneab to ada@example.com"  # the journal has what the tool returned
    last_request = run.timeline.model_calls[-1].request.decode()
    assert "sent oneab to ada@example.comba" in last_request
    assert "A hook changed this call before it was made" in last_request


# -- changing


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_whose_calls_a_hook_changed_can_be_resumed_forked_and_replayed(loop: str, journal: Path) -> None:
    def change(call: Call) -> Call | None:
        if call.tool != "send":
            return None
        given = call.input
        text = given.get("text") if isinstance(given, dict) else given[0] if isinstance(given, list) else given
        return structs.replace(call, input={"text": f"{text}!"})

    @plait.tool(idempotent=True)
    def fetch(key: str) -> str:
        """Fetches a value."""
        return f"value of {key}"

    model = plait.Scripted({phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[loop].items()})
    limits = plait.Limits(tools=0 if loop == "codeact" else None)
    agent: plait.Agent[Any] = plait.Agent(
        loop, model=model, tools=[fetch, send], hooks=[on("before_tool", change)], journal=journal, limits=limits
    )
    run = agent.using(approve="effects").run(QUESTION)
    while run.status == "waiting":
        run = agent.resume(run, "yes")
    assert (run.status, run.answer, len(SENT)) == ("answered", ANSWER, 3), run.reason
    assert all(each.endswith("!") for each in SENT)
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome
    assert [call.planned != call.call for call in run.timeline.tool_calls if call.call.tool == "send"] == [True] * 3


def test_a_changed_request_is_what_is_sent_and_what_a_replay_compares(journal: Path) -> None:
    def shout(request: Think) -> Think:
        messages = [
            structs.replace(each, content=each.content.replace("secret", "(removed)")) for each in request.messages
        ]
        return structs.replace(request, messages=tuple(messages))

    agent = make(journal, on("before_model", shout))
    run = agent.run("the secret is 7")
    sent = [call.request.decode() for call in run.timeline.model_calls]
    assert all("(removed) is 7" in each and "secret" not in each for each in sent)
    assert agent.using(hooks=[]).replay(run).requests == 2
    # Only the message that changed is stored, not the whole request.
    decisions = [each.entry for each in run.timeline.moments if each.change == "decided"]
    assert [list(each.value["messages"]) for each in decisions] == [["1"], ["1"]]  # type: ignore[union-attr]


def test_a_changed_reply_is_what_the_loop_reads_and_nothing_else_is_streamed(journal: Path) -> None:
    hook = on("after_model", lambda reply: structs.replace(reply, text=reply.text.replace("Over", "All done")))
    agent = make(journal, hook)
    events: list[ev.Event] = []
    run = asyncio.run(agent.arun("go", on_event=events.append))
    written = "".join(each.text for each in events if isinstance(each, ev.Answer))
    assert (run.answer, written) == ("All done.", "All done.")
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome


def test_a_changed_answer_is_the_answer_and_the_first_one_is_not_shown(journal: Path) -> None:
    agent = make(journal, on("after_answer", lambda answer: answer.replace("Over", "(removed)")))
    events: list[ev.Event] = []
    run = asyncio.run(agent.arun("go", on_event=events.append))
    assert run.answer == "(removed)."
    assert [each.text for each in events if isinstance(each, ev.Answer | ev.Text)] == ["(removed)."]
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome


def test_code_gets_the_changed_value_of_a_result(journal: Path) -> None:
    hook = on("after_tool", lambda seen: structs.replace(seen, value="hidden", text="hidden"))
    code = "Now.\nACTION 2:\n```python\nstop(send('x'))\n```"
    agent = plait.Agent(
        "codeact",
        model=plait.Scripted({"decompose": ["1. Send"], "act": [code]}),
        tools=[send],
        hooks=[hook],
        journal=journal,
    )
    run = agent.run("go")
    assert (run.status, run.answer) == ("answered", "hidden")


@pytest.mark.parametrize(
    ("point", "value", "message"),
    [
        ("before_tool", "text", "returned 'text' in before_tool"),
        ("before_tool", Call("flaky", {"key": "a"}), "returned a call of 'flaky'"),
        ("before_tool", lambda call: plait.Refuse, "returned the class Refuse in before_tool"),
        ("after_answer", False, "returned False in after_answer"),
        ("before_answer", lambda answer: plait.AskApproval, "returned the class AskApproval in before_answer"),
        ("before_tool", lambda call: plait.Refuse(3), "Refuse(3) is invalid"),  # type: ignore[arg-type]
        ("after_tool", lambda seen: plait.AskApproval(""), "AskApproval('') is invalid"),
        ("before_model", lambda request: sys.exit(3), "failed in before_model: SystemExit: 3"),
        ("after_model", 3, "returned 3 in after_model"),
        ("before_model", lambda request: structs.replace(request, phase="x"), "a request of phase 'x'"),
        ("after_answer", 3, "returned 3, which does not fit the output type"),
    ],
)
def test_a_value_that_cannot_replace_another_crashes_the_run_by_name(
    point: str, value: Any, message: str, journal: Path
) -> None:
    fields = {"output": plait.OutputType(dict[str, int])} if value == 3 and "answer" in point else {}
    run = make(journal, on(point, value), *([final('{"a": 1}')] if fields else []), **fields).run("go")
    assert run.status == "crashed" and message in (run.reason or "")
    assert f"On_{point}" in (run.reason or "")


def test_an_error_in_a_hook_names_the_hook_and_the_run_can_be_resumed(journal: Path) -> None:
    broken = [True]

    def fail(seen: Observation) -> None:
        if broken:
            raise KeyError("x")

    agent = make(journal, on("after_tool", fail))
    run = agent.run("go")
    assert run.reason == "The hook On_after_tool failed in after_tool: KeyError: 'x'."
    broken.clear()
    assert agent.resume(run).answer == "Over."
    assert SENT == ["one"]


async def test_a_changed_call_in_doubt_needs_approval_when_the_model_repeats_it(journal: Path) -> None:
    begun = asyncio.Event()

    @plait.tool
    async def pay(amount: int) -> str:
        """Pays."""
        SENT.append(str(amount))
        begun.set()
        await asyncio.sleep(30 if len(SENT) == 1 else 0)
        return "paid"

    hook = on("before_tool", lambda call: structs.replace(call, input={"amount": 5}))
    pays = action("pay", {"amount": 3})
    model = plait.Scripted([pays, pays, final("Over.")], by_turn=False)
    agent: plait.Agent[Any] = plait.Agent("react", model=model, tools=[pay], hooks=[hook], journal=journal)
    task = asyncio.create_task(agent.arun("go"))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    run = await agent.aresume("last")
    assert (run.status, SENT) == ("waiting", ["5"])
    assert "whether it took effect is not known" in (run.reason or "")


# -- refusing


def test_a_refused_call_is_not_made_and_the_model_reads_why(journal: Path) -> None:
    run = make(journal, on("before_tool", plait.Refuse("not on Sundays"))).run("go")
    assert (run.answer, SENT) == ("Over.", [])
    assert "The call is refused: not on Sundays" in run.timeline.model_calls[-1].request.decode()


def test_a_withheld_result_stays_in_the_journal_and_is_not_shown_to_the_model(journal: Path) -> None:
    run = make(journal, on("after_tool", plait.Refuse("private"))).run("go")
    assert [seen.text for _, seen in run.timeline.results] == ["sent one to ada@example.com"]
    last = run.timeline.model_calls[-1].request.decode()
    assert "is withheld. Private." in last and "ada@" not in last


@pytest.mark.parametrize("point", ["before_model", "after_model", "after_answer"])
def test_a_refusal_without_a_second_try_ends_the_run_as_failed(point: str, journal: Path) -> None:
    agent = make(journal, on(point, plait.Refuse("too late")), final("Over."))
    run = agent.run("go")
    assert (run.status, getattr(run.outcome, "kind", "")) == ("failed", "refused")
    assert "oo late" in (run.reason or "")
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome


@pytest.mark.parametrize("loop", LOOPS)
def test_after_a_refused_answer_each_loop_answers_again(loop: str, journal: Path) -> None:
    answers = {
        "react": {"act": [final("first"), final("second")]},
        "json": {
            "act": [json.dumps({"thought": "", "tool": "final_answer", "tool_input": x}) for x in ("first", "second")]
        },
        "rewoo": {"plan": ["Plan: x\n#E1 = LLM[say]"], "work": ["x"], "solve": ["first", "second"]},
        "compiler": {"plan": ['1. flaky("a")\n2. join()'] * 2, "join": ["Finish: first", "Finish: second"]},
        "phased": {"reason": ["Nothing."] * 2, "react": ["[]"] * 2, "reply": ["first", "second"]},
        "codeact": {
            "decompose": ["1. Say"],
            "act": ["ACTION 2:\n```python\nstop('first')\n```", "ACTION 3:\n```python\nstop('second')\n```"],
        },
        "tool_calling": {"act": ["first", "second"]},
    }[loop]
    refused: list[Any] = []

    def decide(answer: Any) -> plait.Refuse | None:
        refused.append(answer)
        return plait.Refuse("say it in other words") if answer == "first" else None

    agent = plait.Agent(
        loop, model=plait.Scripted(answers), tools=[flaky], hooks=[on("before_answer", decide)], journal=journal
    )
    run = agent.run("go")
    assert (run.status, run.answer) == ("answered", "second"), run.reason
    assert refused == ["first", "second"]
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome


def test_a_model_whose_answers_are_all_refused_fails_after_the_tries_of_the_output(journal: Path) -> None:
    agent = make(journal, on("before_answer", plait.Refuse("say more")), *[final(str(i)) for i in range(9)])
    run = agent.run("go")
    assert (run.status, getattr(run.outcome, "kind", ""), run.steps) == ("failed", "output", 3)
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome


# -- asking


@pytest.mark.parametrize(
    "point", ["before_model", "after_model", "before_tool", "after_tool", "before_answer", "after_answer"]
)
def test_at_each_point_the_run_can_wait_for_the_user(point: str, journal: Path) -> None:
    agent = make(journal, on(point, plait.AskApproval("Is that all right?")))
    run = agent.run("go")
    questions = set()
    while run.status == "waiting":
        assert isinstance(run.outcome, Waiting) and "Is that all right?" in run.outcome.reason
        questions.add(run.outcome.question)
        run = agent.resume(run, "yes")
    assert (run.status, run.answer, SENT) == ("answered", "Over.", ["one"])
    assert len(questions) == (2 if "model" in point else 1)
    assert agent.using(hooks=[]).replay(run).outcome == run.outcome


@pytest.mark.parametrize(
    ("point", "status", "sent"),
    [
        ("before_model", "failed", []),
        ("before_tool", "answered", []),
        ("after_tool", "answered", ["one"]),
        ("after_answer", "failed", ["one"]),
    ],
)
def test_the_user_may_refuse_with_a_reason(point: str, status: str, sent: list[str], journal: Path) -> None:
    agent = make(journal, on(point, plait.AskApproval("Is that all right?")))
    run = agent.resume(agent.run("go"), "no, use the other one")
    assert (run.status, SENT) == (status, sent)
    shown = run.timeline.model_calls[-1].request.decode() if status == "answered" else run.reason or ""
    assert "no, use the other one" in shown


def test_a_hook_asks_before_the_policy_does_and_each_has_its_own_answer(journal: Path) -> None:
    agent = make(journal, on("before_tool", plait.AskApproval("It costs 3 USD.")), approve="effects")
    run = agent.run("go")
    assert run.reason == 'May \'send\' be called with {"text":"one"}? It costs 3 USD.'
    run = agent.resume(run, 'edit {"text": "two"}')
    assert run.reason == 'May \'send\' be called with {"text":"two"}?' and SENT == []
    assert agent.resume(run, "yes").answer == "Over."
    assert SENT == ["two"]


# -- recorded


@pytest.mark.parametrize("loop", some_of(LOOPS))
def test_a_run_with_hooks_killed_at_each_kind_of_point_repeats_no_effect(loop: str, tmp_path: Path) -> None:
    whole = run_script(tmp_path / "whole", loop, 0, "hooks")
    assert (whole["status"], whole["answer"]) == ("answered", ANSWER)
    kinds = sorted({kind for kind in whole["points"] if "hook" in kind or "send" in kind})
    assert len(kinds) == 8
    if loop == "codeact":  # it starts a sandbox each time
        kinds = ["after send", "after_tool hook"]
    for kind in kinds:
        found = kill_and_resume(tmp_path / kind, loop, kind, hooks=True)
        assert (found.wrong, found.kills, found.repeated, found.lost) == ("", 1, 0, 0), kind


def test_a_resume_without_the_hooks_or_output_checks_of_the_run_is_refused(journal: Path) -> None:
    agent = make(journal, on("before_tool", plait.AskApproval("Really?")), output=plait.OutputType(str, checks=[_fine]))
    run = agent.run("go")
    with pytest.raises(ConfigError, match=r"started with the hooks On_before_tool, and this agent has no hooks"):
        agent.using(hooks=[]).resume(run, "yes")
    with pytest.raises(ConfigError, match=r"started with the output checks _fine, and this agent has no output checks"):
        agent.using(output=str).resume(run, "yes")
    assert agent.resume(run, "yes").answer == "Over."


def _fine(answer: str) -> None:
    """Accepts every answer."""


def test_the_command_line_refuses_to_resume_or_fork_a_run_with_hooks_of_python(shell: Shell) -> None:
    agent = make(shell.folder / "journal.db", on("before_tool", plait.AskApproval("Really?")), tools=["calculator"])
    agent.using(model=plait.Scripted([action("calculator", "1+1"), final("2")])).run("go")
    refused = shell("resume", "last", "--answer", "yes", "--question", question(shell)[1])
    forked = shell("fork", "last", "--at", "1")
    for ended in (refused, forked):
        assert ended.code != 0
        assert "has hooks that were given in Python: On_before_tool" in ended.err
        assert "agent.resume(" in ended.err


def test_hooks_given_as_words_are_loaded_again_to_resume_a_run(shell: Shell) -> None:
    words = ("--hook", "hosts:example.com", "--hook", "retry:2", "--hook", "redact:email")
    script = shell.script([action("calculator", "1+1"), final("2")])
    waiting = shell(
        *("run", "mail ada@example.com", "--model", script, "--tools", "calculator", "--approve", "always"), *words
    )
    assert waiting.code == 5, waiting.err
    assert "mail [email 1]" in shell("show", "last", "--wire").out
    ended = shell("resume", "last", "--answer", "yes", "--question", question(shell)[1])
    assert (ended.code, ended.out) == (0, "2\n"), ended.err


def test_hooks_of_a_run_also_decide_about_its_child_runs_but_not_about_their_answers(journal: Path) -> None:
    seen = Seen()
    child = make(journal, [], hooks=[])
    parent = plait.Agent(
        "react",
        model=plait.Scripted([action("helper", "go"), final("done")]),
        tools=[child.as_tool("helper")],
        hooks=[_OnlyCalls(seen)],
        journal=journal,
    )
    assert parent.run("go").answer == "done"
    assert SENT == ["one!"]
    assert [each for each in seen.points if "answer" in each] == ["before_answer done"]


class _OnlyCalls(plait.Hook):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def before_tool(self, context: plait.Context[Any], call: Call) -> Call | None:
        return structs.replace(call, input={"text": f"{call.input['text']}!"}) if call.tool == "send" else None

    def before_answer(self, context: plait.Context[Any], answer: Any) -> None:
        self._seen.before_answer(context, answer)


def test_questions_that_tools_ask_models_pass_the_hooks(journal: Path) -> None:
    @plait.tool
    def consult(ctx: plait.Context[None]) -> str:
        """Asks a model."""
        return ctx.ask_model("the secret is 7")

    def hide(request: Think) -> Think:
        messages = [
            structs.replace(each, content=each.content.replace("secret", "(removed)")) for each in request.messages
        ]
        return structs.replace(request, messages=tuple(messages))

    model = plait.Scripted([action("consult"), "I see.", final("Over.")])
    agent = plait.Agent("react", model=model, tools=[consult], hooks=[on("before_model", hide)], journal=journal)
    run = agent.run("go")
    assert run.answer == "Over."
    asked = [call.request.decode() for call in run.timeline.model_calls if call.i >= 0]
    assert len(asked) == 1 and "(removed) is 7" in asked[0]


# -- wrong hooks


@pytest.mark.parametrize("wait", [plait.Refuse("no"), "1", -1, float("nan"), True])
def test_a_pause_before_a_repeated_call_must_be_a_number_of_seconds(wait: Any, journal: Path) -> None:
    hook = on("on_tool_error", lambda attempt: wait)
    run = make(journal, hook, action("flaky", {"key": "a"}), final("Over.")).run("go")
    assert run.status == "crashed" and "The hook On_on_tool_error returned" in (run.reason or "")


def test_a_misspelled_method_of_a_hook_is_reported_when_its_class_is_made() -> None:
    with pytest.raises(ConfigError, match=r"'before_tools', which nothing calls. Did you mean before_tool\?"):
        type("Misspelled", (plait.Hook,), {"before_tools": lambda self, context, call: None})


def test_only_a_call_can_be_edited(journal: Path) -> None:
    agent = make(journal, on("after_answer", plait.AskApproval("Is that right?")))
    run = agent.run("go")
    with pytest.raises(plait.PlaitError, match="Only a tool call can be edited"):
        agent.resume(run, 'edit "Better."')
    assert agent.resume(run, "Yes.").answer == "Over."


def test_a_failing_function_that_answers_for_the_user_is_named(journal: Path) -> None:
    agent = make(journal, on("after_answer", plait.AskApproval("Is that right?")))
    run = agent.run("go", on_wait=lambda waiting: {}["x"])
    assert run.reason == "The function on_wait= failed: KeyError: 'x'."
    assert agent.resume(run).status == "waiting"


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        (Seen, "is invalid"),
        ([Seen], "The hook Seen is a class"),
        ([print], "is not a hook"),
        ([Seen(), Seen()], "Two hooks are named 'Seen'"),
        ("redact", "is invalid"),
        ([type("Unnamed", (plait.Hook,), {"name": ""})()], "The name of the hook Unnamed is ''"),
    ],
)
def test_wrong_hooks_are_refused_when_the_agent_is_made(hooks: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plait.Agent("react", model=plait.Scripted([]), hooks=hooks)


# -- the hooks that ship


def test_retry_repeats_a_failed_call_of_a_read_only_tool_with_pauses(journal: Path) -> None:
    retry = plait.hooks.RetryTools(3, wait=0.001)
    run = make(journal, retry, action("flaky", {"key": "a"}), final("Over.")).run("go")
    assert [seen.text for _, seen in run.timeline.results] == ["value of a"]
    notes = [each.text for each in run.events if isinstance(each, ev.Noted) and each.kind == "retry"]
    assert len(notes) == 2 and "RuntimeError: busy Calling it again in 0.0 s" in notes[0]


def test_retry_never_repeats_a_call_with_effects(journal: Path) -> None:
    @plait.tool
    def pay(amount: int) -> str:
        """Pays."""
        FAILS.append(amount)
        raise RuntimeError("the line broke")

    retry = plait.hooks.RetryTools(3, wait=0)
    make(journal, retry, action("pay", {"amount": 3}), final("Over."), tools=[pay]).run("go")
    assert FAILS == [3]


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("https://example.com/a", True),
        ("see http://EXAMPLE.com.", True),
        ("https://api.example.org/x?y=1", True),
        ("https://example.org", False),  # *.example.org: only names below
        ("https://example.com.evil.net/", False),
        ("https://example.com@evil.net/", False),
        ("https://evil.net/?https://example.com", False),
        ("//evil.net/x", False),
        (r"https:\\evil.net", False),
        (r"https://example.com\@evil.net", False),
        ("http:evil.net/x", False),
        ("www.evil.net", False),
        ("www.example.org", True),
        ("eve@evil.net", False),
        *[(f"eve{each}", False) for each in ("!@evil.net", "'@evil.net", "=@evil.net", "{@evil.net", "@[203.0.113.9]")],
        *[(f"eve{each}", False) for each in ("@evil\u3002net", "\uff20evil.net", "@ev\u00adil.net", "(a)@evil.net")],
        *[(each, False) for each in ('"eve"@evil.net', " eve @ evil.net", "a@example.com@evil.net", "eve@[IPv6:::2]")],
        *[
            (each, True)
            for each in ("ada@example.com", "\u201cada!@example.com\u201d", "<ada@example.com>,", "@a.b\ndef f")
        ],
        ("no address: main.py, 3.14, a/b", True),
    ],
)
def test_only_addresses_on_allowed_hosts_reach_a_tool(address: str, allowed: bool, journal: Path) -> None:
    hook = plait.hooks.AllowHosts("example.com", "*.example.org")
    make(journal, hook, action("send", {"text": address}), final("Over.")).run("go")
    assert ([address] if allowed else []) == SENT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail ada@example.com and bob@x.org, not ada@example.com", "mail [email 1] and [email 2], not [email 1]"),
        ("pay with 4111 1111 1111 1111 now", "pay with [card 1] now"),
        ("order 4111 1111 1111 1112", "order 4111 1111 1111 1112"),  # no card: its check digit is wrong
        ("to DE89 3704 0044 0532 0130 00.", "to [iban 1]."),
        ("to GB82 WEST 1234 5698 7654 33.", "to GB82 WEST 1234 5698 7654 33."),
        ("call +49 30 1234567 today", "call [phone 1] today"),
        ("from 192.168.1.20 to 300.1.1.1", "from [ip 1] to 300.1.1.1"),
        (
            "522250 - 348085 = 174165, 1.892 × 10^27, version 1.2.3",
            "522250 - 348085 = 174165, 1.892 × 10^27, version 1.2.3",
        ),
    ],
)
def test_personal_data_is_replaced_in_requests(text: str, expected: str, journal: Path) -> None:
    run = make(journal, plait.hooks.RedactPersonalData(), final("Over.")).run(text)
    assert json.loads(run.timeline.model_calls[0].request)["messages"][-1]["content"].endswith(expected)


def test_a_value_has_the_same_placeholder_in_all_requests_of_a_run(journal: Path) -> None:
    run = make(journal, plait.hooks.RedactPersonalData(patterns={"customer": r"C-\d{4}"})).run("ask C-1234, x@y.org")
    first, second = (json.loads(call.request)["messages"] for call in run.timeline.model_calls)
    assert second[: len(first)] == first
    assert "[customer 1], [email 1]" in first[-1]["content"]
    assert "[email 2]" in second[-1]["content"]


def test_a_value_keeps_its_placeholder_when_a_request_leaves_out_what_came_before() -> None:
    """As after a compaction, or in another phase."""
    hook, context = plait.hooks.RedactPersonalData(), plait.Context(None, run_id="one")
    first = hook.before_model(context, Think("act", prompt="ada@x.org, bob@x.org"))
    later = hook.before_model(context, Think("act", prompt="bob@x.org, cyd@x.org"))
    other = hook.before_model(plait.Context(None, run_id="two"), Think("act", prompt="bob@x.org"))
    shown = [each.prompt for each in (first, later, other) if each is not None]
    assert shown == ["[email 1], [email 2]", "[email 2], [email 3]", "[email 1]"]


def test_personal_data_is_replaced_wherever_a_request_has_text() -> None:
    call = Call("send", {"to ada@x.org": [{"bob@x.org": 1}]})
    request = Think("act", (Message("assistant", "", (call,)),), prefill="Dear ada@x.org")
    sent = plait.hooks.RedactPersonalData().before_model(plait.Context(None), request)
    assert sent is not None and "@" not in repr(sent)
    assert sent.messages[0].calls[0].input == {"to [email 1]": [{"[email 2]": 1}]}
    assert sent.prefill == "Dear [email 1]"


async def test_a_tool_is_called_at_most_so_often_per_minute(journal: Path) -> None:
    now = [0.0]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    hook = plait.hooks.LimitToolRate({"send": 2})
    limiter = hook._limiters["send"]
    limiter._clock, limiter._sleep = lambda: now[0], sleep
    calls = [action("send", {"text": str(i)}) for i in range(3)]
    await make(journal, hook, *calls, final("Over.")).arun("go")
    assert (SENT, waits) == (["0", "1", "2"], [60.0])


@pytest.mark.parametrize(
    "word",
    [
        "redact",
        "redact:email,phone",
        "hosts:example.com,*.example.org",
        "rate:send=10,flaky=3",
        "retry",
        "retry:2,0.5,flaky",
    ],
)
def test_a_word_makes_a_hook_whose_name_makes_it_again(word: str) -> None:
    hook = plait.hooks.load_hook(word)
    assert plait.hooks.load_hook(hook.name).name == hook.name


@pytest.mark.parametrize(
    "word", ["redcat", "hosts", "rate", "retry:1,x", "hosts:a b", "rate:send", "rate:send=0", "retry:x", "redact:names"]
)
def test_a_word_that_makes_no_hook_is_refused(word: str) -> None:
    with pytest.raises(ConfigError):
        plait.hooks.load_hook(word)


def test_the_configuration_names_hooks(shell: Shell) -> None:
    (shell.folder / "plait.toml").write_text('[run]\nhooks = ["hosts:example.com"]\ntaint = "ask"\n')
    script = shell.script([action("calculator", "1+1"), final("2")])
    assert shell("run", "go", "--model", script, "--tools", "calculator").code == 0
    settings = Journal(shell.folder / "journal.db").run("last").head.settings
    assert (settings["hooks"], settings["taint"]) == (["hosts:example.com"], "ask")
