"""A run as one HTML file: the window's own page with the run inside it, to look at anywhere and to mail.

The file loads nothing and sends nothing: its policy lets its own script and style run (by their hashes), nothing else.
What the run holds stands in an element that is data, written so that nothing in it can end that element.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

from plait.journal.codec import encode
from plait.journal.records import Row, RunRow
from plait.runtime.retell import recorded_loop
from plait.window.document import facts, plan_of, waiting
from plait.window.telling import told
from plait.window.wire import Exchange, exchanges

LONGEST = 200_000
"""Characters of one text that the file holds; what is longer is cut, and says so."""
BODY = 2_000_000
"""Characters of one response that it holds."""

_IMPORT = re.compile(r"^import\s+\{[^}]*\}\s+from\s+\"\./([\w-]+\.js)\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const|class|function|async)", re.MULTILINE)
_EXPORTED = re.compile(r"^export \{[^}]*\};\n", re.MULTILINE)


def page(row: RunRow, rows: Sequence[Row], *, most: int | None = LONGEST) -> str:
    """The run as one HTML file. `most`: characters of a text that it holds, None for all."""
    style, script = asset("page.css"), bundled("main.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    shell = asset("index.html")
    head = shell.index("<link rel="), shell.index("</head>")
    own = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    body = shell[head[1] :].replace('<nav class="pages"', '<nav class="pages" hidden')
    data = f'<script type="application/json" id="data">{block(document(row, rows, most=most))}</script>\n'
    end = f'{data}<script type="module">{script}</script>\n</body>'
    return shell[: head[0]] + own + body.replace("</body>", end)


def document(row: RunRow, rows: Sequence[Row], *, most: int | None = LONGEST) -> dict[str, Any]:
    """What the file holds of the run: all that the server would tell of it."""
    teller = told(rows, recorded_loop(row.head), most=most)
    return {
        "run": facts(row, teller),
        "steps": teller.changes(),
        "seq": teller.seq,
        "waiting": waiting(rows) if row.status == "waiting" else [],
        "plan": plan_of(row, rows),
        "wire": [_exchange(each) for each in exchanges(row.head, rows)],
    }


def block(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end that element, whatever reads it."""
    return (
        encode(value)
        .decode()
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
        .replace("\x00", "\\u0000")
    )


def bundled(name: str) -> str:
    """A script with all it imports, as one: each module once, after those that it needs."""
    done: dict[str, str] = {}

    def add(each: str) -> None:
        if each in done:
            return
        text = asset(each)
        done[each] = ""
        for needed in _IMPORT.findall(text):
            add(needed)
        # In its place among the others a module keeps its own names to itself.
        del done[each]
        done[each] = _alone(each, text)

    add(name)
    return "\n".join(done.values())


@functools.cache
def asset(name: str) -> str:
    """A file of the page, as it is."""
    return resources.files("plait.window.page").joinpath(name).read_text("utf-8")


def _alone(name: str, text: str) -> str:
    names = re.findall(r"^export (?:const|class|function|async function) (\w+)", text, re.MULTILINE)
    imports = [
        f"const {found} = {_module(source)};"
        for found, source in re.findall(r"^import\s+(\{[^}]*\})\s+from\s+\"\./([\w-]+\.js)\";", text, re.MULTILINE)
    ]
    inside = _EXPORT.sub("", _EXPORTED.sub("", _IMPORT.sub("", text)))
    given = f"return {{ {', '.join(names)} }};"
    return f"const {_module(name)} = (() => {{\n" + "\n".join((*imports, inside, given)) + "\n})();"


def _module(name: str) -> str:
    return f"module_{name.removesuffix('.js').replace('-', '_')}"


def _exchange(each: Exchange) -> dict[str, Any]:
    """An exchange with its request by what differs, so that a long run's file does not grow with its square."""
    response = each.response
    if response is not None and len(response) > BODY:
        response = f"{response[:BODY]}\n… {len(response) - BODY:,} more characters"
    return {**as_json(each), "request": each.request if each.before is None else None, "response": response}


def as_json(each: Exchange) -> dict[str, Any]:
    """An exchange as the page reads it."""
    return {name: getattr(each, name) for name in each.__struct_fields__}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
