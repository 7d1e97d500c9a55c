"""Prompts as files, one folder a loop."""

from plait.prompts.book import PromptBook, shipped, strategies

__all__ = ["PromptBook", "shipped", "strategies"]
