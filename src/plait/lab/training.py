"""Good runs as files for training: those that were graded right in a comparison, or that a person marked good."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from plait import loops
from plait.core.errors import JournalError, PlaitError, UnknownRun, UsageError
from plait.journal.records import RunRow
from plait.journal.results import Mark, Results
from plait.journal.store import Journal
from plait.lab import performing
from plait.lab.comparing import kept
from plait.lab.examples import Example, examples_of
from plait.lab.result import Result

SAME = "the same as another"
"""Why a line is left out: its messages are there already, from an earlier run."""
DAMAGED = "of a run whose record can't be read"


class Good(Struct, frozen=True):
    """A run that is good: graded so (`result`), or marked so by a person."""

    run: str
    strategy: str
    name: str
    """The loop without its options."""
    result: Result | None
    approved: bool


class Written(Struct, frozen=True):
    """What was written: the lines of each file, and the calls that were left out, by the reason."""

    folder: str
    files: dict[str, int]
    calls_left_out: dict[str, int]

    @property
    def lines(self) -> int:
        """Of all files."""
        return sum(self.files.values())


@dataclass(frozen=True)
class Trajectories:
    """The good runs of a journal, as lines of chat: go through them, or have them written.

    `runs_left_out` are runs that were looked at and not taken, by the reason. Each pass reads the journal again.
    """

    journal: Journal
    runs: tuple[Good, ...]
    runs_left_out: dict[str, int]
    model: str = ""
    strict: bool = False

    def __iter__(self) -> Iterator[Example]:
        """All lines, those of an earlier run first; lines that teach the same thing once."""
        return self._all({})

    def write(self, folder: str | Path, *, force: bool = False) -> Written:
        """Write `LOOP.PHASE.jsonl` into a folder, which is made where it is not there.

        Files that are there are written over only with `force`; otherwise `UsageError`, and nothing is written.
        Raises `PlaitError` where the folder can't be written.
        """
        place = Path(folder).expanduser()
        left_out: dict[str, int] = {}
        loops = {good.run: good.name for good in self.runs}
        files: dict[str, int] = {}
        parts: dict[str, IO[bytes]] = {}
        try:
            for example in self._all(left_out):
                name = file_of(loops[example.run], example.phase)
                if name not in parts:
                    if (place / name).exists() and not force:
                        raise UsageError(
                            f"{place / name} is there already.", hint="Nothing was written; --force writes over it."
                        )
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
        return Written(str(place), files, left_out)

    def _all(self, left_out: dict[str, int]) -> Iterator[Example]:
        seen: set[bytes] = set()
        for good in self.runs:
            about = {
                "run": good.run,
                "strategy": good.strategy,
                "task": good.result.task if good.result else None,
                "score": good.result.grade.score if good.result else None,
                "approved": good.approved,
            }
            try:
                rows = self.journal.rows(good.run)
            except JournalError:
                left_out[DAMAGED] = left_out.get(DAMAGED, 0) + 1
                continue
            made, without = examples_of(rows, about, model=self.model, strict=self.strict)
            for reason, count in without.items():
                left_out[reason] = left_out.get(reason, 0) + count
            for example in made:
                key = file_of(good.name, example.phase).encode() + b"\0" + example.content
                digest = hashlib.sha256(key).digest()
                if digest in seen:
                    left_out[SAME] = left_out.get(SAME, 0) + 1
                    continue
                seen.add(digest)
                yield example


def trajectories(
    *runs: str,
    comparison: str = "",
    every: bool = False,
    journal: str | Path | None = None,
    loop: str = "",
    model: str = "",
    min_score: float | None = None,
    approved: bool = False,
    strict: bool = False,
) -> Trajectories:
    """The good ones of these runs, of a comparison's, or of all (`every`) in the journal.

    Good is a run that a person marked good; and one that a comparison graded as successful, with a score of at least
    `min_score`, unless a person marked it bad. `approved`: only the former. `loop`: only that loop's, by its name or
    with options as `react(dialect=lines)`; `model`: only calls of that model, by its spec. `strict`: without replies
    that the reader had to mend. Raises `UsageError` for runs or a comparison that are not there.
    """
    if not runs and not comparison and not every:
        raise UsageError("No runs are named.", hint="Name runs, a comparison (--comparison NAME), or --all.")
    if "(" in loop:
        loop = loops.word_of(loops.loop_from(loop))
    place = Journal.at(journal)
    results = Results(place)
    chosen: dict[str, Good] = {}
    left_out: dict[str, int] = {}
    rows = {row.head.run: row for row in _looked_at(place, runs, comparison, every, left_out)}
    marks = results.marks(rows)
    graded = _graded(results, rows.values())
    for run, row in rows.items():
        word, name = _loop(row)
        result, mark = graded.get(run), marks.get(run)
        other = bool(loop) and loop not in (word, name)
        why = "of another loop" if other else _fault(row, result, mark, min_score, approved)
        if why:
            left_out[why] = left_out.get(why, 0) + 1
        else:
            chosen[run] = Good(run, word, name, result, mark is not None)
    return Trajectories(place, tuple(chosen.values()), left_out, model, strict)


def file_of(loop: str, phase: str) -> str:
    """The file that a phase's lines stand in."""
    return re.sub(r"[^\w.-]", "_", f"{loop}.{phase}") + ".jsonl"


def _looked_at(
    journal: Journal, runs: Iterable[str], comparison: str, every: bool, left_out: dict[str, int]
) -> Iterator[RunRow]:
    """Runs as they are named, then a comparison's in its order, then all, the oldest first."""
    for run in runs:
        yield journal.run(run)
    if comparison:
        for result in kept(comparison, journal.path).results:
            try:
                yield journal.run(result.run)
            except UnknownRun:
                left_out["deleted"] = left_out.get("deleted", 0) + 1
    if every:
        yield from reversed(journal.runs(limit=2**62))


def _graded(results: Results, rows: Iterable[RunRow]) -> dict[str, Result]:
    """The result of each run that a comparison graded."""
    labels = {row.head.label: None for row in rows if row.head.label}
    found = (performing.read(data) for data in results.results(labels).values())
    return {result.run: result for result in found}  # a run that lost its cell to a later one has none


def _fault(row: RunRow, result: Result | None, mark: Mark | None, min_score: float | None, approved: bool) -> str:
    """Why a run is not taken, "" when it is good."""
    if row.status == "running":
        return "still going on"
    if mark is not None:
        return "" if mark.good else "marked bad"
    if approved:
        return "not marked good by a person"
    if result is None:
        return "neither graded nor marked"
    if not result.grade.success:
        return "not done right"
    if min_score is not None and result.grade.score < min_score:
        return "of too low a score"
    return ""


def _loop(row: RunRow) -> tuple[str, str]:
    """A run's loop with its options, and its name."""
    name = str(row.head.strategy["name"])
    try:
        return loops.word_of(loops.make(name, row.head.strategy["options"])), name
    except UsageError:  # a loop that was given in Python
        return name, name
