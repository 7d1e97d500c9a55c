"""Plait: every reasoning-and-acting loop, one library."""

__version__ = "0.1.0"
