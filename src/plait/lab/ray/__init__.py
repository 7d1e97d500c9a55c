"""A comparison on a Ray cluster."""

from plait.lab.ray.engine import RayEngine

__all__ = ["RayEngine"]
