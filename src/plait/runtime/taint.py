"""Follows content from outside through a run, and says which calls need approval because of it.

Strangers may have written such content: results of tools marked `open_world`, answers of child runs that read them,
earlier turns that did, and descriptions of tools marked `foreign`. It may hold instructions to the model. With
`taint="ask"`, every later call with effects needs approval, unless a plan fixed its tool and its arguments before.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from plait.core import Call, Observation, ToolSpec

Taint: TypeAlias = Literal["off", "ask"]
"""What Plait does about a call with effects after content from outside is in the context."""

CONVERSATION = "earlier turns of this conversation"
EVIDENCE = "the evidence of its plan"


class OutsideContent:
    """What a run's context holds from outside. `sources` says where it comes from, at most once for each tool.

    `given` is what the context holds from the start; then no plan was made before it.
    """

    def __init__(self, policy: Taint, given: tuple[str, ...] = ()) -> None:
        self._policy, self._given = policy, given
        self.sources = list(given)

    @property
    def asks(self) -> bool:
        """Return whether calls with effects need approval as soon as content from outside is there."""
        return self._policy == "ask"

    def add(self, call: Call, observation: Observation) -> str:
        """Take note of a result. Returns a remark for the journal if the context had nothing from outside; else ""."""
        source = f"the result of '{call.tool}'"
        if not observation.outside or source in self.sources:
            return ""
        self.sources.append(source)
        if len(self.sources) > 1 or not self.asks:
            return ""
        return f"{source[:1].upper()}{source[1:]} comes from outside. From here, calls with effects need approval."

    def needs_approval(self, spec: ToolSpec, fixed: bool) -> bool:
        """Return whether a call needs approval. `fixed`: the run's first plan has this very call, with its input."""
        return self.asks and bool(self.sources) and spec.has_effects and not (fixed and not self._given)

    def describe(self) -> str:
        """Return the end of the question to the user about a call."""
        return (
            f" The run has read content from outside ({', '.join(self.sources)}), which may have asked for this call."
        )
