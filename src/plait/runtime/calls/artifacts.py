"""The artifacts of one run: objects that JSON cannot hold. Models see their handles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from typing import Any

import msgspec

from plait.core.artifacts import Artifact, ArtifactHandle, replace_handles
from plait.core.attachments import find_attachment
from plait.core.messages import JSON
from plait.journal.timeline import Timeline
from plait.sandbox.worker_values import unpack
from plait.tools import Tool
from plait.tools.render import replace_surrogates
from plait.tools.signature import BINARY

StoredArtifacts = Mapping[str, tuple[str, bytes]]
"""Artifacts in the journal, by id: their kind and their bytes."""


class ArtifactStore:
    """Keeps what tools return that JSON cannot hold. `kept` are those of an earlier process, read when first used.
    `scrub` removes secrets from what the journal stores."""

    def __init__(self, kept: StoredArtifacts, scrub: Callable[[bytes], bytes] = bytes) -> None:
        self._kept = dict(kept)
        self._scrub = scrub
        self._live: dict[str, Artifact] = {}
        self._unwritten: dict[str, bytes] = {}
        self._counts: dict[str, int] = {}
        self.withheld: set[str] = set()  # ids that a model may guess, of results that a guard withheld
        self._lock = Lock()
        self._contents: dict[str, bytes] = {}
        """The bytes of images and PDF files, by digest."""
        for name in kept:
            kind, _, number = name.rpartition("-")
            self._counts[kind] = max(self._counts.get(kind, 0), int(number))

    def keep(self, artifact: Artifact) -> ArtifactHandle:
        """Return the artifact's handle, the same one each time. Raises what the artifact's `dump` and `about` raise."""
        artifact = getattr(artifact, "origin", artifact)
        for name, known in list(self._live.items()):
            if known is artifact:
                return ArtifactHandle(name, replace_surrogates(artifact.about()))
        # Dumped here, where an error is the call's. An error while the journal writes would end the run.
        data, about = artifact.dump(), replace_surrogates(artifact.about())
        with self._lock:  # results are read in the threads of their calls
            number = self._counts[artifact.kind] = self._counts.get(artifact.kind, 0) + 1
        name = f"{artifact.kind}-{number}"
        self._live[name] = artifact
        self._unwritten[name] = data
        if found := find_attachment(artifact):
            self._contents[found[0].digest] = found[1]
        return ArtifactHandle(name, about)

    def put_away(self, artifact: Artifact) -> JSON:
        """Keep the artifact, and return the JSON of its handle."""
        return self.keep(artifact).json()

    def fill_input(self, value: JSON, tool: Tool, exact: bool) -> Any:
        """Return a tool's input with the artifacts themselves in place of their handles; where the tool takes them,
        also in place of a text that is their id or file name. `exact`: code passed it."""
        if not self._live and not self._kept:
            return self.fill_exact_input(value) if exact else value
        value = self.fill_exact_input(value) if exact else self.fill(value)
        kinds = {name: tool.signature.find_kinds(name) for name in tool.signature.types}
        every = set().union(*kinds.values()) - {BINARY}
        if isinstance(value, dict):
            return {name: self._take(each, kinds.get(name, every)) for name, each in value.items()}
        return self._take(value, every)

    def _take(self, value: Any, kinds: set[str]) -> Any:
        """Return a value with the artifacts of these kinds that it names. Where bytes (`BINARY`) or another kind are
        wanted, an artifact with bytes is read as that."""
        if not kinds:
            return value
        if isinstance(value, list | tuple):
            return type(value)(self._take(each, kinds) for each in value)
        found = self._find_named(value.strip()) if isinstance(value, str) else value
        data = getattr(found, "data", None)
        if not isinstance(found, Artifact) or found.kind in kinds or not isinstance(data, bytes):
            return value if found is None else found
        if BINARY in kinds:
            return data
        with suppress(Exception):  # its bytes are no such thing, or that kind is not read from bytes
            kind: Any = Artifact.kinds[max(kinds)]
            found, origin = kind.from_bytes(data), found
            object.__setattr__(found, "origin", origin)  # both have the handle of the first one
        return found

    def _find_named(self, name: str) -> Artifact | None:
        """Return the artifact with that id, or the last file with that name."""
        ids = sorted(self._kept.keys() | self._live, key=lambda id: (len(id), id))
        named = [id for id in ids if name and getattr(self.find(id), "name", "") == name]
        return self.find(name if name in ids or not named else named[-1])

    def fill_exact_input(self, value: JSON) -> Any:
        """Return the Python values that code passed to a call, with artifacts in place of their handles."""
        return unpack(value, lambda stands: self._or_itself(str(stands.get("$thing", "")), stands))

    def fill(self, value: Any) -> Any:
        """Return a JSON value with the artifacts themselves in place of their handles."""
        return replace_handles(value, lambda handle, itself: self._or_itself(handle.id, itself))

    def _or_itself(self, name: str, value: Any) -> Any:
        # An artifact may be false, as an empty table is.
        artifact = self.find(name)
        return value if artifact is None else artifact

    def find(self, name: str) -> Artifact | None:
        """Return the artifact with that id; None if there is none, if it was withheld, or cannot be read."""
        if name in self.withheld:
            return None
        if name in self._live:
            return self._live[name]
        kind, data = self._kept.get(name, ("", b""))
        if kind not in Artifact.kinds:
            return None
        try:
            artifact = self._live[name] = Artifact.kinds[kind].load(data)
        except ValueError:
            return None
        return artifact

    def find_content(self, digest: str) -> bytes | None:
        """Return the bytes of an image or PDF file that a tool returned, by their digest; None if there is none."""
        if digest not in self._contents:
            for _, data in self._kept.values():  # of files, the bytes stand below one line
                content = data.partition(b"\n")[2]
                self._contents.setdefault(sha256(content).hexdigest(), content)
        return self._contents.get(digest)

    def encode_new(self, value: JSON) -> bytes | None:
        """Return the new artifacts in a value as bytes for the journal; None if there are none."""
        if not self._unwritten:
            return None
        names = sorted(find_artifacts(value).keys() & self._unwritten.keys())
        # Each by itself: taken out of the whole, a secret would leave the lengths wrong, and nothing could be read.
        new = {name: (self._live[name].kind, self._scrub(self._unwritten.pop(name))) for name in names}
        return msgspec.msgpack.encode(new) if new else None


def read_artifacts(timeline: Timeline) -> dict[str, tuple[str, bytes]]:
    """Return the artifacts on record of a run."""
    found: dict[str, tuple[str, bytes]] = {}
    made = [*(call.artifacts for call, _ in timeline.results), *(each.artifacts for each in timeline.code)]
    for artifacts in filter(None, made):
        found.update(msgspec.msgpack.decode(artifacts, type=dict[str, tuple[str, bytes]]))
    return found


def find_artifacts(value: Any) -> dict[str, str]:
    """Return the artifacts whose handles are in a JSON value: what they are in words, by id."""
    if (handle := ArtifactHandle.read(value)) is not None:
        return {handle.id: handle.about}
    found: dict[str, str] = {}
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found |= find_artifacts(each)
    return found
