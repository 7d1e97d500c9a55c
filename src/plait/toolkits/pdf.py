"""The text of a PDF file with its pages, read by pypdfium2 (the extra `pdf`) in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from bisect import bisect_right
from functools import cached_property, lru_cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

from plait.core.errors import ToolError
from plait.installation import install_command
from plait.tools.render import replace_surrogates

MAX_PDF, SECONDS, MEMORY, PAGES, CHARS = 50_000_000, 20, 2 << 30, 2000, 2_000_000
"""Limits of a PDF: its size in bytes; CPU seconds, bytes of memory, pages and characters when it is read."""


class DocumentText(Struct, frozen=True, dict=True):
    """The text of a document. `starts` are the numbers of the lines with which its pages begin, if it has pages."""

    text: str
    starts: tuple[int, ...] = ()

    @cached_property
    def lines(self) -> list[str]:
        """The lines, as editors count them."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")

    def find_page(self, line: int) -> int:
        return bisect_right(self.starts, line)


@lru_cache(maxsize=4)
def read_pdf(content: bytes) -> DocumentText:
    """Return the text of a PDF. Raises `ToolError` for one that has none, or cannot be read within the limits."""
    if find_spec("pypdfium2") is None:
        raise ToolError("reading PDF needs pypdfium2, which is not installed.", hint=install_command("pdf"))
    limits = map(str, (SECONDS, MEMORY, PAGES, CHARS))
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    command = [sys.executable, "-P", str(Path(__file__).with_name("pdf_child.py")), *limits]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=3 * SECONDS, check=True, env=env)
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        hint = "It may be broken."
        raise ToolError(f"it cannot be read within {SECONDS} s and {MEMORY >> 30} GB of memory.", hint=hint) from None
    if problem := found.get("problem"):
        raise ToolError(f"{problem}.", hint="Use another document.")
    pages = [replace_surrogates(page).replace("\r\n", "\n").replace("\r", "\n").strip("\n") for page in found["pages"]]
    if not any(map(str.strip, pages)):
        raise ToolError("it has no text, so it is probably scanned.", hint="It needs text recognition (OCR) first.")
    if len(pages) < found["count"]:
        pages.append(f"(Only {len(pages):,} of {found['count']:,} pages were read.)")
    pages = [page if page.strip() else "(No text on this page.)" for page in pages]
    starts = accumulate((page.count("\n") + 1 for page in pages), initial=1)
    return DocumentText("\n".join(pages), tuple(starts)[: len(found["pages"])])
