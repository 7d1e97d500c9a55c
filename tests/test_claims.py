"""Answers that say that something was done: noted, refused or asked about where no call did it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from loop_scripts import LOOPS
from plait.core import ToolSpec
from plait.core import events as ev
from plait.runtime.claims import find_claims, list_unsupported

OFFICE = [
    ToolSpec("send_mail", "Send a mail."),
    ToolSpec("pay_invoice", "Pay an invoice."),
    ToolSpec("delete_document", "Delete a document."),
    ToolSpec("read_mail", "Read a mail that was sent.", read_only=True),
]


@pytest.mark.parametrize(
    ("answer", "tool"),
    [
        ("I have sent the mail to Bob.", "send_mail"),
        ("I've already paid it. Have a nice day!", "pay_invoice"),
        ("Your invoice has been paid.", "pay_invoice"),
        ("Ich habe die Mail an Bob gesendet.", "send_mail"),
        ("Das Dokument wurde gelöscht.", "delete_document"),
        ("J’ai envoyé le courriel.", "send_mail"),
        ("El documento ha sido borrado.", "delete_document"),
        ("Do you want more? I sent the mail.", "send_mail"),
    ],
)
def test_a_claim_needs_a_call_of_a_tool_that_does_it(answer: str, tool: str) -> None:
    (claim,) = find_claims(answer, OFFICE)
    assert claim.tools == (tool,)
    assert list_unsupported([claim], {each.name for each in OFFICE} - {tool}) == [claim.text]
    assert list_unsupported([claim], {tool}) == []
    assert find_claims(answer, [each for each in OFFICE if each.read_only]) == []


@pytest.mark.parametrize(
    "answer",
    [
        "I have not sent the mail.",
        "I couldn't send it.",
        "Should I say that I have sent it?",
        "Once I have sent it, you will hear from me.",
        'The mail says: "I have paid the invoice."',
        "```\nI have sent it.\n```",
        "> I have sent it.",
        "The letter was sent in 1912 and the bill has been paid by Ann.",
        "I would have sent it if the address were known.",
        "He paid 3 dollars and bought 2 pens.",
        "Ich habe die Mail nicht gesendet.",
        "Lyon has 522,250 people.",
        "„" * 100_000,
        "«" * 100_000,
    ],
)
def test_what_is_no_claim_is_not_flagged(answer: str) -> None:
    assert find_claims(answer, OFFICE) == []


def run_with(policy: Any, tmp_path: Path, *replies: Any, fails: bool = False, loop: str = "tool_calling") -> plait.Run:
    @plait.tool
    def send_mail(text: str) -> str:
        """Send a mail."""
        if fails:
            raise ValueError("no such address")
        return "sent"

    agent = plait.Agent(
        loop, model=plait.Scripted(replies), tools=[send_mail], claims=policy, journal=tmp_path / "j.db"
    )
    run = agent.run("Send it.")
    assert agent.replay(run).whole or run.status == "waiting"
    return run


CLAIM, CALL = {"answer": "I have sent the mail."}, {"calls": [{"name": "send_mail", "input": {"text": "hello"}}]}


@pytest.mark.parametrize("loop", sorted({*LOOPS} - {"rewoo", "compiler", "phased", "codeact"}))
def test_a_refused_claim_is_made_true(loop: str, tmp_path: Path) -> None:
    run = run_with("refuse", tmp_path, CLAIM, CALL, CLAIM, loop=loop)
    assert (run.answer, len(run.calls_of("send_mail"))) == ("I have sent the mail.", 1)
    objection = run.timeline.attempts[1][1].request.decode()
    assert "no call did it: I have sent. Make the call, or say what was not done." in objection


def test_a_call_that_failed_supports_no_claim(tmp_path: Path) -> None:
    run = run_with("refuse", tmp_path, CALL, CLAIM, {"answer": "The mail could not be sent."}, fails=True)
    assert run.answer == "The mail could not be sent."


def test_a_claim_is_noted_or_asked_about(tmp_path: Path) -> None:
    run = run_with("note", tmp_path, CLAIM)
    notes = [each.entry.text for each in run.timeline.moments if getattr(each.entry, "kind", "") == "claims"]
    assert (run.status, notes) == (
        "answered",
        ["The answer says that something was done, and no call did it: I have sent"],
    )
    run = run_with("ask", tmp_path, CLAIM)
    assert run.status == "waiting" and "no call did it: I have sent" in run.timeline.questions[0].text
    assert run_with("off", tmp_path, CLAIM).status == "answered"


@pytest.mark.parametrize(("policy", "shown"), [("note", ["I have sent the mail."]), ("refuse", ["It was not sent."])])
def test_a_refused_claim_is_not_shown_while_it_is_written(policy: Any, shown: list[str]) -> None:
    replies = [CLAIM, {"answer": "It was not sent."}]

    @plait.tool
    def send_mail(text: str) -> str:
        """Send a mail."""
        return "sent"

    agent = plait.Agent("tool_calling", model=plait.Scripted(replies), tools=[send_mail], claims=policy, journal=False)
    texts = [event.text for event in agent.stream("Send it.") if isinstance(event, ev.Text | ev.Answer)]
    assert list(dict.fromkeys(texts)) == shown
