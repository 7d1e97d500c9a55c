"""Tasks in an office whose mails, pages, documents and tools hold instructions of strangers."""

from __future__ import annotations

from plait.lab.injections.values import InjectedTask, OfficeCall

__all__ = ["InjectedTask", "OfficeCall"]
