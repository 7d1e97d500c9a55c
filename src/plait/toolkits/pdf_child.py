"""Reads the text of one PDF in a process of its own, because the file may be broken or made to harm.

Takes the file from stdin; the arguments are its limits: CPU seconds, bytes of memory, pages, characters. Writes JSON:
the text of each page, or why there is none. `pdf.py` runs this file; it imports nothing of Plait.
"""

import json
import resource
import sys
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
    for i in range(min(count, most_pages)):
        try:
            text = document[i].get_textpage().get_text_bounded()
        except pdfium.PdfiumError:
            text = ""
        pages.append(text[:most_chars])
        most_chars -= len(pages[-1])
        if most_chars <= 0:
            break
    return {"pages": pages, "count": count}


if __name__ == "__main__":
    seconds, memory, *limits = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(read_pages(sys.stdin.buffer.read(), *limits)))
