"""A user who approves a call sees every character of its input, and nothing draws on the user's terminal."""

from __future__ import annotations

import json
import os
import pty
import re
from contextlib import suppress
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from cli_support import PLAIT, Shell, action, final
from conftest import for_each, some_of
from fork_server import start_forked
from plait.core.text import clean, clean_drawn, escape_hidden, show_hidden

HIDDEN = [
    "\u200b",
    "\u200d",
    "\u2060",
    "\ufeff",
    "\u00ad",
    "\u202e",
    "\u2066",
    "\u2028",
    "\U000e0041",
    "\u3164",
    "\x1b",
]


@given(st.text())
def test_the_escaped_json_is_the_same_json(text: str) -> None:
    assert json.loads(escape_hidden(json.dumps(text, ensure_ascii=False))) == text


def test_ordinary_text_of_any_script_stays() -> None:
    said = '"Zürich, 東京, मुंबई, تهران, 🙂"'
    assert escape_hidden(said) == said


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
def test_the_question_for_approval_shows_characters_without_a_width(hidden: str, journal: Path) -> None:
    @plait.tool
    def pay(account: str) -> str:
        "Pays."
        return "paid"

    model = plait.Scripted([action("pay", f"NL{hidden}88"), final("done")])
    run = plait.Agent("react", model=model, tools=[pay], approve="effects", journal=journal).run("Pay.")
    assert run.status == "waiting" and run.reason is not None
    assert hidden not in run.reason and json.dumps(hidden)[1:-1] in run.reason


def test_the_viewer_and_pages_show_every_hidden_character_by_its_number() -> None:
    assert show_hidden("a\u3164b\u034fc\ud800d\u202e") == "a[U+3164]b[U+034F]c[U+D800]d[U+202E]"
    assert (
        show_hidden("Zürich,\t東京\nمی\u200cخواهم 👩\u200d🚀 ❤\ufe0f")
        == "Zürich,\t東京\nمی\u200cخواهم 👩\u200d🚀 ❤\ufe0f"
    )
    script = resources.files("plait.view.page").joinpath("dom.js").read_text("utf-8")
    found = re.search(r"const HIDDEN = new RegExp\(\s*\[(.*?)\]\s*\.join", script, re.S)
    assert found is not None
    parts = [json.loads(line.strip().rstrip(",")) for line in found[1].split("\n") if line.strip().startswith('"')]
    pattern = re.sub(r"\\u\{(\w+)\}", lambda match: rf"\U{match[1]:0>8}", "|".join(parts)).replace("\\0-", "\\x00-")
    # All of the planes with hidden characters; of the others, which are alike, some, and their ends.
    alike = range(0x20000, 0x110000)
    others = {*some_of(alike, 64), *(code for code in alike if code % 0x10000 > 0xFFFD)}
    codes = [*range(0x20000), *range(0xE0000, 0xE2000), *sorted(others)]
    for text in (f"{before}{chr(code)}{after}" for code in codes for before, after in (("", ""), ("é", "é"))):
        assert (re.search(pattern, text) is not None) == (show_hidden(text) != text), ascii(text)


# -- everything that is printed

EVIL = (
    "\x1b]0;PWNED\x07\x1b[2J\x1b[1;1H\x1b[5A\x1bc\x9b31m\x90q\x9c\u202eevil\u202c\u2066x\u2069\r\x08\x7f\u200b\u200c\u200d"
    "\u2028line\u2029\u0085 \x1bP+q\x1b\\ \x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil\x07link\x1b]8;;\x07\u061c\u200e\u200f"
    "\u2060\u2063\u206a\ufeff\u00ad\u034f\u115f\u3164\uffa0\u180e\ufff9\U000e0041\U000e01ef"
)
SHOWN = "evilx"
"""What stays of it, among blanks and other words."""
UNSEEN = {
    *(each for each in EVIL if not each.isprintable() and each not in "\n \x1b\r"),
    *"\u034f\u115f\u3164\uffa0\U000e01ef",  # printable to Python, but without a width or ink
}
SEQUENCES = ("\x1b]", "\x1bP", "\x1bc", "\x1b[2J", "\x1b[1;1H", "\x1b[5A")


def bad_in(text: str) -> list[str]:
    return [ascii(each) for each in (*sorted(UNSEEN), *SEQUENCES) if each in text]


def test_characters_that_unicode_ignores_are_removed_and_a_selector_stays_behind_an_emoji() -> None:
    ignored = (0x115F, 0x180B, 0x180F, 0x3164, 0xFE00, 0xFE0F, 0xFFA0, 0x1BCA0, 0x1BCA3, 0x1D173, 0x1D17A, 0xE01EF)
    hidden = "".join(map(chr, ignored))
    assert clean(f"ada{hidden}x") == "adax"
    assert escape_hidden(json.dumps(f"a{hidden}", ensure_ascii=False)).isascii()
    heart = "\u2764\ufe0f\u200d\U0001f525 \xa9\ufe0e"
    assert (clean(heart), clean("\u2764\ufe0f\ufe0f\ufe01")) == (heart, "\u2764\ufe0f")


def test_clean_text_has_nothing_that_draws_or_hides() -> None:
    shown = clean(EVIL)
    assert bad_in(shown) == [] and "\x1b" not in shown and "\r" not in shown
    assert shown.split() == ["evilx", "line", "link"]


@given(st.lists(st.sampled_from([*EVIL, "\x1b[", "\x1b]", "é", "a", "🙂", "م"])).map("".join))
def test_no_order_of_signs_gets_through(text: str) -> None:
    for shown in (clean(text), clean_drawn(text)):
        hidden = [each for each in shown if each in UNSEEN and each not in "\u200c\u200d"]
        assert hidden == []
    assert "\x1b" not in clean(text)


@for_each("text", ["👩‍👩‍👧", "🏳️‍🌈", "❤️‍🔥", "می‌خواهم", "क्‍ष", "Zürich, 東京", "a\tb\nc", "👍🏽"])
def test_emoji_and_scripts_that_need_joiners_stay(text: str) -> None:
    assert clean(text) == text == clean_drawn(text)


@for_each("text", ["a\u200db", "a\u200d\u200d\u200cb", "\u200d", "é\u200d\u200dé", "é\u200d", "\u200cé"])
def test_joiners_that_join_nothing_are_removed(text: str) -> None:
    assert not {"\u200c", "\u200d"} & {*clean(text)}


def test_what_plait_draws_itself_stays() -> None:
    drawn = "\x1b[1;32mdone\x1b[0m\x1b[?25l\r\x1b[2K\x1b[1A\x1b[2K\x1b[?25h\n"
    assert clean_drawn(drawn) == drawn
    assert bad_in(clean_drawn(EVIL)) == []


TOOLS = f"""
import logging, warnings
import plait

EVIL = {EVIL!r}

@plait.tool(description="Looks. " + EVIL, read_only=True)
def look(key: str) -> str:
    warnings.warn("Odd: " + EVIL)
    logging.getLogger("mine").error("Odd: %s", EVIL)
    return EVIL

@plait.tool
def fail(key: str) -> str:
    "Fails."
    raise plait.ToolError(EVIL)
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Shell:
    """A folder with a model, tools and a plait.toml that write what nobody should see."""
    shell = Shell(tmp_path)
    (tmp_path / "evil.py").write_text(TOOLS)
    replies = [
        f"Thought: {EVIL}\nAction:\n```json\n{json.dumps({'action': tool, 'action_input': {'key': 'k' + EVIL}})}\n```"
        for tool in ("look", "fail", f"nope{EVIL}")
    ]
    shell.script([*replies, f"Thought: {EVIL}\nFinal Answer: answer {EVIL}"])
    shell.env["TERM"] = "xterm-256color"
    return shell


RUN = ("run", "q " + EVIL, "--tools", "evil.py", "--model", "scripted:script.json", "--loop", "react")
PRINTED = (
    RUN,
    (*RUN, "--approve", "always"),
    ("show", "last"),
    ("show", "last", "--wire"),
    ("show", "last", "--wire", "--pretty"),
    ("show", "last", "--json"),
    ("export", "last"),
    ("runs",),
    ("runs", "--json"),
    ("costs", "last"),
    ("tools", "list", "evil.py"),
    ("show", "no" + EVIL.replace("\x00", "")),
    ("run", "q", "--loop", "re" + EVIL),
    ("run", "q", "--od" + EVIL),
    ("run", "q", "--tools", EVIL + ".py"),
    ("od" + EVIL,),
    ("run", "q", "--config", EVIL + ".toml"),
)


def test_no_command_prints_it(hostile: Shell) -> None:
    """At a terminal, and also into a pipe, except the answer and the bodies, which a pipe gets as they are."""
    for words in PRINTED:
        drawn = at_a_terminal(hostile, *words)
        assert bad_in(drawn) == [], (words[:3], drawn)
        assert drawn.strip(), words[:3]


def at_a_terminal(shell: Shell, *words: str) -> str:
    """What a command draws on a terminal that is its stdin, stdout and stderr."""
    master, slave = pty.openpty()
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    process = start_forked([PLAIT, *words], cwd=shell.folder, env=shell.env, **streams)
    os.close(slave)
    drawn = b""
    with suppress(OSError):
        while part := os.read(master, 65536):
            drawn += part
            if part.rstrip().endswith(b"the run waits)"):
                os.write(master, b"\n")
    process.wait(60)
    os.close(master)
    return drawn.decode(errors="replace").replace("\r\n", "\n")
