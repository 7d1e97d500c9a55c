"""Exports good runs as files for training: graded as successful in a comparison, or rated good by a person.

The journal has the exact body of each request and its reply. A line is the last request of a call (failed attempts are
skipped) and its reply. Replies that the loop could not read are skipped.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from plait import loops
from plait.core import Reply
from plait.core.errors import ConfigError, JournalError, PlaitError, UnknownRun
from plait.journal.entries import LoopException, ModelCall, RecordedNote
from plait.journal.records import RunRow
from plait.journal.results import Rating, Results
from plait.journal.run_query import ALL, RunQuery, make_query
from plait.journal.store import Journal, wait_for
from plait.journal.timeline import Timeline
from plait.lab.cells import read_result
from plait.lab.results import CellResult
from plait.lab.run_comparison import load_comparison
from plait.models.wires.contents import find_references
from plait.models.wires.turns import arguments, chat_call

SAME = "the same as another"
"""Why a line is skipped: an earlier run has the same messages."""
ATTACHED = "with attached files"
DAMAGED = "of a run whose record can't be read"
Chat = dict[str, Any]
"""A message as it was sent: role, content, and of native calls tool_calls or tool_call_id."""

UNREADABLE, UNENDED, EMPTY, UNSENT, FIXED = (
    "could not be read",
    "not ended by the model",
    "empty",
    "without a request on record",
    "mended by the reader",
)
"""Why a call is skipped."""


class GoodRun(Struct, frozen=True):
    """A run graded as successful (`result`), or rated good by a person. `name` is the loop without options."""

    run: str
    loop: str
    name: str
    result: CellResult | None
    approved: bool


class WrittenFiles(Struct, frozen=True):
    """The number of lines written to each file, and of skipped calls by reason."""

    folder: str
    files: dict[str, int]
    calls_left_out: dict[str, int]

    @property
    def lines(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True)
class Trajectories:
    """The good runs of a journal as lines of chat: iterate over them, or write them to files. `runs_left_out` counts
    skipped runs by reason. Each pass reads the journal again."""

    journal: Journal
    runs: tuple[GoodRun, ...]
    runs_left_out: dict[str, int]
    model: str = ""
    strict: bool = False

    def __iter__(self) -> Iterator[TrainingExample]:
        """Yield all lines, those of an earlier run first; lines with the same content once."""
        return self._make_lines({})

    def write(self, folder: str | Path, *, force: bool = False) -> WrittenFiles:
        """Write `LOOP.PHASE.jsonl` files into a folder, which is created if it is missing.

        Existing files are replaced only with `force`; otherwise it raises `ConfigError` and writes nothing. Raises
        `PlaitError` if the folder cannot be written.
        """
        place = Path(folder).expanduser()
        left_out: dict[str, int] = {}
        loops = {good.run: good.name for good in self.runs}
        files: dict[str, int] = {}
        parts: dict[str, IO[bytes]] = {}
        try:
            for example in self._make_lines(left_out):
                name = training_file(loops[example.run], example.phase)
                if name not in parts:
                    if (place / name).exists() and not force:
                        hint = "Nothing was written; --force writes over it."
                        raise ConfigError(f"{place / name} is there already.", hint=hint)
                    place.mkdir(parents=True, exist_ok=True)
                    parts[name] = (place / f".{name}.{os.getpid()}").open("wb")
                parts[name].write(msgspec.json.encode(example.json()) + b"\n")
                files[name] = files.get(name, 0) + 1
            for part in parts.values():
                part.close()
            for name, part in parts.items():
                os.replace(part.name, place / name)
        except OSError as why:
            raise PlaitError(f"{why.filename or place} can't be written: {why.strerror}.") from None
        finally:
            for part in parts.values():
                part.close()
                Path(part.name).unlink(missing_ok=True)
        return WrittenFiles(str(place), files, left_out)

    def _make_lines(self, left_out: dict[str, int]) -> Iterator[TrainingExample]:
        seen: set[bytes] = set()
        for good in self.runs:
            about = {
                "run": good.run,
                "loop": good.loop,
                "task": good.result.task if good.result else None,
                "score": good.result.grade.score if good.result else None,
                "approved": good.approved,
            }
            try:
                timeline = self.journal.timeline(good.run)
            except JournalError:
                left_out[DAMAGED] = left_out.get(DAMAGED, 0) + 1
                continue
            for reply in _read_replies(timeline):
                if self.model and reply.call.model != self.model:
                    continue
                found = _make_example(reply, about)
                if isinstance(found, TrainingExample):
                    content = (training_file(good.name, found.phase), found.messages, found.tools)
                    digest = hashlib.sha256(msgspec.json.encode(content)).digest()
                    if self.strict and found.remarks:
                        found = FIXED
                    elif digest in seen:
                        found = SAME
                    else:
                        seen.add(digest)
                        yield found
                        continue
                left_out[found] = left_out.get(found, 0) + 1


def find_trajectories(
    *runs: str,
    comparison: str = "",
    every: bool = False,
    journal: str | Path | None = None,
    loop: str = "",
    model: str = "",
    min_score: float | None = None,
    approved: bool = False,
    strict: bool = False,
    **filters: Any,
) -> Trajectories:
    """Find the good runs among these runs, a comparison's, or all (`every`) of the journal that match the filters.

    A run is good if a person rated it good, or if a comparison graded it as successful with a score of at least
    `min_score` and no person rated it bad. `approved`: only the former. `loop`: only that loop's runs, by name or with
    options as `react(dialect=lines)`. `model`: only calls of that model, by its spec. `strict`: skip replies that the
    reader fixed. Raises `ConfigError` for unknown runs or comparisons.
    """
    if not runs and not comparison and not every:
        raise ConfigError("No runs are named.", hint="Name runs, a comparison (--comparison NAME), or --all.")
    if "(" in loop:
        loop = loops.word_of(loops.loop_from(loop))
    query = make_query(**filters)
    if query != ALL and not every:
        raise ConfigError("Filters are for all runs of the journal.", hint="Add --all (every=True).")
    place = Journal.at(journal)
    results = Results(place.store)
    chosen: dict[str, GoodRun] = {}
    left_out: dict[str, int] = {}
    rows = {row.head.run: row for row in _candidates(place, runs, comparison, query if every else None, left_out)}
    ratings = wait_for(results.list_ratings(rows))
    labels = dict.fromkeys(row.head.label for row in rows.values() if row.head.label)
    read = map(read_result, wait_for(results.read(labels)).values())
    graded = {result.run: result for result in read}  # a run whose cell was run again has none
    for run, row in rows.items():
        word = name = str(row.head.loop["name"])
        with suppress(ConfigError):  # a loop given in Python has no word
            word = loops.word_of(loops.make(name, row.head.loop["options"]))
        result, rating = graded.get(run), ratings.get(run)
        other = bool(loop) and loop not in (word, name)
        why = "of another loop" if other else _reject(row, result, rating, min_score, approved)
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            chosen[run] = GoodRun(run, word, name, result, rating is not None)
    return Trajectories(place, tuple(chosen.values()), left_out, model, strict)


def training_file(loop: str, phase: str) -> str:
    """Return the name of the file for a phase's lines."""
    return re.sub(r"[^\w.-]", "_", f"{loop}.{phase}") + ".jsonl"


def _candidates(
    journal: Journal, runs: Iterable[str], comparison: str, query: RunQuery | None, left_out: dict[str, int]
) -> Iterator[RunRow]:
    """Yield the named runs, then a comparison's in its order, then all, the oldest first."""
    for run in runs:
        yield journal.run(run)
    if comparison:
        for result in load_comparison(comparison, journal.place).results:
            try:
                yield journal.run(result.run)
            except UnknownRun:
                left_out["deleted"] = left_out.get("deleted", 0) + 1
    if query is not None:
        yield from reversed(wait_for(journal.store.list_runs(query)))


def _reject(
    row: RunRow, result: CellResult | None, rating: Rating | None, min_score: float | None, approved: bool
) -> str:
    """Return why a run is skipped, "" if it is good."""
    if row.status == "running":
        return "still going on"
    if rating is not None:
        return "" if rating.good else "rated bad"
    if approved:
        return "not rated good by a person"
    if result is None:
        return "neither graded nor rated"
    if not result.grade.success:
        return "not done right"
    if min_score is not None and result.grade.score < min_score:
        return "of too low a score"
    return ""


# -- the lines of one run


class TrainingExample(Struct, frozen=True, kw_only=True):
    """One model call of a good run.

    `messages` are those that were sent, with the reply as the last; `tools` the native tools that were offered.
    `loop` is the loop with its options, `model` the model's spec, `task` the task's id if the run was a cell of a
    comparison. `score` is the grade's, None if only a person judged the run; `approved`: a person did. `remarks` say
    what the reader fixed. `raw`: the request was a raw prompt, here one user message.
    """

    messages: tuple[Chat, ...]
    run: str
    step: int
    phase: str
    loop: str
    model: str
    task: str | None = None
    score: float | None = None
    approved: bool = False
    tools: tuple[Chat, ...] = ()
    remarks: tuple[str, ...] = ()
    raw: bool = False

    def json(self) -> dict[str, Any]:
        """Return the line; `tools`, `remarks` and `raw` only if there are any."""
        names = ("messages", "tools", "run", "step", "phase", "loop", "model", "task", "score", "approved")
        made = {name: getattr(self, name) for name in (*names, "remarks", "raw")}
        return {name: value for name, value in made.items() if value or name not in ("tools", "remarks", "raw")}


class _RecordedReply:
    """A reply, and the notes about it."""

    def __init__(self, call: ModelCall, reply: Reply) -> None:
        self.call, self.reply = call, reply
        self.remarks: list[str] = []
        self.unreadable = False


def _read_replies(timeline: Timeline) -> list[_RecordedReply]:
    open_: set[int] = set()
    said: list[_RecordedReply] = []
    early: list[str] = []
    for moment in timeline.moments:
        match moment.change, moment.entry:
            case "asked", ModelCall(n=n, i=-1):
                open_.add(n)
            case _, LoopException(n=n):
                open_.discard(n)
            case "replied", ModelCall(n=n, i=-1, reply=reply) as call if n in open_ and reply is not None:
                open_.remove(n)
                said.append(_RecordedReply(call, reply))
                said[-1].remarks, early = early, []
            case _, RecordedNote(kind="unreadable") if said:
                said[-1].unreadable = True
            case _, RecordedNote(kind="repaired", text=text):
                # A reply that is read while it streams has notes before it is complete.
                (early if open_ or not said else said[-1].remarks).append(text)
    return said


def _make_example(said: _RecordedReply, about: Mapping[str, Any]) -> TrainingExample | str:
    """Return the line of a call, or why it is skipped."""
    call, reply = said.call, said.reply
    if said.unreadable:
        return UNREADABLE
    if reply.finish not in ("stop", "calls"):
        return UNENDED
    if not reply.text.strip() and not reply.calls:
        return EMPTY
    if find_references(call.last.request):
        return ATTACHED
    try:
        sent = msgspec.json.decode(call.last.request)
    except msgspec.DecodeError:
        return UNSENT
    raw = isinstance(sent, dict) and isinstance(sent.get("prompt"), str)
    messages = [{"role": "user", "content": sent["prompt"]}] if raw else sent.get("messages")
    if not messages or not isinstance(messages, list):
        return UNSENT
    before = sum(len(message.get("tool_calls") or ()) for message in messages)
    opened, last = "", messages[-1]
    if last.get("role") == "assistant" and not last.get("tool_calls") and isinstance(last.get("content"), str):
        opened, messages = last["content"], messages[:-1]  # it began the reply: both become one message
    written: Chat = {"role": "assistant", "content": opened + reply.text}
    if reply.calls:
        calls = enumerate(reply.calls, before + 1)
        written["content"] = written["content"] or None
        written["tool_calls"] = [chat_call(each.id or f"call_{n}", each.tool, arguments(each)) for n, each in calls]
    return TrainingExample(
        messages=(*messages, written),
        step=call.step,
        phase=call.phase,
        model=call.model,
        tools=tuple(sent.get("tools") or ()),
        remarks=tuple(said.remarks),
        raw=raw,
        **about,
    )
