"""Pictures of the day: their explanations are true and our own words; the pictures are drawn, the same each time."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from io import BytesIO

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.installation import install_hint
from plait.world.chance import chance

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


PICTURES = (
    DailyPicture(
        "owl_nebula",
        "The Owl in the Great Bear",
        "About six thousand years ago a star like the Sun threw off its outer layers, and this round shell of "
        "glowing gas is what became of them. Two dark hollows on either side of the centre give the planetary "
        "nebula its face. It lies some 2,600 light-years away below the bowl of the Big Dipper and is about two "
        "light-years across. The hot white dwarf in the middle will light the gas for only a few thousand years "
        "more.",
        "Marit Oosterveld",
        1200,
        801,
    ),
    DailyPicture(
        "olympus_rim",
        "Morning on Olympus Mons",
        "The largest volcano known in the Solar System rises 22 kilometres above the plains of Mars, more than "
        "twice the height of Everest, and is as wide as Poland. In this view the low Sun picks out the cliff at its "
        "foot, in places six kilometres tall. Thin clouds of water ice gather over the six nested craters at the "
        "top, which formed as chambers of magma emptied and the ground above them fell in.",
        "",
        1024,
        683,
    ),
    DailyPicture(
        "pleiades_dust",
        "Dust Among the Seven Sisters",
        "The blue haze around the brightest stars of the Pleiades is not left over from their birth. The cluster, "
        "about 440 light-years off in Taurus, happens to be crossing a cloud of fine dust, which scatters the blue "
        "part of starlight best. More than a thousand stars belong to the cluster; without a telescope most people "
        "count six. In some 250 million years they will have drifted apart.",
        "Teodor Vasile",
        1280,
        853,
    ),
    DailyPicture(
        "enceladus_jets",
        "Fountains of Enceladus",
        "From four long cracks near its south pole, Saturn's moon Enceladus sprays grains of ice and vapour "
        "hundreds of kilometres into space. The moon is only 500 kilometres wide, yet an ocean of salt water hides "
        "below its shell. A spacecraft flew through the spray and tasted salt, silica and simple organic compounds. "
        "What falls back as snow makes this the most reflective surface in the Solar System, and what escapes feeds "
        "the E ring.",
        "",
        1100,
        734,
    ),
    DailyPicture(
        "eclipse_corona",
        "Two Minutes of Corona",
        "When the Moon covers the Sun whole, the faint outer atmosphere that is always there comes into sight. This "
        "view was put together from forty exposures taken during two minutes of totality. The streamers follow the "
        "magnetic field, pulled outward by the solar wind. Why the corona is more than a million degrees hot, while "
        "the surface below has 5,500, is still argued about.",
        "Ines Calvo",
        1350,
        901,
    ),
    DailyPicture(
        "antennae_pair",
        "A Slow Collision of Galaxies",
        "Two spiral galaxies in the constellation Corvus began to fall through each other some 600 million years "
        "ago. Tides have drawn out two long tails of stars that look like an insect's antennae. Hardly any two "
        "stars ever meet, but clouds of gas do, and where they are pressed together thousands of young blue "
        "clusters shine. At about 45 million light-years it is one of the nearest collisions; in the end one "
        "elliptical galaxy is left.",
        "Rune Halvorsen",
        1250,
        1001,
    ),
    DailyPicture(
        "noctilucent_night",
        "Clouds That Shine at Night",
        "An hour after sunset in June the sky over the Baltic Sea filled with electric blue ripples. Noctilucent "
        "clouds form about 80 kilometres up, at the edge of space, where ice grows on dust that meteors leave "
        "behind. They are so high that the Sun still reaches them when the ground is dark. First described in 1885, "
        "they have been seen farther from the poles in recent years.",
        "Katarzyna Wilk",
        1440,
        961,
    ),
)


def picture_of(seed: int, on: date) -> DailyPicture:
    """Chooses the picture of one day."""
    return chance(seed, "picture", on.isoformat()).choice(PICTURES)


def answer(picture: DailyPicture, on: date) -> dict[str, str]:
    """Returns what the service says of a picture."""
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


def size(picture: DailyPicture, large: bool) -> tuple[int, int]:
    """Returns width and height in pixels of a picture, or of its large version."""
    scale = SCALE if large else 1
    return round(picture.width * scale), round(picture.height * scale)


def find_picture(url: str) -> tuple[DailyPicture, bool] | None:
    """Finds the picture at an address, and whether it is the large version; None if there is nothing."""
    if not url.startswith(f"{BASE}/") or not url.endswith(".jpg"):
        return None
    name = url.rpartition("/")[2].removesuffix(".jpg")
    large = name.endswith("_large")
    found = next((each for each in PICTURES if each.name == name.removesuffix("_large")), None)
    return None if found is None else (found, large)


@lru_cache(maxsize=8)
def draw(picture: DailyPicture, large: bool = False) -> bytes:
    """Draws the picture as a JPEG: stars before glowing clouds, the same for the same picture. Needs Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFilter
    except ImportError as error:
        raise ConfigError("Images need Pillow, which is not installed.", hint=install_hint("images")) from error
    dice = chance("drawn", picture.name)
    width, height = size(picture, large)
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


def shows(picture: DailyPicture, data: bytes) -> bool:
    """Tells whether an image shows that picture, whatever its size."""
    from PIL import Image, ImageChops, ImageStat

    def shrink(each: bytes) -> Image.Image:
        with Image.open(BytesIO(each)) as opened:
            return opened.convert("RGB").resize((24, 16), Image.Resampling.BOX)

    apart = ImageChops.difference(shrink(draw(picture)), shrink(data))
    return sum(ImageStat.Stat(apart).mean) / 3 < 8
