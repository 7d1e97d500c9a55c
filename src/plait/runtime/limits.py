"""The limits of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct, ValidationError, convert, structs

from plait.core import CodeLimits
from plait.core.errors import ConfigError
from plait.runtime.agents.options import Option, check_options

_CODE = CodeLimits()


def _read_code_limits(given: Mapping[str, Any]) -> CodeLimits:
    """Return the limits of a mapping whose values may be text. Raises `ConfigError`."""
    for name in given:
        if name not in CodeLimits.__struct_fields__:
            known = ", ".join(CodeLimits.__struct_fields__)
            raise ConfigError(f"There is no limit '{name}' of code.", hint=f"There are: {known}.")
    try:
        return convert(given, CodeLimits, strict=False)
    except ValidationError as why:
        raise ConfigError(f"The limits of code can't be used: {why}.") from why


class Limits(Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The most that a run may use. None means no limit.

    One model call is kept in reserve, so that the model can be asked to answer with what there is. What child runs use
    counts against all limits. Each field says what it limits. Raises `ConfigError` for an invalid limit.
    """

    steps: Annotated[int | None, Option("Maximum turns of the loop.", "--max-steps N", above=0, trust="at most")] = 25
    calls: Annotated[
        int | None, Option("Maximum model calls, failed ones included.", "--max-calls N", above=0, trust="at most")
    ] = None
    tokens: Annotated[
        int | None, Option("Maximum tokens, in and out together.", "--max-tokens N", above=0, trust="at most")
    ] = None
    usd: Annotated[float | None, Option("Maximum cost in USD.", "--max-cost USD", trust="at most")] = None
    seconds: Annotated[
        float | None, Option("Maximum wall time in seconds.", "--max-seconds S", above=0, trust="at most")
    ] = None
    tool_seconds: Annotated[float, Option("Maximum seconds of a tool call, if the tool sets no time.")] = 60.0
    retries: Annotated[int, Option("How often a failed request is sent again.")] = 3
    repeats: Annotated[int, Option("How often the same call may bring the same result; 0: any number.")] = 4
    observation_chars: Annotated[int, Option("Maximum characters of one observation in a prompt.")] = 8000
    tools: Annotated[
        int | None,
        Option(
            "Maximum tools shown; a search finds the others.", "--max-tools N", trust="allowed", page="tool-search.md"
        ),
    ] = None
    depth: Annotated[int, Option("Maximum levels of child runs below the run.", page="agents-as-tools.md")] = 4
    children: Annotated[int, Option("Maximum child runs on all levels.", page="agents-as-tools.md")] = 32
    compact_at: Annotated[
        float | None,
        Option("Share of the model's context at which old turns are compacted.", above=0, most=1, page="long-runs.md"),
    ] = 0.7
    code: Annotated[
        CodeLimits,
        Option(
            f"Limits of one piece of code: {', '.join(CodeLimits.__struct_fields__)}.",
            "--code-limit K=V",
            many="pairs",
            read=_read_code_limits,
            page="sandbox.md",
        ),
    ] = _CODE

    def __post_init__(self) -> None:
        check_options(self)
        if self.code == _CODE:  # msgspec leaves out a default by identity: equal limits are written alike
            structs.force_setattr(self, "code", _CODE)
