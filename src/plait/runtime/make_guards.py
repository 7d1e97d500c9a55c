"""Makes the guards of a run: those that its policies ask for, joined with those of the run above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.runtime.chain import join_guards
from plait.runtime.guard import Guard

if TYPE_CHECKING:
    from plait.runtime.engine import Engine


def make_guards(engine: Engine, *, session: str, is_child: bool) -> list[Guard]:
    """Return the guards of a run. A child run obeys its own and those of all runs above it; a run that a tool makes by
    itself obeys its own, and the limits of the run whose tool that is."""
    own: list[Guard] = []
    if engine.parent is None:
        return own
    above = engine.parent.chain.guards
    return join_guards(above if is_child else [guard for guard in above if guard.name == "limits"], own)
