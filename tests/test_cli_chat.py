"""`plait chat`: a turn a line, in a session that is kept."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from typing import Any

import pytest

from chat_support import plait as plait
from chat_support import runs, script
from chat_support import terminals as terminals
from cli_support import Shell, action, final, interrupt, turn, until

# --- from a pipe


def test_each_line_is_a_turn_and_only_replies_are_on_stdout(plait: Shell) -> None:
    model = script(plait, final("Hello Mira."), action("hostile"), final("You are Mira."))
    done = plait("chat", "--model", model, "--tools", "tools.py", given="I am Mira.\n\n  \nWho am I?")
    assert (done.code, done.out) == (0, "Hello Mira.\nYou are Mira.\n")
    found = re.fullmatch(r"To continue, run: plait chat --session (chat-[a-z0-9]{6})\n", done.err)
    assert found, done.err
    assert [(run["question"], run["session"]) for run in runs(plait)] == [
        ("I am Mira.", found[1]),
        ("Who am I?", found[1]),
    ]


def test_a_session_is_gone_on_with_by_its_name_also_by_plait_run(plait: Shell) -> None:
    first = plait("chat", "--session", "our trip", "--model", script(plait, final("Hello Mira.")), given="I am Mira.\n")
    assert (first.code, first.err) == (0, "")
    plait("chat", "--model", script(plait, final("Nobody.")), given="Who am I?\n")
    plait("run", "Who am I?", "--session", "our trip", "--model", script(plait, final("Mira.")))
    request = json.loads(plait("show", "last", "--wire", "--json").out.splitlines()[0])
    assert "The user: I am Mira.\\nYou: Hello Mira.\\n\\nQuestion: Who am I?" in request["body"]
    assert "Nobody" not in request["body"]
    assert [run["question"] for run in runs(plait, "--session", "our trip")] == ["I am Mira.", "Who am I?"]
    assert "· session our trip\n" in plait("show", "last").out
    assert plait("runs", "--session", "none").err.startswith("No runs of the session none in ")
    assert plait("replay", "last").code == 0


def test_watch_shows_the_strands_on_stderr(plait: Shell) -> None:
    model = script(plait, action("hostile", None, "I look."), final("ok"))
    done = plait("chat", "--session", "s", "--watch", "--model", model, "--tools", "tools.py", given="q\n")
    assert (done.code, done.out) == (0, "ok\n")
    for part in ("Thought: I look.\n", "Action: hostile\n", "Observation: ", "answered · 2 steps"):
        assert part in done.err


def test_what_keeps_a_turn_from_its_reply_is_told_and_the_chat_goes_on(plait: Shell) -> None:
    model = script(plait, "?", "?", "?", {"error": "BadRequest", "message": "too odd"}, final("fine"))
    done = plait("chat", "--session", "s", "--model", model, given="one\ntwo\nthree\n")
    assert (done.code, done.out) == (1, "fine\n")
    assert re.fullmatch(
        r"failed: 3 replies in a row .*\ncrashed: too odd.*\nTo continue after fixing this, run: plait resume .*\n",
        done.err,
        re.S,
    )
    assert [run["status"] for run in runs(plait)] == ["failed", "crashed", "answered"]


def test_a_question_to_the_user_waits_where_nobody_sits_and_the_next_message_is_refused(plait: Shell) -> None:
    model = script(plait, turn("ask_user", "Which city?"), turn("final_answer", "ok"))
    words = ("--session", "s", "--loop", "json", "--model", model)
    done = plait("chat", *words, given="one\ntwo\n")
    assert (done.code, done.out) == (2, "")
    assert "waiting: Which city?" in done.err and "Answer with: plait resume " in done.err
    refused = plait("run", "three", *words)
    for said in (done.err, refused.err):
        assert "In session 's' run" in said and "Which city? Answer it first: plait resume 2" in said, said
    assert refused.code == 2
    command = re.search(r"Answer it first: (plait resume .+?) ANSWER", refused.err)
    assert command is not None
    assert "(json, resumed)" in plait(*command[1].split()[1:], "Lyon").err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--session", ""], "'' can't be a session's name"),
        (["--model", "opnai:x"], "Did you mean openai"),
        (["--loop", "reakt"], "Did you mean react"),
        (["--no-journal"], "No such option '--no-journal'"),
        (["--embedder", "nonesuch"], "'nonesuch' is not an embedder"),
    ],
)
def test_wrong_usage_ends_the_chat_with_2(plait: Shell, args: list[str], said: str) -> None:
    done = plait("chat", *args, given="one\ntwo\n")
    assert (done.code, done.out) == (2, "")
    assert done.err.count(said) == 1
    assert not (plait.folder / "journal.db").exists()


def test_no_line_is_no_turn(plait: Shell) -> None:
    done = plait("chat", "--model", script(plait), given="\n\n")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_the_model_chooses_the_loop_unless_something_says_otherwise(plait: Shell) -> None:
    del plait.env["PLAIT_LOOP"]
    plait("chat", "--model", script(plait, "Hello to you."), given="Hello\n")
    assert [run["loop"] for run in runs(plait)] == ["react"]
    (plait.folder / "plait.toml").write_text('[run]\nloop = "json"\n')
    plait("chat", "--model", script(plait, turn("final_answer", "ok")), given="Hello\n")
    assert [run["loop"] for run in runs(plait)] == ["react", "json"]


# --- signals


def test_ctrl_c_cancels_the_turn_and_the_chat_goes_on(plait: Shell) -> None:
    model = script(plait, action("hang", 30), final("still here"))
    given = ("chat", "--session", "s", "--model", model, "--tools", "tools.py")
    process = plait.start(*given, stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("one\n")
    process.stdin.flush()
    until(plait.folder / "begun.txt")
    process.send_signal(signal.SIGINT)
    process.stdin.write("two\n")
    process.stdin.close()
    assert process.stdout.read() == "still here\n"
    assert process.stderr is not None and "cancelled" in process.stderr.read()
    assert process.wait(30) == 0
    process.stdout.close()
    process.stderr.close()
    assert [run["status"] for run in runs(plait)] == ["cancelled", "answered"]


def test_sigterm_ends_the_chat_with_its_turn_on_record(plait: Shell) -> None:
    model = script(plait, action("hang", 30), final("never"))
    process = plait.start("chat", "--session", "s", "--model", model, "--tools", "tools.py", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("one\ntwo\n")
    process.stdin.flush()
    until(plait.folder / "begun.txt")
    done = interrupt(process, signal.SIGTERM)
    assert (done.code, done.out) == (130, "")
    assert [run["status"] for run in runs(plait)] == ["cancelled"]


# --- at a terminal


def test_at_a_terminal_lines_are_asked_for_and_ctrl_d_ends(plait: Shell, terminals: Any) -> None:
    at = terminals("--model", script(plait, final("Hello Mira."), final("Mira.")))
    at.until("Session chat-", "Ctrl-D ends the chat.", "> ")
    at.type("I am Mira.\n")
    at.until("Hello Mira.", "> ")
    at.type("\x1b[A\n")  # the line before, called up again
    at.until("I am Mira.", "Mira.", "> ")
    at.type("\x04")
    at.until("To continue, run: plait chat --session chat-")
    assert at.close() == 0
    assert [run["question"] for run in runs(plait)] == ["I am Mira."] * 2
    name = runs(plait)[0]["session"]
    again = terminals("--session", name, "--model", script(plait, final("And again.")))
    again.until(f"Session {name}, 2 turns so far.", "> ")
    again.type("\x1b[A\n")  # what was asked in the session before
    again.until("And again.", "> ")
    again.type("\x04")
    assert again.close() == 0
    assert [run["question"] for run in runs(plait)] == ["I am Mira."] * 3


def test_at_a_terminal_ctrl_c_drops_a_line_and_cancels_a_turn(plait: Shell, terminals: Any) -> None:
    at = terminals("--model", script(plait, action("hang", 30), final("still here")), "--tools", "tools.py")
    at.until("> ")
    at.type("half a li")
    at.until("half a li")
    for _ in range(60):
        # Again if need be: one that comes while readline still draws is heeded at the next key only.
        at.process.send_signal(signal.SIGINT)
        with contextlib.suppress(AssertionError):
            at.until("> ", seconds=1)
            break
    at.type("one\n")
    until(plait.folder / "begun.txt")
    at.process.send_signal(signal.SIGINT)
    at.until("cancelled", "> ")
    at.type("two\n")
    at.until("still here", "> ")
    at.type("\x04")
    assert at.close() == 0
    assert [(run["question"], run["status"]) for run in runs(plait)] == [("one", "cancelled"), ("two", "answered")]


def test_at_a_terminal_the_person_is_asked_for_leave_and_for_answers(plait: Shell, terminals: Any) -> None:
    replies = [turn("send", "hello"), turn("ask_user", "To whom?"), turn("final_answer", "Sent to Mira.")]
    model = script(plait, *replies)
    at = terminals("--loop", "json", "--model", model, "--tools", "tools.py", "--approve", "effects")
    at.until("> ")
    at.type("Say hello.\n")
    at.until("May 'send' be called", "the run waits)")
    at.type("yes\n")
    at.until("To whom?", "the run waits)")
    at.type("Mira\n")
    at.until("Sent to Mira.", "> ")
    at.type("\x04")
    assert at.close() == 0
    assert (plait.folder / "sent.txt").read_text() == "hello\n"
