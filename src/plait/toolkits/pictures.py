"""Images from the web, and smaller."""

from __future__ import annotations

from plait.toolkits.http import SECONDS
from plait.toolkits.image import Image
from plait.tools.tool import Tool, tool


def images(*, private: bool = False, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """The tools `download_image` and `shrink_image`.

    `private` allows addresses of this machine and of private networks as well: an address that a model gives may come
    from a page that means harm. `timeout` in seconds.
    """

    @tool(read_only=True)
    async def download_image(url: str) -> Image:
        """Downloads an image from the web.

        Args:
            url: The image's own address, beginning with http:// or https://.
        """
        import asyncio

        from plait.toolkits.download import download
        from plait.toolkits.image import MAX_BYTES

        data = await download(url.strip(), MAX_BYTES, seconds=timeout, private=private)
        return await asyncio.to_thread(Image.from_bytes, data)

    @tool(read_only=True)
    def shrink_image(image: Image, ratio: float) -> Image:
        """Makes an image smaller: width and height are both multiplied by the ratio.

        Args:
            image: The image; it stays as it is, a new one is given.
            ratio: Above 0 and at most 1: one half gives half the width and half the height.
        """
        return image.shrunk(ratio)

    return (download_image, shrink_image)
