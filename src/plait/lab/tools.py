"""The word `lab:...`: tools that belong to a task, found again from what the record says of a run."""

from __future__ import annotations

from plait.core.errors import UsageError
from plait.tools import Tool


def tools(settings: str) -> tuple[Tool, ...]:
    """`lab:basics,report` is the lookup over that split's facts, `lab:corpus,...` searches a task's texts (see
    `corpus.py`), `lab:stubs,...` are stand-ins of a file's tools (`stubs.py`). Raises `UsageError`.
    """
    suite, _, rest = settings.partition(",")
    if suite == "basics":
        from plait.lab.basics import facts_tool

        return (facts_tool(rest),)
    if suite == "corpus":
        from plait.lab import corpus

        return corpus.tools(rest)
    if suite == "stubs":
        from plait.lab import stubs

        return stubs.tools(rest)
    raise UsageError(f"The lab has no tools for {suite!r}.", hint="Such as lab:basics,report.")
