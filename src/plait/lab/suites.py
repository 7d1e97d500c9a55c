"""A suite by its word: ours, a file of tasks, or one of another package."""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path
from typing import Any

from plait.core.errors import PlaitError, UsageError
from plait.lab.base import Suite
from plait.plugins import plugins

GROUP = "plait.suites"
"""The entry-point group for suites of other packages: name = "module:function", which gets what stands behind the
colon of the word ("" for nothing) and returns a `Suite`."""

OURS = {
    "basics": "plait.lab.basics:basics",
    "world": "plait.lab.loaders.world:load",
    "gsm8k": "plait.lab.loaders.gsm8k:load",
    "hotpotqa": "plait.lab.loaders.hotpotqa:load",
    "fever": "plait.lab.loaders.fever:load",
    "strategyqa": "plait.lab.loaders.strategyqa:load",
    "musique": "plait.lab.loaders.musique:load",
    "tool-search": "plait.lab.loaders.tool_search:load",
}
OF_A_FILE = tuple(name for name in OURS if name not in ("basics", "world"))
ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".ndjson", ".ndjson.gz")


def suite(word: str) -> Suite:
    """The suite of a word such as `basics:report`, `world:six`, `gsm8k:test.jsonl` or `tasks.jsonl`.

    Raises `UsageError` for an unknown one, and for a file that can't be read: it names the file, the line, and what
    is missing there.
    """
    word = word.strip()
    name, _, argument = word.partition(":")
    if name in OF_A_FILE and not argument.strip():
        raise UsageError(f"The suite {name} needs a file.", hint=f"Write {name}:FILE, such as {name}:dev.jsonl.")
    if name in OURS:
        module, _, attribute = OURS[name].partition(":")
        return _checked(getattr(import_module(module), attribute)(argument), word)
    plugins = _plugins()
    if name in plugins:
        return _checked(_from(plugins[name], word, argument), word)
    near = difflib.get_close_matches(name.casefold(), names(), 2)
    misspelt = bool(near and argument) and not Path(word).is_file()  # hotpot:dev.jsonl
    if word.casefold().endswith(ENDINGS) and not misspelt:
        from plait.lab.loaders import plain

        return _checked(plain.load(word), word)
    told = f"Did you mean {' or '.join(near)}?" if near else f"Suites: {', '.join(names())}."
    if not near and Path(word).is_file():
        told = f"A file of tasks ends in {', '.join(ENDINGS[:4])}."
    raise UsageError(f"No suite is named {name!r}.", hint=f"{told} A file of your own tasks is tasks.jsonl.")


def names() -> list[str]:
    """The words that suites go by: ours, then those of other packages."""
    return [*OURS, *(name for name in _plugins() if name not in OURS)]


def _checked(found: Any, word: str) -> Suite:
    if not isinstance(found, Suite):
        raise UsageError(f"{word!r} is a {type(found).__name__} and not a suite.", hint="Return a plait.lab.Suite.")
    if not found.tasks:
        raise UsageError(f"{word!r} has no tasks.")
    return found


def _from(point: Any, word: str, argument: str) -> Any:
    try:
        made = point.load()
        return made(argument) if callable(made) else made
    except PlaitError:
        raise
    except Exception as error:  # another package's code may fail in any way
        raise UsageError(f"The suite {word!r} can't be made: {type(error).__name__}: {error}.") from error


def _plugins() -> dict[str, Any]:
    return {point.name: point for point in plugins(GROUP)}
