"""Claims about images: what is read and what refused, what shrinking keeps, where downloads may come from."""

from __future__ import annotations

import asyncio
import io
import ipaddress
import socket
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as pillow

from conftest import for_each
from plait.core.artifacts import Artifact
from plait.core.errors import ToolError
from plait.installation import install_hint
from plait.toolkits import Image, download, images
from plait.toolkits.download import is_public
from toolkits_server import call, named, picture, refusal, site

# --- images


@for_each(
    ("kind", "media", "suffix"),
    [
        ("JPEG", "image/jpeg", ".jpg"),
        ("PNG", "image/png", ".png"),
        ("GIF", "image/gif", ".gif"),
        ("WEBP", "image/webp", ".webp"),
        ("BMP", "image/bmp", ".bmp"),
        ("TIFF", "image/tiff", ".tiff"),
    ],
)
def test_an_image_says_its_size_and_kind(kind: str, media: str, suffix: str) -> None:
    data = picture(640, 480, kind)
    image = Image.from_bytes(data)
    assert (image.media_type, image.width, image.height, image.suffix, image.data) == (media, 640, 480, suffix, data)
    assert image.about().startswith(f"<Image 640x480 {kind}, ")
    assert repr(image) == f"Image(media_type='{media}', width=640, height=480)"


def test_the_size_of_the_file_is_in_words() -> None:
    assert Image(b"x" * 84_200, "image/jpeg", 640, 480).about() == "<Image 640x480 JPEG, 84 kB>"
    assert Image(b"x" * 999, "image/png", 1, 2).about() == "<Image 1x2 PNG, 999 bytes>"
    assert Image(b"x" * 1_240_000, "image/png", 1, 2).about() == "<Image 1x2 PNG, 1.2 MB>"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(width: int, height: int) -> bytes:
    """A small PNG file that says it is huge."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * ((width // 8 + 2) * min(height, 1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@for_each(
    ("data", "said"),
    [
        (b"", "no image"),
        (b"<html>not here</html>", "no image"),
        (picture()[:60], "broken or cut off"),
        (picture(400, 400, "JPEG")[:2000], "broken or cut off"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no image"),
        (bomb(9000, 9000), "more than 64 million pixels"),
        (bomb(60_000, 60_000), "pixels"),
        (b"\xff\xd8\xff" + b"\0" * (33 << 20), "are the most"),
    ],
)
def test_what_is_no_whole_image_within_bounds_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        Image.from_bytes(data)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@given(st.binary(max_size=200), st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"]), st.integers(0, 200))
def test_broken_bytes_never_raise_anything_else(junk: bytes, kind: str, at: int) -> None:
    whole = picture(12, 12, kind)
    for data in (junk, whole[:at] + junk, whole[:at] + junk + whole[at + len(junk) :]):
        with suppress(ToolError):
            Image.from_bytes(data)


@pytest.mark.parametrize(
    ("kind", "kept"), [("JPEG", "JPEG"), ("PNG", "PNG"), ("WEBP", "WEBP"), ("GIF", "PNG"), ("BMP", "PNG")]
)
def test_a_smaller_image_has_both_sides_times_the_ratio(kind: str, kept: str) -> None:
    image = Image.from_bytes(picture(1200, 801, kind))
    small = image.shrunk(0.5)
    assert (small.width, small.height, small.format) == (600, 400, kept)
    assert Image.from_bytes(small.data) == small
    assert (image.width, image.height) == (1200, 801)
    assert image.shrunk(1) is image
    tiny = image.shrunk(0.0001)
    assert (tiny.width, tiny.height) == (1, 1)


@for_each("ratio", [0, -0.5, 1.01, 50, float("nan"), float("inf")])
def test_a_ratio_that_does_not_shrink_is_refused(ratio: float) -> None:
    with pytest.raises(ToolError, match="above 0 and at most 1"):
        Image.from_bytes(picture()).shrunk(ratio)


def test_transparency_and_palettes_outlive_shrinking() -> None:
    clear = io.BytesIO()
    pillow.new("RGBA", (20, 10), (255, 0, 0, 0)).save(clear, "PNG")
    with pillow.open(io.BytesIO(Image.from_bytes(clear.getvalue()).shrunk(0.5).data)) as small:
        assert small.convert("RGBA").getpixel((2, 2))[3] == 0  # type: ignore[index]
    palette = io.BytesIO()
    pillow.new("P", (20, 10)).save(palette, "GIF")
    assert Image.from_bytes(palette.getvalue()).shrunk(0.5).format == "PNG"
    grey = io.BytesIO()
    pillow.new("CMYK", (20, 10)).save(grey, "JPEG")
    assert Image.from_bytes(grey.getvalue()).shrunk(0.5).format == "JPEG"


@for_each("mode", ["1", "L", "I", "F", "I;16", "CMYK", "YCbCr", "LAB", "PA"])
def test_a_tiff_in_any_colours_becomes_a_png(mode: str) -> None:
    out = io.BytesIO()
    pillow.new(mode, (20, 10)).save(out, "TIFF")
    small = Image.from_bytes(out.getvalue()).shrunk(0.5)
    assert Image.from_bytes(small.data).about().startswith("<Image 10x5 PNG")


def test_a_photo_taken_sideways_stays_upright_and_its_notes_are_gone() -> None:
    notes = pillow.Exif()
    notes[0x0112] = 6  # turn by 90 degrees to show
    notes[0x010F] = "a camera's maker"
    image = Image.from_bytes(picture(40, 20, "JPEG", exif=notes))
    small = image.shrunk(0.5)
    assert (small.width, small.height) == (10, 20)
    assert Image.from_bytes(small.data) == small
    assert b"a camera's maker" not in small.data


def test_an_image_written_down_is_the_same_again_without_pillow() -> None:
    image = Image.from_bytes(picture())
    assert Artifact.kinds["image"].load(image.dump()) == image
    for data in (b"", b"{}\nx", b'{"media_type": "text/html", "width": 1, "height": 1}\nx', image.data):
        with pytest.raises(ValueError, match="not the bytes of an image"):
            Image.load(data)
    script = (
        "import sys; sys.modules['PIL'] = None\n"
        "from plait.toolkits import Image\n"
        "image = Image(b'x', 'image/png', 3, 4); assert Image.load(image.dump()) == image\n"
        "try: Image.from_bytes(b'x')\n"
        "except Exception as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == f"Images need Pillow, which is not installed. {install_hint('images')}"


# --- downloads


async def test_an_image_is_downloaded_and_shrunk() -> None:
    async with site({"/a.png": web.Response(body=picture(60, 40), content_type="image/png")}) as there:
        toolkit = images(private=True)
        found = await call(toolkit, "download_image", url=f" {there.address}/a.png ")
        assert (found.width, found.height, found.data) == (60, 40, picture(60, 40))
        assert there.seen[0].headers["user-agent"].startswith("plait")
        assert "cookie" not in there.seen[0].headers
    small = await call(toolkit, "shrink_image", image=found, ratio=0.5)
    assert (small.width, small.height) == (30, 20)


async def test_redirects_are_followed_to_the_web_only_and_not_for_ever() -> None:
    def to(place: str, status: int = 302) -> web.Response:
        return web.Response(status=status, headers={"Location": place})

    answers = {
        "/a.png": web.Response(body=picture()),
        "/one": to("/a.png"),
        "/two": to("one", 308),
        "/round": to("/round"),
        "/file": to("file:///etc/passwd"),
        "/ftp": to("ftp://example.org/a.png"),
        "/none": to("javascript:alert(1)"),
    }
    async with site(answers) as there:
        toolkit = images(private=True)
        assert (await call(toolkit, "download_image", url=f"{there.address}/two")).width == 40
        assert "more than 5" in await refusal(toolkit, "download_image", url=f"{there.address}/round")
        for path in ("/file", "/ftp", "/none"):
            assert "not a web address" in await refusal(toolkit, "download_image", url=there.address + path)


@for_each(
    "url",
    [
        "",
        "picture.jpg",
        "file:///etc/passwd",
        "ftp://a.example/x",
        "data:image/png;base64,AAAA",
        "http://[::1",
        "http://a:99999/",
    ],
)
async def test_what_is_no_address_of_the_web_is_told(url: str) -> None:
    assert "not a web address" in await refusal(images(), "download_image", url=url)


PRIVATE = [
    "127.0.0.1",
    "127.1.2.3",
    "localhost",
    "a.localhost",
    "10.0.0.1",
    "192.168.1.1",
    "172.16.0.1",
    "169.254.169.254",
    "0.0.0.0",
    "100.64.0.1",
    "[::1]",
    "[::]",
    "[fd00::1]",
    "[fe80::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[::127.0.0.1]",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "127.0.0.1.",
    "１２７.0.0.1",  # digits of another script are plain ones to whoever connects
    "127。0。0。1",
    "①②⑦.0.0.1",
    "ⓛocalhost",
    "224.0.0.1",
    "255.255.255.255",
]


@for_each("host", PRIVATE)
async def test_no_private_address_is_asked(host: str) -> None:
    async with site({"/a.png": web.Response(body=picture())}) as there:
        port = there.address.rpartition(":")[2]
        said = await refusal(images(timeout=5), "download_image", url=f"http://{host}:{port}/a.png")
        # Where the machine's own resolver does not take such a form of an address, it can't be reached at all.
        odd = host in ("2130706433", "0x7f000001", "0177.0.0.1", "127.1")
        assert "not on the open network" in said or (odd and "can't be reached" in said), said
        assert there.seen == []


async def test_a_name_that_stands_for_a_private_address_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def lookup(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == "pictures.example" else host, port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    async with site({"/a.png": web.Response(body=picture())}) as there:
        port = there.address.rpartition(":")[2]
        said = await refusal(images(), "download_image", url=f"http://pictures.example:{port}/a.png")
        assert "pictures.example is not on the open network" in said
        assert there.seen == []


async def test_a_redirect_into_the_private_network_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first host passes for public here, as it must for a redirect to be met at all."""
    async with site({"/inner.png": web.Response(body=picture())}) as inner:
        away = web.Response(status=302, headers={"Location": f"{inner.address}/inner.png"})
        async with site({"/a.png": away}) as outer:
            port = outer.address.rpartition(":")[2]
            real = download.look_up

            def lookup(host: str, number: int, family: int) -> Any:
                if host != "pictures.example":
                    return real(host, number, family)
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number))]

            monkeypatch.setattr("plait.toolkits.download.look_up", lookup)
            said = await refusal(images(), "download_image", url=f"http://pictures.example:{port}/a.png")
            assert "127.0.0.1 is not on the open network" in said
            assert (len(outer.seen), len(inner.seen)) == (1, 0)


@given(st.ip_addresses())
def test_what_python_calls_private_is_not_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
    ):
        assert not is_public(address)
    if isinstance(address, ipaddress.IPv4Address):
        assert is_public(ipaddress.IPv6Address(f"64:ff9b::{address}")) <= is_public(address)
        assert is_public(ipaddress.IPv6Address(f"::ffff:{address}")) <= is_public(address)


def test_addresses_of_the_open_network_are_public() -> None:
    for address in ("8.8.8.8", "93.184.216.34", "2606:4700::1111"):
        assert is_public(ipaddress.ip_address(address))


async def test_a_download_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.toolkits.image.MAX_BYTES", 10_000)

    async def pour(seen: Any) -> web.StreamResponse:
        return web.Response(body=b"x" * 20_000)

    async def trickle(seen: Any) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    answers = {
        "/large": pour,
        "/slow": trickle,
        "/packed": web.Response(body=zlib.compress(b"x" * 100), headers={"Content-Encoding": "deflate"}),
        "/busy": web.Response(status=429, headers={"Retry-After": "7"}),
        "/page": web.Response(text="<html>", content_type="text/html"),
    }
    async with site(answers) as there:
        toolkit = images(private=True, timeout=2)
        assert "sent more than" in await refusal(toolkit, "download_image", url=f"{there.address}/large")
        assert "no answer in 2 s" in await refusal(toolkit, "download_image", url=f"{there.address}/slow")
        assert "compressed" in await refusal(toolkit, "download_image", url=f"{there.address}/packed")
        assert "Wait 7 s" in await refusal(toolkit, "download_image", url=f"{there.address}/busy")
        assert "no image that can be read" in await refusal(toolkit, "download_image", url=f"{there.address}/page")
        assert "answered 404 Not Found" in await refusal(toolkit, "download_image", url=f"{there.address}/nowhere")
    assert "connection refused" in await refusal(toolkit, "download_image", url=f"{there.address}/gone")


def test_the_tools_are_read_only_and_named_as_recorded() -> None:
    toolkit = images()
    assert [tool.name for tool in toolkit] == ["download_image", "shrink_image"]
    assert all(tool.read_only for tool in toolkit)
    assert list(named(toolkit, "shrink_image").spec.parameters["properties"]) == ["image", "ratio"]
