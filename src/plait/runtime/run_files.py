"""Files that the tools of a run returned, such as charts: read from the journal alone, and saved to a folder."""

from __future__ import annotations

import base64
import json
import mimetypes
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plait.core import Reply
from plait.core.attachments import IMAGE_TYPES, LONGEST_NAME, PDF, detect_media_type
from plait.core.errors import ConfigError
from plait.journal.store import Store, list_descendants, read_timeline
from plait.journal.timeline import Timeline
from plait.runtime.calls.artifacts import find_artifacts

_ODD, _TYPE = re.compile(r"[^\w.+ ()-]"), re.compile(r"[\w.+-]+/[\w.+-]+")
SEEN = (*IMAGE_TYPES, PDF)
"""Media types that the content of a file must have, whatever its tool says."""
IMAGES = "image_generation"
CODE = "code"
"""The `tool` of a file that the model's code made."""


class RunFile(Struct, frozen=True):
    """A file that a tool returned: its name (never a path), media type and bytes; the run, the tool and the call (the
    key of its entry) that made it; and its `id` in the run, such as "image-1"."""

    name: str
    media_type: str
    data: bytes
    run: str
    tool: str
    call: str
    id: str

    @property
    def is_picture(self) -> bool:
        """Whether its content is an image of a type that no browser runs as a program."""
        return self.media_type in IMAGE_TYPES

    @property
    def data_url(self) -> str:
        """The content as a data URL."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"

    def json(self) -> dict[str, Any]:
        """Return what is known of the file, without its bytes; `size` is in bytes."""
        known = {each: getattr(self, each) for each in self.__struct_fields__ if each != "data"}
        return {**known, "size": len(self.data)}

    def __str__(self) -> str:
        return f"{self.name} ({self.media_type}, {len(self.data):,} bytes)"

    __repr__ = __str__


def list_shown(timeline: Timeline) -> list[tuple[str, str, dict[str, str], bytes | None]]:
    """Return the tool and key of each call and each piece of code, the artifacts that it shows (what they are in words,
    by id), and the bytes in its row."""
    made = [
        (call.call.tool, call.key, find_artifacts((call.seen or seen).value), call.artifacts)
        for call, seen in timeline.results
    ]
    code = [(CODE, each.key, {at.id: at.about for at in each.ran.made}, each.artifacts) for each in timeline.code]
    images = [(call.key, data) for call, reply in timeline.replies for data in _read_hosted_images(reply)]
    hosted = []
    for number, (key, data) in enumerate(images, 1):
        id, head = f"image-hosted{number}", b'{"media_type": "image/png"}\n'
        stored = msgspec.msgpack.encode({id: ("image", head + data)})
        hosted.append((IMAGES, key, {id: f"an image of the provider, {len(data):,} bytes"}, stored))
    return made + code + hosted


def _read_hosted_images(reply: Reply) -> Iterator[bytes]:
    """Yield the images that the provider made while it wrote a reply. They are in the state of the turn."""
    state = reply.state.data if reply.state is not None and any(each.tool == IMAGES for each in reply.hosted) else None
    for item in state if isinstance(state, list) else ():
        if isinstance(item, dict) and item.get("type") == "image_generation_call":
            with suppress(ValueError, TypeError):
                yield base64.b64decode(item.get("result") or "", validate=True)


def read_files(timeline: Timeline) -> list[RunFile]:
    """Return the files of a run's own calls and code. Those of a result that a guard or the user withheld stay
    inside."""
    found: list[RunFile] = []
    for tool, key, shown, artifacts in list_shown(timeline):
        with suppress(msgspec.MsgspecError):  # damaged, or of a foreign journal
            stored = msgspec.msgpack.decode(artifacts or b"\x80", type=dict[str, tuple[str, bytes]])
            for id in filter(shown.__contains__, stored):
                head, _, data = stored[id][1].partition(b"\n")
                with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):  # a table is no file
                    said = json.loads(head)
                    media_type, name = str(said["media_type"]), str(said.get("name") or id)
                    if (real := detect_media_type(data)) in SEEN:  # the content decides
                        media_type = real
                    elif media_type in SEEN or not _TYPE.fullmatch(media_type):
                        media_type = "application/octet-stream"
                    name = _ODD.sub("_", re.split(r"[/\\]", name)[-1]).lstrip(". ")[-LONGEST_NAME:] or "file"
                    name += "" if Path(name).suffix else mimetypes.guess_extension(media_type) or ""
                    found.append(RunFile(name, media_type, data, timeline.run, tool, key, id))
    return found


async def read_files_of(store: Store, run: str) -> list[RunFile]:
    """Return the files of a run and its child runs. Raises `JournalError`."""
    runs = [run, *(row.head.run for row in await list_descendants(store, run))]
    return [file for each in runs for file in read_files(await read_timeline(store, each))]


def save_files(files: Iterable[RunFile], folder: str | Path) -> list[Path]:
    """Write files into a folder, and return their paths. No file is overwritten: "chart.png" becomes "chart-2.png".

    Raises `ConfigError` if one cannot be written."""
    place, saved = Path(folder).expanduser(), list[Path]()
    try:
        place.mkdir(parents=True, exist_ok=True)
        for each in files:
            path = place / each.name
            for number in count(2):
                with suppress(FileExistsError), open(path, "xb") as file:  # a link that is there is not followed
                    file.write(each.data)
                    break
                path = place / f"{Path(each.name).stem}-{number}{Path(each.name).suffix}"
            saved.append(path)
    except OSError as why:
        raise ConfigError(f"Files can't be saved in {folder}: {why.strerror}.", hint="Name another folder.") from why
    return saved
