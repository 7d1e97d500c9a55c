"""A run as one HTML file: the viewer's page with the run in it, for viewing offline and sending by mail.

The file loads nothing and sends nothing. Its policy allows only its own script and style, by their hashes.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any

from msgspec import structs

from plait.core.notebook import escape_json, hash_source
from plait.journal.codec import encode
from plait.journal.open_questions import find_open_questions
from plait.journal.records import RunRow
from plait.journal.store import Journal, list_descendants, wait_for
from plait.journal.timeline import Timeline
from plait.runtime.run_files import read_files
from plait.view.http_exchanges import HttpExchange, read_exchanges
from plait.view.live import full_timeline
from plait.view.run_view import open_questions, plan_view, read_rating, run_facts
from plait.view.waterfall import read_waterfall

LONGEST = 200_000
"""Characters of one text in the file. A longer one is cut and says so."""
BODY = 2_000_000
"""Characters of one response in the file."""

_IMPORT = re.compile(r"^import\s+(\{[^}]*\})\s+from\s+\"\./([\w-]+)\.js\";\n", re.MULTILINE)
_LATER = re.compile(r"\(await import\(\"\./(run|wire)\.js\"\)\)")
"""The pages that a file can open, among those that are loaded when they are opened."""
_EXPORT = re.compile(r"^export (?=(?:const|class|function|async function) (\w+))", re.MULTILINE)


def render_html(row: RunRow, journal: Journal, *, max_text: int | None = LONGEST) -> str:
    """Render a run of a journal as one HTML file. `max_text`: characters of a text, None for all."""
    style, script = read_asset("colors.css") + read_asset("page.css"), bundle_script("main.js")
    sources = f"script-src {hash_source(script)}; style-src {hash_source(style)}"
    policy = f"default-src 'none'; {sources}; img-src data:; base-uri 'none'; form-action 'none'"
    before, _, rest = read_asset("index.html").partition("<link rel=")
    body = rest[rest.index("</head>") :].replace('<nav class="pages"', '<nav class="pages" hidden')
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    document, timeline = _read_document(row, journal, max_text)
    document["wire"] = [_shrink(each) for each in read_exchanges(row.head, timeline)]
    document["waterfall"] = read_waterfall(journal, row.head.run)
    below = wait_for(list_descendants(journal.store, row.head.run))
    document["children"] = {each.head.run: _read_document(each, journal, max_text)[0] for each in below}
    data = f'<script type="application/json" id="data">{escape_json(encode(document).decode())}</script>\n'
    end = f'{data}<script type="module">{script}</script>\n</body>'
    return before + head + body.replace("</body>", end)


def _read_document(row: RunRow, journal: Journal, max_text: int | None) -> tuple[dict[str, Any], Timeline]:
    """Return a run as its page reads it, with its pictures, and its timeline."""
    run = row.head.run
    timeline = full_timeline(journal, run, max_text=max_text, bodies=True)
    found = read_files(timeline.trace)
    files = [{"id": at.id, "about": str(at), "content": at.data_url if at.is_picture else None} for at in found]
    document = {
        "run": run_facts(row, timeline) | {"files": files} | read_rating(journal, row),
        "steps": timeline.changes(),
        "seq": timeline.seq,
        "waiting": open_questions(row, wait_for(find_open_questions(journal.store, run, timeline.trace))),
        "plan": plan_view(row, timeline.trace),
    }
    return document, timeline.trace


def bundle_script(name: str) -> str:
    """Return a script and all its imports as one: each module once, after the modules that it needs. Of the pages that
    are loaded when they are opened, it has those of one run."""
    bundled: dict[str, str] = {}

    def add(module: str) -> None:
        text = read_asset(f"{module}.js")
        imports = _IMPORT.findall(text)
        for needed in (*(each for _, each in imports), *_LATER.findall(text)):
            if needed not in bundled:
                add(needed)
        text = _LATER.sub(lambda found: _variable(found[1]), text)
        names = [f"const {names} = {_variable(needed)};" for names, needed in imports]
        inside = _EXPORT.sub("", _IMPORT.sub("", text))
        given = f"return {{ {', '.join(_EXPORT.findall(text))} }};"
        # A function for each module keeps its names separate.
        bundled[module] = f"const {_variable(module)} = (() => {{\n" + "\n".join((*names, inside, given)) + "\n})();"

    add(name.removesuffix(".js"))
    return "\n".join(bundled.values())


@functools.cache
def read_asset(name: str) -> str:
    return resources.files("plait.view.page").joinpath(name).read_text("utf-8")


def site_frame() -> str:
    """Return the page of runs for another address of the site: its links lead to the pages of the site."""
    return read_asset("index.html").replace('href="#/', 'href="./#/')


def _shrink(each: HttpExchange) -> dict[str, Any]:
    """Return an exchange with only the changes of its request, so that the file does not grow quadratically."""
    response = each.response
    if response is not None and len(response) > BODY:
        response = f"{response[:BODY]}\n… {len(response) - BODY:,} more characters"
    return {**structs.asdict(each), "request": each.request if each.before is None else None, "response": response}


def _variable(module: str) -> str:
    return f"module_{module.replace('-', '_')}"
