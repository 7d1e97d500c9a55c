"""An agent's instructions: a text, or a function that gives one at the start of a run."""

from __future__ import annotations

from collections.abc import Callable

from plait.core.errors import ConfigError
from plait.core.notebook import repr_short
from plait.runtime.agents.output import count_required
from plait.tools.end_run import EndRun
from plait.tools.tool import function_name
from plait.tools.user_code import show_error
from plait.user_functions import call_plain, require_plain


def check_instructions(instructions: Callable[..., str]) -> None:
    """Raise `ConfigError` for a function of instructions that Plait cannot call."""
    name = function_name(instructions)
    require_plain(instructions, f"'{name}' of instructions")
    if count_required(instructions) > 1:
        raise ConfigError(
            f"The function '{name}' of instructions has {count_required(instructions)} parameters without a default.",
            hint="Give a function without parameters, or of the dependencies alone.",
        )


def render_instructions(instructions: str | Callable[..., str], deps: object = None) -> str:
    """Return the text of an agent's instructions. A function with a parameter without a default gets the dependencies.
    Raises `ConfigError` if the function breaks, or gives no text."""
    if isinstance(instructions, str):
        return instructions
    name = function_name(instructions)
    try:
        text = call_plain(instructions, *((deps,) if count_required(instructions) else ()))
    except (Exception, SystemExit, EndRun) as why:
        hint = "Correct the function, and give the run the deps that it needs."
        raise ConfigError(f"The function '{name}' of instructions broke: {show_error(why)}.", hint=hint) from why
    if not isinstance(text, str):
        raise ConfigError(f"The function '{name}' of instructions returned {repr_short(text)}.", hint="Return a text.")
    return text
