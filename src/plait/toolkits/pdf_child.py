"""Reads the text of a PDF from stdin, in a process of its own: the file may be made to harm. Imports nothing of Plait.

The arguments are its limits: CPU seconds, bytes of memory, pages, characters. Writes the result as JSON.
"""

import json
import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any


def read_pages(content: bytes, most_pages: int, most_chars: int) -> dict[str, Any]:
    """Return `pages`, and the `count` of all pages; or `problem`."""
    pdfium = import_module("pypdfium2")
    try:
        document = pdfium.PdfDocument(content)
        count = len(document)
    except pdfium.PdfiumError as why:
        is_locked = "password" in str(why).lower() or "security" in str(why).lower()
        return {"problem": "it is encrypted and needs a password" if is_locked else "it is broken, or no PDF"}
    pages: list[str] = []
    while len(pages) < min(count, most_pages) and most_chars > 0:
        try:
            pages.append(document[len(pages)].get_textpage().get_text_bounded()[:most_chars])
        except pdfium.PdfiumError:
            pages.append("")
        most_chars -= len(pages[-1])
    return {"pages": pages, "count": count}


if __name__ == "__main__":
    seconds, memory, *limits = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with suppress(ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(read_pages(sys.stdin.buffer.read(), *limits)))
