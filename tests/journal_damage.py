"""Damages the files of a journal whose process was killed, resumes all its runs, and looks at what that did.

    for case in cases(600, seed=1):  # flips, truncations and zeroed ranges, in the journal and its -wal file
        result = check(case, templates, folder)
        assert not result.wrong, (case, result)

`python tests/journal_damage.py 600` does it and prints a summary. A template is a process that sends texts in several
runs at once, and kills itself with SIGKILL. `tally` has a line for each send that took effect: none may be there twice,
whether the model makes the same call again or the same call in other words. A run with a damaged row or a gap must be
refused, and the rows named. A whole run must go on. SQLite answers for the rows that it has confirmed: if the -wal file
was cut short, or the frame itself was zeroed, nothing tells that rows are lost.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import plait
from fork_server import run_forked
from plait.core.errors import PlaitError
from plait.journal.store import Journal

TEXTS = ("one", "two", "three", "four", "five")
FILES = ("j.db", "j.db-wal")
WAYS = ("flip", "flips", "truncate", "zero")
PLACES = ("before", "during", "after")
COLUMNS = "seq, at, CAST(kind AS BLOB), CAST(data AS BLOB), base, head, tail, packed, body"
OWN = "id, CAST(question AS BLOB), loop, parent, fork_at, CAST(head AS BLOB), session, status, owner, outcome, totals"
_DAMAGED = "is damaged|malformed"
BESIDE = 4
"""Runs that a template's process has beside the one that kills it."""


class Template(NamedTuple):
    """Where a template's process dies: around the send number `k`; whether the journal was checkpointed before it."""

    k: int
    place: str
    checkpoint: bool


class Case(NamedTuple):
    """One damage: to which template's files, which file, how, by which chance, and how the model goes on."""

    template: Template
    file: str
    way: str
    seed: int
    other_words: bool


class Result(NamedTuple):
    """What came of a case: how each run ended, what was reported, and what must not be ("" where all is right).

    Ends: `answered`; `whole`, an ended run that was replayed; `waiting`, because the journal is known to have lost
    rows; `refused`; `blocked`, a whole run that could not be written because another page is damaged. `hidden`:
    runs that went on without rows that they had had; `again`: effects that they made again, where nothing of a -wal
    file was left to tell.
    """

    ends: tuple[str, ...]
    reported: str
    hidden: int
    again: int
    wrong: str


TEMPLATES = tuple(Template(k, place, checkpoint) for k in (2, 4) for place in PLACES for checkpoint in (False, True))


def cases(count: int, seed: int = 0, templates: Sequence[Template] = TEMPLATES) -> Iterator[Case]:
    """So many cases: every file and every way in turn, the rest by chance."""
    chance = random.Random(seed)
    for i in range(count):
        file, way = FILES[i % len(FILES)], WAYS[i // len(FILES) % len(WAYS)]
        yield Case(chance.choice(templates), file, way, chance.getrandbits(32), bool(chance.getrandbits(1)))


def make_templates(
    folder: Path,
    templates: Sequence[Template] = TEMPLATES,
    *,
    before: Callable[[Path], object] = lambda place: None,
    beside: int = 0,
) -> dict[Template, Path]:
    """The files of each template, in a folder of its own. `before` may make other runs there first; `beside` as many go
    on in the process that is killed."""
    made = {}
    for i, template in enumerate(templates):
        made[template] = place = folder / f"template-{i}"
        place.mkdir()
        before(place)
        words = [str(place), str(template.k), template.place, str(int(template.checkpoint)), str(beside)]
        done = run_forked([__file__, *words])
        assert done.returncode == -signal.SIGKILL, done.stderr
    return made


def check(case: Case, templates: dict[Template, Path], folder: Path) -> Result:
    """Damage a copy of the template's files, resume or replay each of its runs, and compare."""
    whole = templates[case.template]
    place = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(whole, place, dirs_exist_ok=True)
    damaged = damage(place, case)
    written, found = _runs(whole), _runs(place)
    ends, told, wrong, hidden = list[str](), list[str](), list[str](), set[str]()
    for run, (name, was_running, own, rows) in written.items():
        _, _, own_found, rows_found = found.get(run, ("", False, None, {}))
        bad = [seq for seq, values in rows_found.items() if rows.get(seq) != values]
        is_cut = not bad and len(rows_found) < len(rows) and all(seq in rows_found for seq in range(len(rows_found)))
        is_whole = own_found == own and rows_found == rows
        agent = make_agent(place, name, other_words=case.other_words)
        try:
            reported = ""
            if was_running:
                resumed = agent.resume(run)
                is_blocked = resumed.status == "crashed" and re.search(_DAMAGED, str(resumed.reason))
                ends.append("blocked" if is_blocked else resumed.status)
            else:
                ends.append("whole" if agent.replay(run).whole else "differs")
        except PlaitError as why:
            reported = str(why)
            ends.append("blocked" if is_whole and re.search(_DAMAGED, reported) else "refused")
        told.append(reported)
        if is_cut and ends[-1] in ("answered", "blocked"):
            hidden.add(name)
        elif bad and (missing := [seq for seq in bad if not _names(reported, seq)]):
            wrong.append(f"{run} not reported: rows {missing} of {bad}")
        elif is_whole and ends[-1] not in ("answered", "whole", "waiting", "blocked") and not _is_whole_file(reported):
            wrong.append(f"{run} is whole, but {ends[-1]}: {reported}")
        elif ends[-1] in ("differs", "crashed"):
            wrong.append(f"{run} {ends[-1]}")
    lines = [line.replace("!", "") for line in (place / "tally").read_text().split()]
    repeated = [text for text, times in Counter(lines).items() if times > 1]
    may_hide = case.file.endswith("-wal") and case.way in ("truncate", "zero")
    if repeated and not (may_hide and all(text.partition(".")[2] in hidden for text in repeated)):
        wrong.append(f"repeated: {repeated}")
    shutil.rmtree(place)
    return Result(
        tuple(ends), f"{damaged}: {'; '.join(filter(None, told))}", len(hidden), len(repeated), "; ".join(wrong)
    )


def damage(place: Path, case: Case) -> str:
    """Change a file, and say what was done."""
    chance = random.Random(case.seed)
    path = place / case.file
    data = bytearray(path.read_bytes())
    if case.way == "truncate":
        at = chance.randrange(len(data))
        del data[at:]
    elif case.way == "zero":
        at = chance.randrange(len(data))
        length = min(chance.choice((16, 512, 4096)), len(data) - at)
        data[at : at + length] = bytes(length)
    else:
        at = -1
        for _ in range(1 if case.way == "flip" else 20):
            at = chance.randrange(len(data))
            data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"{case.way} {path.name} at {at}"


def make_agent(place: Path, name: str = "", *, other_words: bool = False) -> plait.Agent:
    """The agent of every template, and the one that goes on. Each run of a template has a name in its texts."""

    @plait.tool
    def send(text: str) -> str:
        """Send a text; has an effect outside.

        Args:
            text: what to send
        """
        _die(place, "before", text)
        with (place / "tally").open("a") as file:
            file.write(text + "\n")
        _die(place, "during", text)
        if name:
            time.sleep(0.005 * int(name))
        return f"sent {text} " + "x" * 3000

    def action(text: str) -> str:
        return f'Thought: next.\nAction:\n```json\n{{"action": "send", "action_input": "{text}"}}\n```\n'

    texts = [f"{text}.{name}" if name else text for text in TEXTS]
    said = [text + "!" if other_words else text for text in texts]
    script = [*map(action, said), "Thought: done.\nFinal Answer: all is sent"]
    return plait.Agent("react", model=plait.Scripted(script), tools=[send], journal=place / "j.db")


def ask(place: Path) -> None:
    """Make a short run there, which ends."""
    agent = make_agent(place, "9")
    assert agent.run("Send the five texts.9").status == "answered"
    Journal.at(place / "j.db").close()


_deadly: tuple[int, str, bool] | None = None


def _die(place: Path, point: str, text: str) -> None:
    if _deadly is None:
        return
    k, where, checkpoint = _deadly
    if checkpoint and text == TEXTS[k - 2] and point == "before":
        with closing(sqlite3.connect(place / "j.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    # "after" the call: its result is written, and the next one is about to begin.
    if (text, point) == (TEXTS[k - 1], where) or (where == "after" and (text, point) == (TEXTS[k], "before")):
        signal.raise_signal(signal.SIGKILL)


def _runs(place: Path) -> dict[str, tuple[str, bool, Any, dict[Any, Any]]]:
    """What SQLite reads from the files, by run: its name, whether it had not ended, its own row, and its rows."""
    with tempfile.TemporaryDirectory() as folder:  # reading a -wal file changes it
        for name in ("j.db", "j.db-wal"):
            shutil.copy(place / name, folder)
        runs = {}
        try:
            with closing(sqlite3.connect(Path(folder) / "j.db")) as connection:
                for n, *own in connection.execute(f"SELECT n, {OWN} FROM runs ORDER BY n").fetchall():
                    rows: dict[Any, Any] = {}
                    name = bytes(own[1] or b"").decode(errors="replace").partition(".")[2]
                    runs[str(own[0])] = name, own[7] == "running", own, rows
                    with suppress(sqlite3.Error):
                        for row in connection.execute(f"SELECT {COLUMNS} FROM events WHERE run = ? ORDER BY seq", (n,)):
                            rows[row[0]] = row
        except sqlite3.Error:
            pass
        return runs


def _names(reported: str, seq: Any) -> bool:
    """Is the row named among the damaged ones, or the whole file said to be damaged?"""
    if re.search(rf"rows? {seq} (is|can't)|own row|no run", reported) or _is_whole_file(reported):
        return True
    onwards = re.search(r"the rows from (\d+) on", reported)
    return onwards is not None and (not isinstance(seq, int) or seq >= int(onwards[1]))


def _is_whole_file(reported: str) -> bool:
    return bool(re.search("is missing or overwritten|not a journal|no journal|index of ids", reported))


def run(count: int, seed: int = 0, templates: Sequence[Template] = TEMPLATES) -> list[tuple[Case, Result]]:
    """Check so many cases, and give what came of each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = make_templates(folder, templates, before=ask, beside=BESIDE)
        return [(case, check(case, made, folder)) for case in cases(count, seed, templates)]


async def _send_all(place: Path, beside: int) -> None:
    names = ["", *map(str, range(1, beside + 1))]
    questions = {name: f"Send the five texts.{name}" for name in names}
    await asyncio.gather(*(make_agent(place, name).arun(question) for name, question in questions.items()))


if __name__ == "__main__":
    if len(sys.argv) == 6:
        _deadly = (int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1")
        Path(sys.argv[1], "tally").touch()
        asyncio.run(_send_all(Path(sys.argv[1]), int(sys.argv[5])))
        sys.exit("it was not killed")
    results = run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    ends = Counter((case.file, case.way, end) for case, result in results for end in result.ends)
    for (file, way, end), times in sorted(ends.items()):
        print(f"{file:8} {way:8} {end:9} {times}")
    print("hidden", Counter((case.file, case.way) for case, result in results for _ in range(result.hidden)))
    for case, result in results:
        if result.wrong:
            print("WRONG", case, result)
    sys.exit(any(result.wrong for _, result in results))
