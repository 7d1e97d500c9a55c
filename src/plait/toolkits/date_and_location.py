"""Where and when the user is: today's date, and the place from a setting or the network address (ipinfo)."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from typing import Any

from plait.core.errors import ToolError
from plait.toolkits.service import SECONDS, Service, Setting
from plait.tools.tool import Tool, tool


def date(*, now: Callable[[], datetime] | None = None) -> tuple[Tool, ...]:
    """Makes the tool `get_current_date`. `now` is the clock (default: this machine, in its time zone)."""

    @tool(read_only=True)
    def get_current_date() -> str:
        """Today's date: year, month, day, and the weekday."""
        return (now or datetime.now)().strftime("%Y-%m-%d (%A)")

    return (get_current_date,)


def location(
    *, place: Setting = None, base_url: Setting = None, key: Setting = None, timeout: float = SECONDS
) -> tuple[Tool, ...]:
    """Makes the tool `get_user_location`.

    `place` (environment: PLAIT_LOCATION) sets it, as in "Lyon, FR; 45.76; 4.84", and no service is asked. Otherwise the
    service at `base_url` (IPINFO_URL) finds it from the network address, with `key` (IPINFO_TOKEN) if given.
    """
    service = Service("ipinfo", "IPINFO_URL", "https://ipinfo.io", "IPINFO_TOKEN", "", base_url, key, timeout)

    @tool(read_only=True)
    async def get_user_location() -> dict[str, Any]:
        """Where the user is now: the address in words, latitude and longitude in degrees."""
        said = place or os.environ.get("PLAIT_LOCATION", "").strip()
        if said:
            return _read_setting(said)
        token = service.key(needed=False)
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        read = (await service.ask("/json", headers=headers)).json_object()
        try:
            latitude, longitude = (float(part) for part in str(read.get("loc", "")).split(","))
        except ValueError:
            raise ToolError(
                "The user's place can't be told from this network address.",
                hint='Set PLAIT_LOCATION="PLACE; LATITUDE; LONGITUDE".',
            ) from None
        address = ", ".join(str(read[name]) for name in ("city", "region", "country") if read.get(name))
        return {"address": address, "latitude": latitude, "longitude": longitude}

    return (get_user_location,)


def _read_setting(said: str) -> dict[str, Any]:
    try:
        address, latitude, longitude = said.split(";")
        north, east = float(latitude), float(longitude)
        if not (-90 <= north <= 90 and -180 <= east <= 180):
            raise ValueError
    except ValueError:
        raise ToolError(
            f"The user's place is set to {said!r}, which can't be read.",
            hint='PLAIT_LOCATION is "PLACE; LATITUDE; LONGITUDE".',
        ) from None
    return {"address": address.strip(), "latitude": north, "longitude": east}
