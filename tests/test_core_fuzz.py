"""Random runs of the core keep their promises, and a rule that is undone breaks one. More seeds: `make campaign`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conftest import some_of
from core_fuzz import find_failures
from core_mutations import MUTATIONS, find_broken_promise

SEEDS = range(60)


def test_random_runs_keep_their_promises() -> None:
    assert find_failures(SEEDS, most=3) == []


@pytest.mark.parametrize(("undo", "hint"), some_of(MUTATIONS, 2), ids=lambda each: getattr(each, "__name__", ""))
def test_a_rule_that_is_undone_breaks_a_promise(undo: Callable[[pytest.MonkeyPatch], None], hint: int) -> None:
    assert find_broken_promise(undo, hint, 400), "no seed shows it"
