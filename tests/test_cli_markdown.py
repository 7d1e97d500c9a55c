"""The answer on a terminal: drawn as Markdown while it is written, once, and without anything that acts on it."""

from __future__ import annotations

import io
import json
import re
import time
from typing import Any

import pytest

from cli_support import Shell
from conftest import for_each
from plait.cli.markdown import AnswerView, print_markdown
from plait.cli.run_output import SilentView
from plait.core import events as ev

_OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)|\r")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
TABLE = "# Cities\n\nSome **bold** text.\n\n| city | people |\n|---|---|\n| Lyon | 522250 |\n\n- one\n- two\n"
ATTACKS = [
    "red \x1b[31m and \x1b]0;title\x07 and \x9b2J",
    "&#27;[2J &#x1b;]0;t&#7; &#155;2J &#x202E;txt &#8203;",
    "[bank](https://evil.example) <https://evil.example/\x1b]8;;x\x07>",
    "![alt\x1b[2J](https://evil.example/\u202e.png)",
    "```\x1b[2J\nprint('\x1b[31m')\n&#27;\n```",
    "```python\n\x1b]52;c;aGk=\x07\n```\n\nend",
    "| a\x1b[2J | b |\n|---|---|\n| \x9b31m | &#27; |",
    "`\x1b[2J` *\u202e* \x08\x08\x08 \r hidden",
    "# \x1bc\n\n> \x1b7 quote\n\n1. \x1b8 item",
    "\x1b" * 50 + "[5n",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def plain(self) -> str:
        return _OURS.sub("", self.getvalue())


def stream(text: str, chunk: int, mark: Any = "answer") -> tuple[AnswerView, Terminal]:
    out = Terminal()
    view = AnswerView(SilentView(), out)
    for start in range(0, len(text), chunk):
        view(ev.Answer(1, text[start : start + chunk], 1))
    view(ev.Marked(1, 1, mark))
    view.close()
    return view, out


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


@for_each("chunk", [1, 5, 1000])
@for_each("attack", ATTACKS)
def test_nothing_in_an_answer_acts_on_the_terminal(attack: str, chunk: int) -> None:
    _, out = stream(f"It is:\n\n{attack}", chunk)
    whole = Terminal()
    print_markdown(attack, whole)
    for shown in (out.plain(), whole.plain()):
        assert not _FORBIDDEN.search(shown), repr(shown)
        assert "\x1b]8" not in shown and ("[bank]" not in attack or "evil.example" in shown), "a link shows its address"


@pytest.mark.parametrize("chunk", [1, 9, 1000])
def test_markdown_is_drawn_once(chunk: int) -> None:
    view, out = stream(TABLE, chunk)
    drawn = out.getvalue()
    assert view.has_answered
    assert "\x1b[1mbold\x1b[0m" in drawn and "────" in drawn and " • " in drawn
    # What was shown of an unfinished block is taken away again, so count what is drawn in bold.
    assert drawn.count("\x1b[1mbold\x1b[0m") == 1 and drawn.count("────") <= 3 and drawn.count(" • ") == 2


def test_a_block_is_drawn_when_the_next_one_begins() -> None:
    out = Terminal()
    view = AnswerView(SilentView(), out)
    view(ev.Text(1, "It is **so**.\n\nNext", 1))
    assert "\x1b[1mso\x1b[0m" in out.getvalue()
    view.close()


def test_text_that_was_a_thought_is_marked_and_json_is_left_to_the_end() -> None:
    view, out = stream("I look that up.", 4, "thought")
    assert not view.has_answered and "(not the answer)" in out.plain()
    view, out = stream('{"a": "*b*"}', 4)
    assert not view.has_answered and not out.plain()


def test_other_events_go_to_the_view_while_nothing_of_the_answer_is_in_the_way() -> None:
    out, seen = Terminal(), []

    class Seeing(SilentView):
        def __call__(self, event: Any) -> None:
            seen.append((type(event).__name__, out.getvalue().endswith("\x1b[2K")))

    view = AnswerView(Seeing(), out)
    view(ev.Text(1, "Half a", 1))
    view(ev.Noted(1, "progress", "x"))
    view.close()
    assert seen == [("Noted", True)]


def test_a_long_block_takes_linear_time() -> None:
    began = time.process_time()
    stream("```\n" + "x = 1\n" * 3_000 + "```\n", 60)
    assert time.process_time() - began < 4


def test_a_pipe_gets_the_answer_byte_for_byte(tmp_path: Any) -> None:
    shell = Shell(tmp_path)
    script = shell.script([f"Final Answer: {TABLE}end &#27; \u202e"])
    ran = shell("run", "q?", "--loop", "react", "--model", script)
    assert ran.out == f"{TABLE}end &#27; \u202e\n", json.dumps(ran.out)
