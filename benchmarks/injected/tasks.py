"""The tasks by their id.

The tasks of the split `before` were written before Plait had a defence. Tune a defence on them only. `SURFACES` come by
other parts of Plait than a user's own tools.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from injected.office import InjectedTask


def _read(split: str) -> tuple[InjectedTask, ...]:
    text = Path(__file__).with_name(f"{split}.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[InjectedTask, ...])


SPLITS = {split: _read(split) for split in ("before", "after")}
SURFACES = _read("surfaces")
TASKS = tuple(task for tasks in SPLITS.values() for task in tasks)


def find_task(id: str) -> InjectedTask:
    """Find an injected task by its id. Raises `StopIteration`."""
    return next(task for task in TASKS if task.id == id)
