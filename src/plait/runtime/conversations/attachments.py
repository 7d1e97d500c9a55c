"""The files of a question: read and checked before the run, and restored from the journal later."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from plait.core import Artifact, Attachment, Exchange, File, Loop, Task, traits_of
from plait.core.attachments import IMAGE_TYPES, MAX_BYTES, PDF, describe_content, detect_media_type
from plait.core.errors import ConfigError, JournalError
from plait.journal.records import RunHead
from plait.journal.store import Store, read_timeline
from plait.models.wires.contents import fill_contents, find_references
from plait.runtime.calls.artifacts import ArtifactStore, read_artifacts
from plait.runtime.phase_models import Phases
from plait.user_files import read_file

UserQuestion: TypeAlias = str | Sequence[str | Artifact]
"""A question: text, or a list of texts and files (`File`, or another artifact that holds an image)."""

NO_TEXT = "(no text)"
"""Stands for the words of a question that is only files: a question needs a text."""
MAX_TEXT = 1 << 20
"""Maximum size of a text file in bytes: it goes into the prompt whole."""
FILE_PARTS = ("image_url", "file", "input_image", "input_file")
"""Types of parts of a chat-completions message that hold an image or a file."""
_DATA_URL = re.compile(r"data:[^,]*;base64,")


class AttachedFiles(Struct, frozen=True):
    """The files of a question, in order, and their bytes by digest."""

    attachments: tuple[Attachment, ...] = ()
    contents: Mapping[str, bytes] = {}

    def make_task(
        self, question: str, history: tuple[Exchange, ...], accepts: Callable[[Attachment], bool] = lambda file: True
    ) -> Task:
        """Return the task with these files: images and PDF files as attachments, text files as text. Files of the
        history come first: those that the models accept, the newest that a request has room for."""
        files = [*dict.fromkeys(self.attachments)]
        room = MAX_BYTES - sum(each.size for each in files)
        for each in reversed([file for turn in history for file in turn.attachments]):
            if each not in files and each.digest in self.contents and each.size <= room and accepts(each):
                files.insert(0, each)
                room -= each.size
        if not files:
            return Task(question, history)
        texts = tuple(
            (each.name or "file", self.contents[each.digest].decode("utf-8", "replace"))
            for each in files
            if each.kind == "text"
        )
        return Task(question, history, tuple(each for each in files if each.kind != "text"), texts)


NO_FILES = AttachedFiles()


def attach(source: str | Path | bytes, name: str = "") -> File:
    """Return a file for a question, or as the result of a tool: `plait.attach("photo.jpg")`.

    `source` is a path, or the bytes (`text.encode()` for a text). The content decides the media type: an image (PNG,
    JPEG, GIF, WebP), a PDF file or text, which becomes UTF-8. `name` is what models see; the default is the file's own
    name. Raises `ConfigError` if the file cannot be read, is of another kind, or is too large.
    """
    if isinstance(source, bytes):
        file = File.from_bytes(source, name)
    else:
        path = Path(source).expanduser()
        try:
            if path.stat().st_size > MAX_BYTES:
                raise _too_large(name or path.name, path.stat().st_size, MAX_BYTES)
            file = File.from_bytes(read_file(path), name or path.name)
        except OSError as why:
            hint = 'Check the path. For a text: plait.attach(text.encode(), name="letter.txt").'
            raise ConfigError(f"{str(path)[:200]} can't be attached: {why.strerror or why}.", hint=hint) from None
    _check_file(file.attachment)
    return file


def read_file_part(part: Mapping[str, Any]) -> File:
    """Return the image or file in a part of a chat-completions message. Raises `ConfigError`; nothing is fetched."""
    kind = part["type"]
    inner = part.get(kind)
    inner = inner if isinstance(inner, Mapping) else part
    given = str(inner.get("url") or inner.get("image_url") or inner.get("file_data"))
    head = _DATA_URL.match(given)
    if head is None:
        hint = "No address is fetched, and no file id is known. Send the content: data:image/png;base64,..."
        raise ConfigError(f"A part of type {kind} is no data URL.", hint=hint)
    try:
        content = base64.b64decode("".join(given[head.end() :].split()), validate=True)
    except ValueError:
        raise ConfigError(f"A part of type {kind} is not valid base64.") from None
    return attach(content, str(inner.get("filename") or ""))


def split_question(given: UserQuestion) -> tuple[str, AttachedFiles]:
    """Return the text of a question (`NO_TEXT` if it has only files) and its files. Raises `ConfigError`."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return given, NO_FILES
    texts: list[str] = []
    files: list[Attachment] = []
    contents: dict[str, bytes] = {}
    for part in given:
        if isinstance(part, str):
            texts.append(part)
            continue
        data, media_type = getattr(part, "data", None), getattr(part, "media_type", "")
        if not isinstance(part, Artifact) or not isinstance(data, bytes):
            hint = "Give texts and files: plait.attach(PATH)."
            raise ConfigError(f"A part of the question is of type {type(part).__name__}.", hint=hint)
        if not media_type.startswith("text/"):
            media_type = detect_media_type(data)
        attachment = describe_content(data, media_type, getattr(part, "name", ""))
        _check_file(attachment)
        files.append(attachment)
        contents[attachment.digest] = data
    if (size := sum(map(len, contents.values()))) > MAX_BYTES:
        raise _too_large("The files of the question", size, MAX_BYTES)
    text = "\n\n".join(texts)
    return NO_TEXT if files and not text.strip() else text, AttachedFiles(tuple(files), contents)


async def restore_files(head: RunHead, store: Store) -> AttachedFiles:
    """Return the files of a recorded run. Raises `JournalError` if one is missing or damaged."""
    return AttachedFiles(head.attachments, await store.read_contents(head.files))


async def restore_request(body: bytes, head: RunHead, store: Store) -> bytes:
    """Return a recorded request as it was sent: with the files in place of the references to them. Raises
    `JournalError` if a file is missing or damaged."""
    if not find_references(body):
        return body
    artifacts = ArtifactStore(read_artifacts(await read_timeline(store, head.run)))
    return fill_contents(body, find_contents(body, await store.read_contents(head.files), artifacts))


def find_contents(body: bytes, known: Mapping[str, bytes], artifacts: ArtifactStore) -> dict[str, bytes]:
    """Return the bytes of the files that a request refers to, by digest: of the question's (`known`) and of results.
    Raises `JournalError` if one is missing."""
    found: dict[str, bytes] = {}
    for digest in find_references(body):
        content = known.get(digest) or artifacts.find_content(digest)
        if content is None:
            raise JournalError(
                f"The journal has no bytes of the file with the digest {digest}, which the request needs.",
                hint="Ask the question again with the file.",
            )
        found[digest] = content
    return found


def is_accepted(file: Attachment, loop: Loop, phases: Phases) -> bool:
    """Return whether each model of a run gets a file of an earlier turn: it can, or the file is text."""
    models = phases.models_of(loop.phases)
    takes_files = traits_of(loop).transcript != "completion"
    return file.kind == "text" or (takes_files and all(model.abilities.accepts(file) for model in models))


def check_acceptance(task: Task, loop: Loop, phases: Phases) -> None:
    """Raise `ConfigError` if a model of the run does not accept a file of the task."""
    if not task.attachments:
        return
    if traits_of(loop).transcript == "completion":
        raise ConfigError(
            f"{task.attachments[0]} can't be sent: the transcript 'completion' is one raw text.",
            hint="Use the transcript 'chat' or 'user'.",
        )
    for model in phases.models_of(loop.phases):
        refused = next((each for each in task.attachments if not model.abilities.accepts(each)), None)
        if refused is not None:
            kind, ability = ("images", "images") if refused.kind == "image" else ("PDF files", "files")
            raise ConfigError(
                f"{model.spec} does not accept {kind}, and {refused} is attached.",
                hint=f"Choose another model. If this one does, set abilities = {{ {ability} = true }} for its "
                "endpoint in plait.toml.",
            )


def _check_file(file: Attachment) -> None:
    if file.media_type not in (*IMAGE_TYPES, PDF) and file.kind != "text":
        hint = "Attach an image (PNG, JPEG, GIF, WebP), a PDF file or a text file."
        raise ConfigError(f"{file} can't be attached: no model accepts such a file.", hint=hint)
    if not file.size:
        raise ConfigError(f"{file} is empty.")
    if file.size > (limit := MAX_TEXT if file.kind == "text" else MAX_BYTES):
        raise _too_large(str(file), file.size, limit)


def _too_large(what: str, size: int, limit: int) -> ConfigError:
    return ConfigError(f"{what}: {size:,} bytes are more than the {limit:,} that can be attached.", hint="Shrink it.")
