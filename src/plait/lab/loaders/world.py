"""The tasks of the world: the six, A to F, and thirty variations of them."""

from __future__ import annotations

from plait.core.errors import UsageError
from plait.lab.base import Suite, Task

SIX = "world:1,now=2024-03-12"
"""The world of the six tasks, which are written for any: fixed, so that they are the same on every day."""


def load(argument: str) -> Suite:
    """`world`, `world:six` or `world:variations`. Each task has a world of its own; what was sent in it is graded."""
    from plait.world import TASKS, world_of
    from plait.world.variations import VARIATIONS

    parts = {"": (*TASKS, *VARIATIONS), "six": TASKS, "variations": VARIATIONS}
    if (part := argument.strip()) not in parts:
        raise UsageError(f"The suite world has no part {part!r}.", hint="Write world, world:six or world:variations.")
    tasks = []
    for task in parts[part]:
        word = SIX if task in TASKS else task.world
        tasks.append(
            Task(
                id=task.name,
                question=task.question,
                grader=f"world:{task.name}",
                tools=(word,),
                split="six" if task in TASKS else "variations",
                now=world_of(word).now.timestamp(),
                about={"task": task.name[0], "kind": task.kind},
            )
        )
    return Suite(
        word=f"world{':' * bool(part)}{part}",
        about="errands in an offline world, graded by what was sent",
        tasks=tuple(tasks),
        grader="world",
    )
