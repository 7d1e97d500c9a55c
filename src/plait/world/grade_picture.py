"""Grades messages with the picture of the day."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plait.world import pictures, reading
from plait.world.grades import Findings, no_other_date, said
from plait.world.state import Sent, World

if TYPE_CHECKING:
    from plait.world.tasks import WorldTask


def picture_of_the_day(task: WorldTask, world: World, sent: Sent, found: Findings) -> None:
    """The picture of the day at half its size, a text that begins as asked and says more than the title."""
    picture, text = world.picture, sent.text.strip()
    greeting = re.match(r"[\s*_\"'“‘~>#]*hello from space\s*[!.]*[*_\"'”’~]*", text, re.I)
    if sent.image is None:
        found.lacks.append("no image was sent")
    else:
        _half(picture, sent, found)
    if greeting is None:
        where = "stands later" if re.search("hello from space", text, re.I) else "is missing"
        found.flaws.append(f"the message does not begin with 'Hello from Space!', which {where}")
    elif "!" not in greeting[0]:
        found.flaws.append("the greeting has no exclamation mark")
    rest = text[greeting.end() :] if greeting else text
    said_of = reading.words(re.sub(re.escape(picture.title), " ", rest, flags=re.I))
    facts = reading.words(f"{picture.explanation} {picture.copyright}") - reading.words(picture.title)
    if len(said_of & facts) < 3:
        only = picture.title.casefold() in rest.casefold()
        found.flaws.append("nothing but the title is said of the image" if only else "nothing is said of the image")
    told = pictures.told(picture, world.today)
    known = [each for each, *_ in reading.numbers(f"{picture.explanation} {picture.title}")]
    known += [*pictures.size(picture, False), *pictures.size(picture, True), 50, 0.5, 2]
    known += [sent.image.width, sent.image.height] if sent.image is not None else []
    for number, decimals, start, end in reading.numbers(rest):
        if not said(number, decimals, known):
            found.flaws.append(f"{rest[start:end].strip()} is not from the world")
    for address in re.findall(r"https?://[^\s<>()\"']+", rest):
        if address.rstrip(".,;:!?)>*") not in (told["url"], told["hdurl"]):
            found.flaws.append(f"the address {address} is not from the world")
    written = [day for each in reading.dates(picture.explanation, world.today.year) for day in each.days]
    no_other_date(world, rest, [world.today, *written], found)


def _half(picture: pictures.Picture, sent: Sent, found: Findings) -> None:
    image = sent.image
    assert image is not None
    if not _alike(picture, image.data):
        found.lacks.append("the image is not the picture of the day")
        return
    sizes = [pictures.size(picture, large) for large in (False, True)]
    if not any(abs(image.width - w / 2) <= 1 and abs(image.height - h / 2) <= 1 for w, h in sizes):
        w, h = sizes[0]
        found.flaws.append(f"the image is {image.width}x{image.height}, half of {w}x{h} was asked for")


def _alike(picture: pictures.Picture, data: bytes) -> bool:
    """Do the bytes show that picture, whatever their size?"""
    from io import BytesIO

    from PIL import Image, ImageChops, ImageStat

    def small(each: bytes) -> Image.Image:
        with Image.open(BytesIO(each)) as opened:
            return opened.convert("RGB").resize((24, 16), Image.Resampling.BOX)

    apart = ImageChops.difference(small(pictures.draw(picture)), small(data))
    return sum(ImageStat.Stat(apart).mean) / 3 < 8
