"""Damages the files of a run that was killed, resumes it, and looks at what that repeated and what it reported.

    for case in cases(600, seed=1):  # flips, truncations and zeroed ranges, in the journal and its -wal file
        result = check(case, templates, folder)
        assert not result.wrong, (case, result)

`python tests/journal_damage.py 600` does it and prints a summary. A template is a run in a process of its own that
sends texts and kills itself with SIGKILL. `tally` has a line for each send that took effect: none may be there twice,
whether the model makes the same call again or the same call in other words. SQLite answers for the rows that it has
confirmed: where damage makes it give back a whole beginning of them without an error, nothing tells that more is lost.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import plait
from plait.core.errors import PlaitError

TEXTS = ("one", "two", "three", "four", "five")
FILES = ("j.db", "j.db-wal")
WAYS = ("flip", "flips", "truncate", "zero")
PLACES = ("before", "during", "after")
COLUMNS = "seq, at, CAST(kind AS BLOB), CAST(data AS BLOB), base, head, tail, packed, body"


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
    """What came of a case. `is_cut`: SQLite gives back the first rows and no others, as if there had been no more.
    `wrong` says what must not be; "" where all is right."""

    ended: str
    reported: str
    is_cut: bool
    wrong: str


TEMPLATES = tuple(Template(k, place, checkpoint) for k in (2, 4) for place in PLACES for checkpoint in (False, True))


def cases(count: int, seed: int = 0, templates: Sequence[Template] = TEMPLATES) -> Iterator[Case]:
    """So many cases: every file and every way in turn, the rest by chance."""
    chance = random.Random(seed)
    for i in range(count):
        file, way = FILES[i % len(FILES)], WAYS[i // len(FILES) % len(WAYS)]
        yield Case(chance.choice(templates), file, way, chance.getrandbits(32), bool(chance.getrandbits(1)))


def make_templates(
    folder: Path, templates: Sequence[Template] = TEMPLATES, *, before: Callable[[Path], object] = lambda place: None
) -> dict[Template, Path]:
    """The files of each template, in a folder of its own. `before` may make other runs there first."""
    made = {}
    for i, template in enumerate(templates):
        made[template] = place = folder / f"template-{i}"
        place.mkdir()
        before(place)
        words = [str(place), str(template.k), template.place, str(int(template.checkpoint))]
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    return made


def check(case: Case, templates: dict[Template, Path], folder: Path) -> Result:
    """Damage a copy of the template's files, resume the run, and compare."""
    whole = templates[case.template]
    place = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(whole, place, dirs_exist_ok=True)
    damaged = damage(place, case)
    written, found = _rows(whole), _rows(place)
    is_cut = len(found) < len(written) and all(written[seq] == found.get(seq) for seq in range(len(found)))
    bad = [seq for seq, values in found.items() if written.get(seq) != values]
    try:
        run = agent(place, other_words=case.other_words).resume("last")
        ended, reported = run.status, run.reason or ""
    except PlaitError as why:
        ended, reported = "refused", str(why)
    wrong = ""
    sent = Counter(line.strip("!") for line in (place / "tally").read_text().split())
    if (repeated := [text for text, times in sent.items() if times > 1]) and not is_cut:
        wrong = f"repeated: {repeated}"
    elif missing := [seq for seq in bad if not _names(reported, seq)]:
        wrong = f"not reported: rows {missing} of {bad}"
    shutil.rmtree(place)
    return Result(ended, f"{damaged}: {reported}", is_cut, wrong)


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


def agent(place: Path, *, other_words: bool = False) -> plait.Agent:
    """The agent of every template, and the one that goes on."""

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
        return f"sent {text} " + "x" * 3000

    def action(text: str) -> str:
        return f'Thought: next.\nAction:\n```json\n{{"action": "send", "action_input": "{text}"}}\n```\n'

    said = [text + "!" if other_words else text for text in TEXTS]
    script = [*map(action, said), "Thought: done.\nFinal Answer: all is sent"]
    return plait.Agent("react", model=plait.Scripted(script), tools=[send], journal=place / "j.db")


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


def _rows(place: Path) -> dict[Any, Any]:
    """The rows that SQLite reads from the files, by their numbers."""
    with tempfile.TemporaryDirectory() as folder:  # reading a -wal file changes it
        for name in ("j.db", "j.db-wal"):
            shutil.copy(place / name, folder)
        rows = {}
        try:
            with closing(sqlite3.connect(Path(folder) / "j.db")) as connection:
                for row in connection.execute(f"SELECT {COLUMNS} FROM events WHERE run = 1 ORDER BY seq"):
                    rows[row[0]] = row
        except sqlite3.Error:
            pass
        return rows


def _names(reported: str, seq: Any) -> bool:
    """Is the row named among the damaged ones, or the whole file said to be damaged?"""
    whole_file = "is missing or overwritten|own row|not a journal|no run|no journal"
    if re.search(rf"rows? {seq} (is|can't)|{whole_file}", reported):
        return True
    onwards = re.search(r"the rows from (\d+) on", reported)
    return onwards is not None and (not isinstance(seq, int) or seq >= int(onwards[1]))


def run(count: int, seed: int = 0, templates: Sequence[Template] = TEMPLATES) -> list[tuple[Case, Result]]:
    """Check so many cases, and give what came of each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = make_templates(folder, templates)
        return [(case, check(case, made, folder)) for case in cases(count, seed, templates)]


if __name__ == "__main__":
    if len(sys.argv) == 5:
        _deadly = (int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1")
        Path(sys.argv[1], "tally").touch()
        agent(Path(sys.argv[1])).run("Send the five texts.")
        sys.exit("it was not killed")
    results = run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(Counter((case.file, result.ended, result.is_cut) for case, result in results))
    for case, result in results:
        if result.wrong:
            print("WRONG", case, result)
    sys.exit(any(result.wrong for _, result in results))
