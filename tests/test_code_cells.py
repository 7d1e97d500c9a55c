"""Code that models wrote, with the output that was recorded: each sandbox prints the same."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from conftest import data_file, examples
from plait.sandbox import SandboxTurn
from sandbox_support import backend

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))


@pytest.mark.parametrize(
    ("name", "many"), [("monty", min(examples(20_000) // 5, 1_300)), ("process", examples(6_000) // 4)]
)
async def test_a_sample_of_recorded_cells_is_reproduced(name: str, many: int) -> None:
    from code_cells import measure, replies

    found = replies(data_file("code-gsm8k", "responses.jsonl.gz"))
    assert len(found) == 2611
    backend(name)
    asked = found[:: len(found) // many][:many]
    good, why, _ = await measure(name, asked)
    assert (good, len(asked), why) == (many, many, Counter())


def test_a_cell_counts_only_with_its_own_output() -> None:
    from code_cells import same

    assert same("18\n", SandboxTurn(output="18\n"))
    assert not same("18\n", SandboxTurn(output="18.0\n"))
    assert not same("18\n", SandboxTurn(output=""))
