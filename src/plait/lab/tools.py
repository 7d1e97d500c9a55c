"""The word `lab:...`: tools that belong to a suite's tasks, found again from a recorded run."""

from __future__ import annotations

from plait.core.errors import ConfigError
from plait.lab.basics import facts_tool
from plait.lab.corpus import find_corpus_tools
from plait.lab.stubs import find_stub_tools
from plait.tools import Tool


def tools(settings: str) -> tuple[Tool, ...]:
    """Return the tools of `basics,SPLIT`, `corpus,KIND,TASK,MARK,FILE` or `stubs,MARK,FILE`. Raises `ConfigError`."""
    suite, _, rest = settings.partition(",")
    match suite:
        case "basics":
            return (facts_tool(rest),)
        case "corpus":
            return find_corpus_tools(rest)
        case "stubs":
            return find_stub_tools(rest)
    raise ConfigError(f"The lab has no tools for {suite!r}.", hint="Such as lab:basics,report.")
