"""An offline world: replacements for the services of the toolkits, tasks in it, and their grades."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.lab.world.state import World, world_of
from plait.lab.world.tasks import TASKS, RunEvidence, WorldTask, task_of

if TYPE_CHECKING:
    from plait.tools import Tool

__all__ = ["TASKS", "RunEvidence", "World", "WorldTask", "task_of", "world", "world_of"]


def world(settings: str = "") -> tuple[Tool, ...]:
    """Makes the tools of a fresh offline world: weather, messages, prices; `world:7,now=2024-02-29,here=Lyon`. Use them
    for one run: what is sent through them is sent in one world."""
    return world_of(settings).tools
