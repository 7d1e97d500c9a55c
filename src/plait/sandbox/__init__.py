"""The Python sessions that code actions run in, by the name of what confines them."""

from plait.sandbox.base import OutCall, Result, Sandbox, Session, Settings, Turn

__all__ = ["OutCall", "Result", "Sandbox", "Session", "Settings", "Turn"]
