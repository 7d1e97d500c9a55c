"""Files that go with a message: what a message says of one, and the file itself. No I/O."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, Self, TypeAlias

from msgspec import Struct

from plait.core.artifacts import Artifact
from plait.core.text import decode_text

AttachmentKind: TypeAlias = Literal["image", "file", "text"]

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types of images that models accept."""
PDF = "application/pdf"
MAX_BYTES = 14 << 20
"""Maximum size of all files in a request: in base64 below 20 MB, the lowest limit of a provider (Gemini's)."""
MAX_SEEN = 3_500_000
"""Maximum size of a file that a tool returned and a model sees: in base64 below 5 MB, Claude's limit for an image. Of a
larger one the model reads the description."""
IMAGE_TOKENS = 1600
"""Estimated tokens of an image. Claude counts up to 1,600 (page "Vision"), Gemini 3 1,120 ("Image understanding")."""
PDF_TOKENS, PDF_BYTES = 2500, 50_000
"""Estimated tokens of a page of a PDF, more than any known model counts, and the bytes that are taken for a page."""

LONGEST_NAME = 100
_ODD = re.compile(r"[^\w .+()-]")
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"%PDF-", PDF))


class Attachment(Struct, frozen=True, omit_defaults=True):
    """A file that goes with a message: its media type, the SHA-256 digest of its bytes (hex), its size in bytes, its
    name. The bytes are stored apart, once, under the digest."""

    media_type: str
    digest: str
    size: int
    name: str = ""

    @property
    def kind(self) -> AttachmentKind:
        """How a model receives it: as an image, as a file (PDF), or as text within the question."""
        main = self.media_type.partition("/")[0]
        return "image" if main == "image" else "text" if main == "text" else "file"

    @property
    def tokens(self) -> int:
        """The estimated number of tokens of an image or a PDF."""
        return IMAGE_TOKENS if self.kind == "image" else PDF_TOKENS * (1 + self.size // PDF_BYTES)

    def __str__(self) -> str:
        return f"{self.name or self.kind} ({self.media_type}, {self.size:,} bytes)"


@dataclass(frozen=True)
class File(Artifact):
    """A file in memory: its media type, its bytes, its name ("": none). `plait.attach` reads one from a path.

    A question may hold files, and a tool may return one. Models see images (PNG, JPEG, GIF, WebP) and PDF files if
    they accept them, and the text of text files.
    """

    kind: ClassVar[str] = "file"

    media_type: str
    data: bytes = field(repr=False)
    name: str = ""

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "") -> Self:
        """Make a file of bytes, whose content decides the media type (`detect_media_type`). Text becomes UTF-8."""
        media_type = detect_media_type(data)
        if media_type == "application/octet-stream" and (text := decode_text(data)) is not None:
            media_type, data = "text/plain", text.encode()
        return cls(media_type, data, name)

    @cached_property
    def attachment(self) -> Attachment:
        """What a message says of the file."""
        return describe_content(self.data, self.media_type, self.name)

    def about(self) -> str:
        name = f"{self.name}, " if self.name else ""
        return f"<File {name}{self.media_type}, {len(self.data):,} bytes>"

    def dump(self) -> bytes:
        head = {"media_type": self.media_type, **({"name": self.name} if self.name else {})}
        return json.dumps(head).encode() + b"\n" + self.data

    @classmethod
    def load(cls, data: bytes) -> Self:
        head, _, rest = data.partition(b"\n")
        try:
            read = json.loads(head)
            return cls(str(read["media_type"]), rest, str(read.get("name", "")))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError("These bytes are not a stored file.") from error


def describe_content(data: bytes, media_type: str, name: str = "") -> Attachment:
    """Return what a message says of these bytes. Signs in the name that a model could read as more become "_"."""
    return Attachment(media_type, hashlib.sha256(data).hexdigest(), len(data), _ODD.sub("_", name)[:LONGEST_NAME])


def with_names(question: str, attachments: Iterable[Attachment]) -> str:
    """Return a question with the names of its files, as a later turn of the conversation sees it."""
    names = ", ".join(each.name or each.kind for each in attachments)
    return f"{question}\n(attached: {names})" if names else question


def find_attachment(artifact: Artifact) -> tuple[Attachment, bytes] | None:
    """Return an artifact as an image or PDF that a model may see, and its bytes; None for any other artifact, and for a
    file above `MAX_SEEN`. The content decides, not what a tool or a server says of it."""
    data = getattr(artifact, "data", None)
    if not isinstance(data, bytes) or len(data) > MAX_SEEN:
        return None
    if (media_type := detect_media_type(data[:64])) not in (*IMAGE_TYPES, PDF):
        return None
    return describe_content(data, media_type, getattr(artifact, "name", "")), data


def detect_media_type(data: bytes) -> str:
    """Return the media type of bytes by their content: of an image or PDF that models accept, "text/plain" for UTF-8
    text, else "application/octet-stream"."""
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    try:
        return "application/octet-stream" if "\0" in data.decode() else "text/plain"
    except UnicodeDecodeError:
        return "application/octet-stream"
