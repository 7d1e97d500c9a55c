"""Two runs side by side: the first thing that was decided otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait import Scripted
from plait.core import Reply, Usage
from plait.core.errors import RateLimited
from plait.journal.store import Journal
from plait.view.run_diff import ComparedRun, RunDifference, equal_steps, first_difference, load_compared
from window_support import action, answer, begin, react

FIRST = action("population", {"town": "Lyon"}, "I need both towns.")
SECOND = action("population", {"town": "Nice"}, "Now the other.")


def made(tmp_path: Path, replies: list[Any] | None = None, question: str = "How many?", **fields: Any) -> ComparedRun:
    journal = tmp_path / "j.db"
    run = begin(react(journal, replies, **fields), question)
    return load_compared(Journal.at(journal).run(run.id), run.trace)


def compared(a: ComparedRun, b: ComparedRun) -> tuple[str, int] | None:
    found = first_difference(a, b)
    return None if found is None else (found.what, found.step)


def test_the_same_decisions_are_the_same_whatever_they_took(tmp_path: Path) -> None:
    slow = [Reply(text, usage=Usage(9, 9), cost=1.0) for text in (FIRST, SECOND, answer("870335"))]
    a, b = made(tmp_path), made(tmp_path, slow)
    assert first_difference(a, b) is None
    assert equal_steps(a, b) == [1, 2, 3]


def test_another_thought_another_call_another_end(tmp_path: Path) -> None:
    a = made(tmp_path, [FIRST, SECOND, answer("870335")])
    thought = made(tmp_path, [FIRST, SECOND.replace("Now", "Then"), answer("870335")])
    found = first_difference(a, thought)
    assert found is not None and (found.what, found.step) == ("what the model said", 2)
    assert found.a[found.at :].startswith("Now") and found.b[found.at :].startswith("Then")
    assert equal_steps(a, thought) == [1]
    assert compared(a, made(tmp_path, [FIRST, SECOND, answer("0")])) == ("what the model said", 3)
    shorter = first_difference(a, made(tmp_path, [FIRST, answer("870335")]))
    assert shorter is not None and shorter.step == 2


def test_of_long_texts_a_piece_is_told_that_begins_with_a_whole_word(tmp_path: Path) -> None:
    said = " ".join(f"word{n:02}" for n in range(60))
    a, b = (made(tmp_path, [answer(f"{said} {each} {said}")]) for each in ("here", "there"))
    found = first_difference(a, b)
    assert found is not None
    for piece, word in ((found.a, "here"), (found.b, "there")):
        assert piece.startswith("…word") and piece.endswith("…")
        assert piece[found.at :].startswith(f"{word} word00")
    assert len(found.a) < 260


def test_settings_come_first(tmp_path: Path) -> None:
    a = made(tmp_path)
    assert compared(a, made(tmp_path, question="How few?")) == ("the question", 0)
    assert compared(a, made(tmp_path, model=Scripted([answer("1")], name="other"))) == ("the models", 0)


def test_a_request_that_differs_is_found_where_all_replies_are_alike(tmp_path: Path) -> None:
    system = "Another system prompt."
    assert compared(made(tmp_path), made(tmp_path, system=system)) == ("the request", 1)


def test_a_step_that_only_one_has_names_the_item_of_that_one(tmp_path: Path) -> None:
    a, b = made(tmp_path, [FIRST, SECOND, answer("1")]), made(tmp_path, [FIRST, "nonsense", SECOND, answer("1")])
    found = first_difference(a, b)
    assert isinstance(found, RunDifference) and found.step == 2 and found.items[0] == found.items[1] == "m2"


def test_an_attempt_that_failed_is_no_decision(tmp_path: Path) -> None:
    busy = RateLimited("busy", after=0.01)
    a = made(tmp_path)
    for script in ([busy, FIRST, SECOND, answer("870335")], [FIRST, SECOND, busy, answer("870335")]):
        again = made(tmp_path, script)
        assert any(len(item.get("wire", ())) == 2 for item in again.timeline.items.values())
        assert first_difference(a, again) is None and first_difference(again, a) is None
        assert equal_steps(a, again) == [1, 2, 3]
