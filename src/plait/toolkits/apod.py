"""NASA's Astronomy Picture of the Day."""

from __future__ import annotations

from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.service import SECONDS, Service, Setting
from plait.tools.tool import Tool, tool

_FIELDS = ("date", "title", "explanation", "media_type", "url", "hdurl", "thumbnail_url", "copyright")


def nasa(*, base_url: Setting = None, key: Setting = None, timeout: float = SECONDS) -> tuple[Tool, ...]:
    """Makes the tool `get_nasa_astronomy_picture_of_the_day`.

    `base_url` (environment: NASA_URL) is the service's address, `key` (NASA_API_KEY) its key: without one the public
    DEMO_KEY is used, which allows some thirty calls an hour.
    """
    names = ("NASA_URL", "https://api.nasa.gov", "NASA_API_KEY", "")
    service = Service("NASA's picture of the day", *names, base_url, key, timeout)

    @tool(read_only=True)
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
        picture = {name: read[name] for name in _FIELDS if read.get(name)}
        if "copyright" in picture:
            picture["copyright"] = " ".join(str(picture["copyright"]).split())
        return picture

    return (get_nasa_astronomy_picture_of_the_day,)
