"""Pictures of the day: their explanations are true and our own words; the pictures are drawn, the same each time."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from importlib import resources
from io import BytesIO

import msgspec
from msgspec import Struct

from plait.core.errors import ConfigError
from plait.installation import install_hint
from plait.lab.world.chance import chance

BASE = "https://pictures.example/astronomy"
SCALE = 2.375
"""How much wider and higher the large version is: not twice, so that half of it is not the small one."""


class DailyPicture(Struct, frozen=True):
    """A picture: the name in its address, title, explanation, who made it ("" where nobody owns it), size in pixels."""

    name: str
    title: str
    explanation: str
    copyright: str
    width: int
    height: int


PICTURES = msgspec.json.decode(
    resources.files(__package__).joinpath("pictures.json").read_bytes(), type=tuple[DailyPicture, ...]
)


def describe_picture(picture: DailyPicture, on: date) -> dict[str, str]:
    folder = f"{BASE}/{on:%y%m}"
    fields = {
        "date": on.isoformat(),
        "title": picture.title,
        "explanation": picture.explanation,
        "media_type": "image",
        "url": f"{folder}/{picture.name}.jpg",
        "hdurl": f"{folder}/{picture.name}_large.jpg",
    }
    return fields | ({"copyright": picture.copyright} if picture.copyright else {})


def measure_picture(picture: DailyPicture, large: bool) -> tuple[int, int]:
    """Return width and height in pixels of a picture, or of its large version."""
    scale = SCALE if large else 1
    return round(picture.width * scale), round(picture.height * scale)


def find_picture(url: str) -> tuple[DailyPicture, bool] | None:
    """Find the picture at an address, and whether it is the large version; None if there is nothing."""
    if not url.startswith(f"{BASE}/") or not url.endswith(".jpg"):
        return None
    name = url.rpartition("/")[2].removesuffix(".jpg")
    large = name.endswith("_large")
    found = next((each for each in PICTURES if each.name == name.removesuffix("_large")), None)
    return None if found is None else (found, large)


@lru_cache(maxsize=8)
def draw_picture(picture: DailyPicture, large: bool = False) -> bytes:
    """Draws the picture as a JPEG: stars before glowing clouds, the same for the same picture. Needs Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFilter
    except ImportError as error:
        raise ConfigError("Images need Pillow, which is not installed.", hint=install_hint("images")) from error
    dice = chance("drawn", picture.name)
    width, height = measure_picture(picture, large)
    small = Image.new("RGB", (48, 32), tuple(dice.randrange(0, 30) for _ in range(3)))
    pen = ImageDraw.Draw(small)
    for _ in range(9):
        x, y, r = dice.uniform(0, 48), dice.uniform(0, 32), dice.uniform(3, 11)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=tuple(dice.randrange(10, 170) for _ in range(3)))
    whole = small.filter(ImageFilter.GaussianBlur(3)).resize((width, height), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(whole)
    for _ in range(160):
        x, y, r = dice.random() * width, dice.random() * height, dice.uniform(0.3, 1.6) * width / 1200
        light = dice.randrange(150, 256)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(light, light, min(255, light + 15)))
    out = BytesIO()
    whole.save(out, "JPEG", quality=80)
    return out.getvalue()


def shows_picture(picture: DailyPicture, data: bytes) -> bool:
    """Return whether an image shows that picture, whatever its size."""
    from PIL import Image, ImageChops, ImageStat

    def shrink(each: bytes) -> Image.Image:
        with Image.open(BytesIO(each)) as opened:
            return opened.convert("RGB").resize((24, 16), Image.Resampling.BOX)

    apart = ImageChops.difference(shrink(draw_picture(picture)), shrink(data))
    return sum(ImageStat.Stat(apart).mean) / 3 < 8
