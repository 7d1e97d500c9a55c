"""Images that a run passes by handle, decoded within a size limit; tools over them, and NASA's picture of the day.

Pillow (the extra `images`) is imported when an image is first read or shrunk. Storing an image needs no Pillow.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Self

from plait.core.artifacts import Artifact
from plait.core.errors import ConfigError, ToolError
from plait.installation import install_hint
from plait.toolkits.service import SECONDS, Service, Setting
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from PIL.Image import Image as Decoded

MAX_BYTES = 32 << 20
"""Maximum size of an image file: 32 MiB."""
MAX_PIXELS = 64_000_000
"""Maximum number of pixels: a file of a few kB can claim to be gigabytes."""

_MEDIA = {name: f"image/{name.lower()}" for name in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")}
"""The supported formats. Pillow knows more, some of which start other programs."""
_IN_PNG = ("1", "L", "LA", "I;16", "RGB", "RGBA")
"""Pillow's names for the kinds of pixels that a PNG may have, except a palette's."""
_NASA_FIELDS = ("date", "title", "explanation", "media_type", "url", "hdurl", "thumbnail_url", "copyright")


@dataclass(frozen=True)
class Image(Artifact):
    """An image: its file's bytes, their media type such as "image/png", width and height in pixels."""

    kind: ClassVar[str] = "image"

    data: bytes = field(repr=False)
    media_type: str
    width: int
    height: int

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the image in a file's bytes: JPEG, PNG, GIF, WebP, BMP or TIFF.

        Raises `ToolError` if it is not such an image, is broken or cut off, or exceeds `MAX_BYTES` or `MAX_PIXELS`.
        """
        with _open_image(data) as decoded:
            return cls(data, _MEDIA[decoded.format or ""], *decoded.size)

    @property
    def format(self) -> str:
        """The format's name, such as "JPEG"."""
        return next((name for name, media in _MEDIA.items() if media == self.media_type), "image")

    @property
    def suffix(self) -> str:
        """The file name's ending, such as ".jpg"."""
        return {"JPEG": ".jpg"}.get(self.format, f".{self.format.lower()}")

    def about(self) -> str:
        return f"<Image {self.width}x{self.height} {self.format}, {_describe_size(len(self.data))}>"

    def shrunk(self, ratio: float) -> Image:
        """Return the image with both sides times `ratio` (above 0, at most 1); an animation becomes its first picture.

        JPEG, PNG and WebP keep their format; others become PNG. Raises `ToolError` for another ratio.
        """
        if not 0 < ratio <= 1:
            raise ToolError(f"The ratio {ratio:g} is not above 0 and at most 1.", hint="For half the size give 0.5.")
        if ratio == 1:
            return self
        from PIL import Image as pillow
        from PIL import ImageOps

        kind = self.format if self.format in ("JPEG", "PNG", "WEBP") else "PNG"
        with _open_image(self.data) as decoded:
            # The metadata with the camera's orientation is lost, so the rotation is applied here.
            ImageOps.exif_transpose(decoded, in_place=True)
            size = max(1, round(decoded.width * ratio)), max(1, round(decoded.height * ratio))
            if kind != "JPEG" and decoded.mode in ("P", "PA"):
                decoded = decoded.convert("RGBA")
            elif kind == "PNG" and decoded.mode not in _IN_PNG:
                decoded = decoded.convert("L" if decoded.mode in ("I", "F") else "RGB")
            small = decoded.resize(size, pillow.Resampling.LANCZOS)
        small.info = {}
        out = BytesIO()
        small.save(out, kind, **({"quality": 88} if kind in ("JPEG", "WEBP") else {}))
        return Image(out.getvalue(), _MEDIA[kind], *size)

    def dump(self) -> bytes:
        head = {"media_type": self.media_type, "width": self.width, "height": self.height}
        return json.dumps(head).encode() + b"\n" + self.data

    @classmethod
    def load(cls, data: bytes) -> Self:
        head, line, rest = data.partition(b"\n")
        try:
            read = json.loads(head)
            media, width, height = read["media_type"], read["width"], read["height"]
            if line and media in _MEDIA.values() and type(width) is type(height) is int:
                return cls(rest, media, width, height)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ValueError("These are not the bytes of an image that was written down.")


def _open_image(data: bytes) -> Decoded:
    """Decode an image. Raises `ToolError`, and `ConfigError` if Pillow is not installed."""
    try:
        from PIL import Image as pillow
    except ImportError as error:
        raise ConfigError("Images need Pillow, which is not installed.", hint=install_hint("images")) from error
    if len(data) > MAX_BYTES:
        largest = _describe_size(MAX_BYTES)
        hint = "Find a smaller one."
        raise ToolError(f"The image has {_describe_size(len(data))}; {largest} are the most.", hint=hint)
    try:
        decoded = pillow.open(BytesIO(data), formats=tuple(_MEDIA))
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise ToolError("The image has far too many pixels.", hint="Find a smaller one.") from error
    except Exception as error:  # Pillow's readers raise whatever they meet in a broken file
        raise ToolError("This is no image that can be read.", hint=f"Formats: {', '.join(_MEDIA)}.") from error
    width, height = decoded.size
    if width * height > MAX_PIXELS:
        decoded.close()
        said = f"The image is {width}x{height}: more than {MAX_PIXELS // 1_000_000} million pixels."
        raise ToolError(said, hint="Find a smaller one.")
    try:
        decoded.load()
    except Exception as error:
        decoded.close()
        raise ToolError("The image is broken or cut off.", hint="Fetch it again, or find another.") from error
    return decoded


def _describe_size(count: int) -> str:
    """Return a number of bytes in words: `84 kB`, `1.2 MB`."""
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def images(*, private: bool = False, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tools `download_image` and `shrink_image`.

    `private` also allows addresses of this machine and of private networks. By default they are refused, because a
    model's address may come from a malicious page. `timeout` in seconds.
    """

    @tool(read_only=True, open_world=True)
    async def download_image(url: str) -> Image:
        """Downloads an image from the web.

        Args:
            url: The image's own address, beginning with http:// or https://.
        """
        from plait.toolkits.download import download_page

        file = await download_page(url.strip(), MAX_BYTES, seconds=timeout, private=private)
        return await asyncio.to_thread(Image.from_bytes, file.data)

    @tool(read_only=True)
    def shrink_image(image: Image, ratio: float) -> Image:
        """Makes an image smaller: width and height are both multiplied by the ratio.

        Args:
            image: The image; it stays as it is, a new one is given.
            ratio: Above 0 and at most 1: one half gives half the width and half the height.
        """
        return image.shrunk(ratio)

    return (download_image, shrink_image)


def nasa(*, base_url: Setting = None, key: Setting = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tool `get_nasa_astronomy_picture_of_the_day`.

    `base_url` (environment: NASA_URL) is the service's address, `key` (NASA_API_KEY) its key: without one the public
    DEMO_KEY is used, which allows some thirty calls an hour.
    """
    names = ("NASA_URL", "https://api.nasa.gov", "NASA_API_KEY", "")
    service = Service("NASA's picture of the day", *names, base_url, key, timeout)

    @tool(read_only=True, open_world=True)
    async def get_nasa_astronomy_picture_of_the_day() -> dict[str, Any]:
        """NASA's astronomy picture of today: its title, date, explanation, and the addresses of its files.

        Note:
            `url` is the picture's address and `hdurl` that of a larger one; on days with a video `media_type` is
            "video", and `thumbnail_url` may be a picture of it.
        """
        params = {"api_key": service.key(needed=False) or "DEMO_KEY", "thumbs": "true"}
        read = (await service.ask("/planetary/apod", params=params)).json_object()
        if not isinstance(read.get("url") or read.get("title"), str):
            raise ToolError("NASA's answer holds no picture.", hint="Try again later.")
        picture = {name: read[name] for name in _NASA_FIELDS if read.get(name)}
        if "copyright" in picture:
            picture["copyright"] = " ".join(str(picture["copyright"]).split())
        return picture

    return (get_nasa_astronomy_picture_of_the_day,)
