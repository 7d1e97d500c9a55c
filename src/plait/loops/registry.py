"""Finds a loop by its word, creates it with its options, and names the phases of loops that it may fall back to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from plait.core import Call, Loop, OneKind, Splitter, traits_of
from plait.core.errors import ConfigError
from plait.core.text import suggest
from plait.installation import plugins
from plait.loops.compaction import COMPACT
from plait.loops.format import show_value

# name: (module, class). Imported on first use.
OURS: dict[str, tuple[str, str]] = {
    "react": ("react", "ReAct"),
    "json": ("json", "JsonReAct"),
    "phased": ("phased", "Phased"),
    "rewoo": ("rewoo", "ReWOO"),
    "compiler": ("compiler", "LLMCompiler"),
    "tool_calling": ("tool_calling", "ToolCalling"),
    "codeact": ("codeact", "CodeAct"),
}

AUTO_LOOP = "auto"
"""The word for the loop that fits a model: tool calling if its endpoint has native tools, otherwise ReAct."""

UNLISTED = {"judge": ("judge", "Judge")}
"""Loops that Plait runs internally: found when a journal names them, and not listed."""

GROUP = "plait.loops"
"""The entry-point group for loops of other packages: name = "module:Class"."""


def names() -> list[str]:
    """Return the names of all loops that a user can choose, including plug-ins."""
    return sorted({*OURS, *(point.name for point in plugins(GROUP))})


def make(name: str, options: Mapping[str, Any] | None = None) -> Loop:
    """Return the loop of that name with these options; text values (from a command line) are converted. Raises
    `ConfigError` for an unknown name, option or value, with the valid ones."""
    if name == AUTO_LOOP:
        if options:
            raise ConfigError(
                f"The loop 'auto' takes no options, such as {next(iter(options))}: it is another loop for each model.",
                hint="Name the loop, such as --loop react or --loop tool_calling.",
            )
        return choose_loop(has_tools=True)
    kind = _kind(name)
    fields = {field.name: field for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    for option in options or {}:
        if option not in fields:
            hint = f"It has: {', '.join(fields)}." if fields else "It has none."
            raise ConfigError(f"The loop '{name}' has no option '{option}'.", hint=hint)
    try:
        made = msgspec.convert(dict(options or {}), kind, strict=False) if fields else kind()
    except msgspec.ValidationError as why:
        raise ConfigError(f"A bad option for the loop '{name}': {why}.", hint=describe_options(kind)) from why
    assert isinstance(made, Loop)
    return made


def choose_loop(*, has_tools: bool) -> Loop:
    """Return the loop that "auto" means for a model. Tool calling goes on as ReAct if the endpoint refuses tools."""
    return make("tool_calling", {"fallback": "react"}) if has_tools else make("react")


def options_of(loop: Loop) -> dict[str, Any]:
    if not dataclasses.is_dataclass(loop) or isinstance(loop, type):
        return {}
    return {field.name: msgspec.to_builtins(getattr(loop, field.name)) for field in dataclasses.fields(loop)}


def prompts_of(name: str) -> dict[str, str]:
    """Return the `prompts` of a plug-in's loop; empty for built-in loops, whose prompts are files."""
    return dict(traits_of(_kind(name)).prompts or {})


def shared_prompts_of(name: str) -> tuple[str, ...]:
    """Return the folders of `loops/prompts` whose templates a built-in loop also has; none for all other names."""
    return traits_of(_kind(name)).shared_prompts if name in OURS else ()


def fallback_of(loop: Loop) -> Loop | None:
    """Return the loop that this one may fall back to. Raises `ConfigError` for an unknown name or a circle."""
    chain = [loop]
    while name := traits_of(chain[-1]).fallback:
        chain.append(make(name))
        names = [each.name for each in chain]
        if names[-1] in names[1:-1]:
            raise ConfigError(f"These loops fall back to each other: {' -> '.join(names)}.")
    return chain[1] if len(chain) > 1 else None


def phases_of(loop: Loop) -> tuple[str, ...]:
    """Return a loop's phases and, as `name.phase`, those of its fallback, recursively."""
    other = fallback_of(loop)
    below = tuple(f"{other.name}.{phase}" for phase in phases_of(other)) if other is not None else ()
    return (*loop.phases, *below)


def splitter_of(loop: Loop, phase: str) -> Splitter:
    """Return the splitter for the replies of a phase, including the phases of fallbacks."""
    if phase.rpartition(".")[2] == COMPACT:
        return OneKind("thought")
    name, dot, rest = phase.partition(".")
    return splitter_of(make(name), rest) if dot and phase not in loop.phases else loop.splitter(phase)


def write_reply(loop: Loop, phase: str, calls: Sequence[Call], answer: Any, thought: str, n: int) -> str:
    """Return a reply of a phase, in the loop's own format, that makes `calls`, or else gives `answer`. `n` is the
    number of the turn, from 1. Raises ValueError if the format cannot hold it."""
    codec = getattr(splitter_of(loop, phase), "codec", None)
    if calls:
        if codec is None:
            raise ValueError("a reply of this phase makes no calls")
        return str(codec.write_calls(calls, thought, n))
    return show_value(answer) if codec is None else str(codec.write_answer(answer, n))


def _kind(name: str) -> type[Any]:
    if own := OURS.get(name) or UNLISTED.get(name):
        module, kind = own
        return getattr(import_module(f"plait.loops.{module}.loop"), kind)  # type: ignore[no-any-return]
    for point in plugins(GROUP):
        if point.name == name:
            loaded = point.load()
            assert isinstance(loaded, type)
            return loaded
    hint = f"{suggest(name, names(), most=2)} There are: auto, {', '.join(names())}."
    raise ConfigError(f"There is no loop '{name}'.", hint=hint.strip())


class CheckedOptions:
    """The base of loops that are dataclasses: its constructor raises `ConfigError` if an option has a wrong type, is a
    number below zero, or names a fallback that does not exist."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, hint in _option_types(kind).items():
            value = getattr(self, name)
            try:
                msgspec.convert(value, hint)
                fits = not isinstance(value, int) or value >= 0
            except msgspec.ValidationError:
                fits = False
            if not fits:
                raise ConfigError(f"{kind.__name__}({name}={value!r}) is invalid.", hint=describe_options(kind))
        if fallback := traits_of(self).fallback:
            _kind(fallback)


def describe_options(kind: Any) -> str:
    """Return the options with the values they take."""
    said = []
    for name, hint in _option_types(kind).items():
        values = " or ".join(choices_of(hint))
        said.append(f"{name} ({values or (hint.__name__ if isinstance(hint, type) else hint)})")
    return f"Options: {', '.join(said)}."


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return the words that an option takes, by its type; empty if it takes any."""
    if get_origin(hint) is Literal:
        return tuple(map(str, get_args(hint)))
    return tuple(word for part in get_args(hint) for word in choices_of(part))


@cache
def _option_types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


_CALL = re.compile(r"([A-Za-z_][\w.-]*)(?:\((.*)\))?", re.DOTALL)


def loop_from(word: str) -> Loop:
    """Return the loop of a word such as `react` or `react(dialect=lines,constrain=true)`. Raises `ConfigError` for an
    invalid word, loop, option or value."""
    name, options = parts_of(word)
    return make(name, options)


def parts_of(word: str) -> tuple[str, dict[str, str]]:
    """Return a word's name and its options as text, without checking that the loop exists. Raises `ConfigError`."""
    found = _CALL.fullmatch(word.strip())
    if found is None:
        raise ConfigError(f"{word!r} names no loop.", hint="Write react, or with options react(dialect=lines).")
    options: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in (found[2] or "").split(","))):
        name, sign, value = part.partition("=")
        if not sign:
            raise ConfigError(f"{word!r}: {part!r} is no option.", hint="Write react(dialect=lines).")
        options[name.strip()] = value.strip()
    return found[1], options


def word_of(loop: Loop) -> str:
    """Return a loop as a word, with the options that are not defaults."""
    try:
        usual = options_of(make(loop.name))
    except ConfigError:  # a loop given in Python, which has no word
        usual = {}
    own = {name: value for name, value in options_of(loop).items() if usual.get(name) != value}
    return f"{loop.name}({', '.join(f'{name}={_shown(value)}' for name, value in own.items())})" if own else loop.name


def parse_loops(text: str) -> list[str]:
    """Split a list of words such as `react,react(dialect=lines,constrain=true),json`."""
    words, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            words.append(text[start:at])
            start = at + 1
    words.append(text[start:])
    return [word.strip() for word in words if word.strip()]


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
