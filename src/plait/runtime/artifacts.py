"""The things of one run: objects that go through it by their handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from plait.core.messages import JSON
from plait.core.artifacts import ArtifactHandle, Artifact
from plait.sandbox.worker_values import unpack
from plait.tools.render import sound

Kept = Mapping[str, tuple[str, bytes]]
"""Things as they stand on the record, by id: their kind, and the bytes they were written down as."""


class Things:
    """Keeps what tools return that JSON can't hold. `kept` are those of an earlier process: read when first used.

    `scrub` takes secrets out of what goes on the record.
    """

    def __init__(self, kept: Kept, scrub: Callable[[bytes], bytes] = bytes) -> None:
        self._kept = dict(kept)
        self._scrub = scrub
        self._live: dict[str, Artifact] = {}
        self._unwritten: dict[str, bytes] = {}
        self._counts: dict[str, int] = {}
        for name in kept:
            kind, _, number = name.rpartition("-")
            self._counts[kind] = max(self._counts.get(kind, 0), int(number))

    def keep(self, thing: Artifact) -> ArtifactHandle:
        """The thing's handle; the same one each time. Raises what the thing raises while it is written down."""
        for name, known in self._live.items():
            if known is thing:
                return ArtifactHandle(name, sound(thing.about()))
        # It is written down here, where what goes wrong is the call's error; at the record it would end the run.
        data, about = thing.dump(), sound(thing.about())
        number = self._counts[thing.kind] = self._counts.get(thing.kind, 0) + 1
        name = f"{thing.kind}-{number}"
        self._live[name] = thing
        self._unwritten[name] = data
        return ArtifactHandle(name, about)

    def put_away(self, thing: Artifact) -> JSON:
        """Keep the thing: what stands for it where JSON does."""
        return self.keep(thing).json()

    def given(self, value: JSON, by_name: bool) -> Any:
        """A tool's input with the things themselves in place of their handles; `by_name`, also in place of a text
        that is an id."""
        if not self._live and not self._kept:
            return value
        return self._given(value, by_name)

    def exactly(self, value: JSON) -> Any:
        """The input of a call that code made: the Python values that it passed, with the things themselves."""
        return unpack(value, lambda stands: self._or_itself(str(stands.get("$thing", "")), stands))

    def _given(self, value: Any, by_name: bool) -> Any:
        if isinstance(value, str):
            return self._or_itself(value.strip(), value) if by_name else value
        handle = ArtifactHandle.read(value)
        if handle is not None:
            return self._or_itself(handle.id, value)
        if isinstance(value, dict):
            return {key: self._given(each, by_name) for key, each in value.items()}
        return [self._given(each, by_name) for each in value] if isinstance(value, (list, tuple)) else value

    def _or_itself(self, name: str, value: Any) -> Any:
        # A thing may be false, as an empty table is.
        thing = self.find(name)
        return value if thing is None else thing

    def find(self, name: str) -> Artifact | None:
        """The thing with that id; None where there is none, or where it can't be read back."""
        if name in self._live:
            return self._live[name]
        kind, data = self._kept.get(name, ("", b""))
        if kind not in Artifact.kinds:
            return None
        try:
            thing = self._live[name] = Artifact.kinds[kind].load(data)
        except ValueError:
            return None
        return thing

    def written(self, value: JSON) -> bytes | None:
        """The new things that a value holds, written down for the record; None where there are none."""
        if not self._unwritten:
            return None
        names = sorted(_names(value).intersection(self._unwritten))
        # Each by itself: taken out of the whole, a secret would leave the lengths wrong, and nothing could be read.
        new = {name: (self._live[name].kind, self._scrub(self._unwritten.pop(name))) for name in names}
        return msgspec.msgpack.encode(new) if new else None


def kept_in(body: bytes | None) -> dict[str, tuple[str, bytes]]:
    """The things that a row of the record carries."""
    return msgspec.msgpack.decode(body, type=dict[str, tuple[str, bytes]]) if body else {}


def with_handles(value: JSON) -> Any:
    """A JSON value with `ArtifactHandle`s where it says so."""
    handle = ArtifactHandle.read(value)
    if handle is not None:
        return handle
    if isinstance(value, dict):
        return {key: with_handles(each) for key, each in value.items()}
    return [with_handles(each) for each in value] if isinstance(value, list) else value


def _names(value: Any) -> set[str]:
    handle = ArtifactHandle.read(value)
    if handle is not None:
        return {handle.id}
    if isinstance(value, dict):
        return set().union(*map(_names, value.values()))
    return set().union(*map(_names, value)) if isinstance(value, list) else set()
