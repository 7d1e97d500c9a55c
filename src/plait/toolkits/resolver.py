"""Looks names up for aiohttp, and gives public addresses only: what is connected to is what was checked."""

from __future__ import annotations

import asyncio
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from plait.toolkits.download import resolved


class Public(AbstractResolver):
    """A resolver that refuses a name when any address it stands for is not public."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.to_thread(resolved, host, port, family)
        return [
            {
                "hostname": host,
                "host": str(address[0]),
                "port": int(address[1]),
                "family": kind,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is held open."""
