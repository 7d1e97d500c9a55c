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
    if name not in _HOOKS:
        hint = suggest(name, _HOOKS, f"Hooks: {', '.join(_HOOKS)}.")
        raise ConfigError(f"No hook is named {name!r}.", hint=f"{hint} Your own are given in Python: hooks=[...].")
    make, form = _HOOKS[name]
    try:
        return make(arguments)
    except ValueError:
        raise ConfigError(f"The hook {word!r} cannot be read.", hint=f"Write it as {form}.") from None


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


def _make_rate(arguments: list[str]) -> Hook:
    pairs = (part.split("=") for part in arguments)
    return LimitToolRate({tool.strip(): int(number) for tool, number in pairs})


_HOOKS: dict[str, tuple[Callable[..., Hook], str]] = {
    "redact": (lambda arguments: RedactPersonalData(*arguments), "redact, or redact:email,phone"),
    "hosts": (lambda arguments: AllowHosts(*arguments), "hosts:example.com,*.example.org"),
    "rate": (_make_rate, "rate:search=10,fetch=30"),
    "retry": (_make_retry, "retry, or retry:3,0.5"),
}
"""What makes each hook from its arguments, and how its word is written."""
