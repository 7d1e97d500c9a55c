"""A person who approves a call sees every character of its input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from cli_support import action, final
from plait.core.text import escape_hidden

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
