"""A run as plain dicts, one per line of JSON, for other programs, people and archives."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from plait.core.text import escape_hidden
from plait.journal import codec
from plait.journal.records import Row, RunRow


def export(
    run: RunRow, rows: Iterable[Row], contents: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[dict[str, Any]]:
    """Yield the run (`type` "run"), its attached files (`type` "content", `contents` by digest), then every row in
    order, as dicts that JSON can hold.

    A row has `seq`, `at` (ISO 8601, UTC), the record's own fields with its kind as `type`, and its exact body: `body`
    if it is UTF-8 text, else `body_base64`. `restore_body` returns the bytes.
    """
    yield {
        "type": "run",
        "status": run.status,
        "started": _iso(run.started),
        "updated": _iso(run.updated),
        "outcome": run.outcome,
        "totals": run.totals,
        "grade": run.grade,
        "head": json.loads(codec.encode(run.head)),
    }
    for digest, content in contents.items():
        yield {"type": "content", "digest": digest, "body_base64": base64.b64encode(content).decode()}
    for row in rows:
        record = json.loads(codec.encode(row.record))
        line = {"type": record.pop("type"), "seq": row.seq, "at": _iso(row.at), **record}
        if row.body is not None:
            try:
                line["body"] = row.body.decode()
            except UnicodeDecodeError:
                line["body_base64"] = base64.b64encode(row.body).decode()
        yield line


def lines(run: RunRow, rows: Iterable[Row], contents: Mapping[str, bytes] = MappingProxyType({})) -> Iterator[str]:
    """Yield the same dicts as lines of JSON, without line ends."""
    for each in export(run, rows, contents):
        try:
            text = json.dumps(each, ensure_ascii=False)
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair can only be written escaped
            text = json.dumps(each)
        yield escape_hidden(text)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
