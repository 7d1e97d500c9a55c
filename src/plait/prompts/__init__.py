"""Prompts as files, one folder a loop."""

from plait.prompts.book import PromptBook, shipped

__all__ = ["PromptBook", "shipped"]
