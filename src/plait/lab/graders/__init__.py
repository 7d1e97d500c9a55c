"""Graders: whether a run did its task, by a word such as `exact`, `number:0.01` or `checks.py:right`."""

from plait.lab.graders.registry import NAMES, grader, mark

__all__ = ["NAMES", "grader", "mark"]
