"""An embedder whose texts pass the hooks on model calls first: an endpoint reads them as it reads a prompt."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from plait.background import run_aside
from plait.core import Think
from plait.core.errors import PlaitError
from plait.core.messages import user
from plait.runtime.calls.context import Context
from plait.runtime.conversations.sessions import AnyEmbedder
from plait.runtime.guard import Guard
from plait.runtime.hooks import Hook, has_point
from plait.search import load_embedder
from plait.tools.user_code import show_error

if TYPE_CHECKING:
    from plait.search.embedders import Embedder, Vectors

EMBED = "embed"
"""The phase of a request that `before_model` sees for texts to an embedder: each text is a message of the user."""


def guard_embedder(
    given: AnyEmbedder, hooks: Iterable[Hook | Guard], env: Mapping[str, str] | None = None
) -> AnyEmbedder:
    """Return an embedder whose texts pass the hooks. The local one sends nothing, so it stays as it is. A word is
    loaded when it is first used, with key and address from `env` (default: the environment)."""
    guards = tuple(hook for hook in hooks if isinstance(hook, Hook) and has_point(hook, "before_model"))
    is_plain = given in ("", "local") or not (guards or isinstance(given, str))
    return given if is_plain else _GuardedEmbedder(given, guards, env)


class _GuardedEmbedder:
    def __init__(self, given: AnyEmbedder, hooks: tuple[Hook, ...], env: Mapping[str, str] | None) -> None:
        self._given, self._hooks, self._env = given, hooks, env

    @cached_property
    def _embedder(self) -> Embedder:
        return load_embedder(self._given, env=self._env)

    @property
    def name(self) -> str:
        return self._embedder.name and " ".join((self._embedder.name, *(hook.name for hook in self._hooks)))

    @property
    def dim(self) -> int:
        return self._embedder.dim

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Raise `PlaitError` if a hook refuses the texts, asks the user or fails."""
        request = Think(EMBED, tuple(user(text) for text in texts))
        for hook in self._hooks:
            try:
                found: Any = hook.before_model(Context(None), request)
                found = run_aside(found) if inspect.isawaitable(found) else found
            except Exception as why:
                raise PlaitError(f"The hook {hook.name} failed on texts for the embedder: {show_error(why)}.") from why
            if found is not None and not (isinstance(found, Think) and len(found.messages) == len(texts)):
                raise PlaitError(f"The hook {hook.name} does not let texts go to the embedder.")
            request = found or request
        return self._embedder.embed([message.content for message in request.messages])
