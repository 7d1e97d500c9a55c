"""What a model does between a request and the first word of its reply."""

from __future__ import annotations

import time
from collections.abc import Callable


class Stage:
    """Says what a model that was just asked is doing, and for how long. `model` is its spec, such as "local:NAME"."""

    def __init__(self, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._local = model.partition(":")[0] == "local"
        self._clock = clock
        self._name = ""
        self._began = clock()

    def now(self) -> tuple[str, float]:
        """Return the stage ("loading model", "reading prompt"; "" for a model elsewhere) and its seconds so far."""
        name = ""
        if self._local:
            from plait.models import embedded

            name = "loading model" if embedded.is_loading() else "reading prompt"
        now = self._clock()
        if self._name and name != self._name:
            self._began = now
        self._name = name
        return name, now - self._began
