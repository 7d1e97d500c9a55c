"""The stages of a local model before its first word, with times: download, hash check, load, prompt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from plait.models.catalogue import local_key
from plait.models.settings import split_settings


@dataclass
class RunningStage:
    """A stage in progress: its name, its model (see `local_key`), the bytes done and the total (0: not counted)."""

    name: str
    model: str
    total: int = 0
    done: int = 0
    began: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class StageEnded:
    """A stage that succeeded: its name, its seconds, and its bytes (0 if it does not count bytes)."""

    name: str
    seconds: float
    bytes: int = 0


Listener: TypeAlias = Callable[[StageEnded], None]

_running: list[RunningStage] = []
_listeners: list[Listener] = []


@contextmanager
def measure_stage(name: str, model: str, total: int = 0) -> Iterator[RunningStage]:
    """Measure a stage of this process, and pass its end to the listeners. A stage that raises passes nothing."""
    stage = RunningStage(name, model, total)
    _running.append(stage)
    try:
        yield stage
    finally:
        _running.remove(stage)
    ended = StageEnded(name, time.monotonic() - stage.began, total)
    for listener in tuple(_listeners):
        listener(ended)


@contextmanager
def listen_to_stages(listener: Listener) -> Iterator[None]:
    """Call `listener` with each finished stage, in the thread of the stage."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def is_observed() -> bool:
    """Return whether a view shows the stages, so that a download draws no bar of its own."""
    return bool(_listeners)


class Stage:
    """The current stage of a model call, and its duration. `model` is its spec, such as "local:NAME"."""

    def __init__(self, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        # Only the specs of local models are known to be readable: others may be words of the user's own models.
        name = split_settings(model)[0] if model.startswith("local") else ""
        provider, _, name = name.partition(":")
        self._model = local_key(name) if provider == "local" else ""
        self._clock = clock
        self._name = ""
        self._began = clock()

    def now(self) -> tuple[str, float]:
        """Return the stage ("loading model", "reading prompt"; "" for a model elsewhere) and its seconds so far."""
        name = ""
        if running := self._running():
            name = running.name
        elif self._model:
            from plait.models import embedded

            name = "loading model" if embedded.is_loading(self._model) else "reading prompt"
        now = self._clock()
        if self._name and name != self._name:
            self._began = now
        self._name = name
        return name, now - self._began

    def progress(self) -> str:
        """Return `45% of 1,117 MB` while the model's file is downloaded, else ""."""
        stage = self._running()
        if stage is None or not stage.total:
            return ""
        return f"{stage.done * 100 // stage.total}% of {stage.total / 1e6:,.0f} MB"

    def _running(self) -> RunningStage | None:
        return next((each for each in reversed(_running) if each.model == self._model), None)
