"""Makes hooks from words, such as `retry:3` or `hosts:example.com`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from plait.core.errors import ConfigError
from plait.core.text import suggest
from plait.hooks.hosts import AllowHosts
from plait.hooks.redact import RedactPersonalData
from plait.hooks.tool_calls import LimitToolRate, RetryTools
from plait.runtime.hooks import Hook, MissingHook


def load_hook(word: str) -> Hook:
    """Return the hook that a word names. `redact[:KIND,...]`, `hosts:HOST,...`, `rate:TOOL=CALLS,...` (per minute),
    `retry[:ATTEMPTS[,SECONDS[,TOOL,...]]]`. Raises `ConfigError`."""
    name, _, text = word.partition(":")
    arguments = [part.strip() for part in text.split(",") if part.strip()]
    if name not in _MAKERS:
        hint = suggest(name, _MAKERS, f"Hooks: {', '.join(_MAKERS)}.")
        raise ConfigError(f"No hook is named {name!r}.", hint=f"{hint} Your own are given in Python: hooks=[...].")
    try:
        return _MAKERS[name](arguments)
    except ValueError:
        raise ConfigError(f"The hook {word!r} cannot be read.", hint=f"Write it as {_FORMS[name]}.") from None


def load_hooks(names: Iterable[str]) -> tuple[Hook, ...]:
    """Return the hooks that recorded names describe; a `MissingHook` for one that was given in Python."""
    found: list[Hook] = []
    for name in names:
        try:
            found.append(load_hook(name))
        except ConfigError:
            found.append(MissingHook(name))
    return tuple(found)


def _make_retry(arguments: list[str]) -> Hook:
    attempts, wait, *tools = [*arguments, *("3", "0.5")[len(arguments) :]]
    return RetryTools(int(attempts), wait=float(wait), tools=tools)


_MAKERS: dict[str, Callable[[list[str]], Hook]] = {
    "redact": lambda arguments: RedactPersonalData(*arguments),
    "hosts": lambda arguments: AllowHosts(*arguments),
    "rate": lambda arguments: LimitToolRate(
        {tool.strip(): int(number) for tool, number in (part.split("=") for part in arguments)}
    ),
    "retry": _make_retry,
}
_FORMS = {
    "redact": "redact, or redact:email,phone",
    "hosts": "hosts:example.com,*.example.org",
    "rate": "rate:search=10,fetch=30",
    "retry": "retry, or retry:3,0.5",
}
