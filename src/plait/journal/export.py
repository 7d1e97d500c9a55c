"""A run as plain dicts, one per line of JSON, for other programs, people and archives."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from plait.core.errors import JournalError
from plait.core.text import escape_hidden
from plait.journal import codec
from plait.journal.records import Row, RunRow
from plait.journal.store import ENDED


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
    """Yield the same dicts as lines of JSON, without line ends; of an ended run then a line with their digest."""
    whole = hashlib.sha256()
    for each in export(run, rows, contents):
        try:
            text = json.dumps(each, ensure_ascii=False)
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair can only be written escaped
            text = json.dumps(each)
        line = escape_hidden(text)
        whole.update(f"{line}\n".encode())
        yield line
    if run.status in ENDED:
        yield json.dumps({"type": "digest", "sha256": whole.hexdigest()})


def read_digest(lines: Sequence[str]) -> tuple[str, str]:
    """Return the id of an exported run, and its digest: SHA-256, in hex, of all its lines with their line ends. Raises
    `JournalError` if the lines are not those that it was made of."""
    try:
        head, last = map(json.loads, (lines[0], lines[-1]))
        run, said = str(head["head"]["run"]), str(last["sha256"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise JournalError("It is no export of an ended run: its first or last line is missing.") from None
    found = hashlib.sha256("".join(f"{line}\n" for line in lines[:-1]).encode()).hexdigest()
    if found != said:
        raise JournalError(f"It was changed: its digest is {found}, and its last line says {said}.")
    return run, said


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
