"""Performs scenarios in processes that are killed, and checks how they end: what the tests and the campaign share."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fork_server import run_forked
from guard_scenarios import GUARDS
from lifecycle_scenarios import LIFECYCLES, find_lifecycle_faults, find_needless_verify, find_unrecorded
from plait.core.errors import JournalError
from plait.journal.records import IntentRecord, ResultRecord
from plait.journal.store import Journal
from step_scenarios import STEPS, Scenario

SCENARIOS = {**STEPS, **GUARDS, **LIFECYCLES}

SCRIPT = Path(__file__).with_name("steps_script.py")
MOST_PROCESSES = 40
KILLED = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
"""How a process ends that got a signal. Of SIGTERM it dies, or it cancels its run."""


@dataclass
class Ended:
    """How a run ended: what the last process printed, what happened, and how many `writes` each process made in how
    many seconds. `needless`: the keys of calls about which `verify` was asked, and which were not in doubt.
    `unrecorded`: the keys of calls whose result a model or hook had read, and which had no result on the disk."""

    name: str
    at: Mapping[int, str]
    last: dict[str, Any] = field(default_factory=dict)
    tally: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    kills: int = 0
    terms: int = 0
    writes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)

    @property
    def scenario(self) -> Scenario:
        return SCENARIOS[self.name]

    @property
    def effects(self) -> Counter[str]:
        """Return how often each effect happened that must not be repeated, whatever mark a hook gave it (`number`)."""
        return Counter(line[3:].partition("#")[0] for line in self.tally if line.startswith("do "))

    @property
    def doubts(self) -> int:
        """Return how many calls are reported as in doubt, to the model or to the user."""
        return len(self.last.get("in_doubt", ())) + sum("not known" in each for each in self.questions)

    @property
    def repeated(self) -> int:
        """Return how many effects happened more often than in an undisturbed run."""
        return 0 if self.scenario.repeats else (self.effects - Counter(self.scenario.effects)).total()

    @property
    def lost(self) -> int:
        """Return how many effects neither happened nor are in doubt."""
        return max(0, (Counter(self.scenario.effects) - self.effects).total() - self.doubts)

    @property
    def asks(self) -> int:
        """Return the number of requests that models got."""
        return sum(line.startswith("ask ") for line in self.tally)


def perform(folder: Path, name: str, kills: Mapping[int, str] = {}, seed: int | None = None) -> Ended:
    """Perform a scenario, in one process after the other, until it ends.

    `kills` maps numbers of processes, from 0, to the point at which each is killed, as `steps_script.py` describes it,
    or "time:0.02" (SIGKILL after so many seconds) or "time:0.02:TERM". A process that ends before its point lives. Each
    answer to a question is given in a process of its own; with a `seed`, the order of the answers to open questions is
    drawn.
    """
    folder.mkdir(exist_ok=True)
    ended, chance = Ended(name, kills), random.Random(seed)
    given: tuple[str, ...] = ()
    for number in range(MOST_PROCESSES):
        point = kills.get(number, "0")
        lines, in_doubt = read_lines(folder), find_open_calls(folder) if ended.kills else Counter[str]()
        if ended.scenario.beside == 1:  # after an effect, what reads next reads its result
            ended.unrecorded += find_unrecorded(lines, in_doubt)
        when, what = point.split(":")[:2] if point != "0" else ("", "")
        number_of = signal.SIGTERM if point.endswith("TERM") else signal.SIGKILL
        interrupt = (float(what), number_of) if when == "time" else None
        began = time.monotonic()
        done = run_forked([SCRIPT, folder, name, "0" if interrupt else point, *given], interrupt=interrupt)
        ended.seconds.append(time.monotonic() - began)
        ended.needless += find_needless_verify(read_lines(folder)[len(lines) :], in_doubt)
        if point != "0" and done.returncode in KILLED:
            ended.kills, given = ended.kills + 1, ()
            ended.terms += done.returncode == KILLED[-1]
            ended.writes.append(0)
            continue
        assert done.returncode == 0, (name, kills, done.stderr)
        ended.last = json.loads(done.stdout)
        ended.writes.append(ended.last["writes"])
        if ended.last["status"] == "crashed" and "can't be made" in ended.last["reason"]:  # it goes on when it can
            given = ()
            continue
        if ended.last["status"] != "waiting":
            break
        questions = dict(ended.last["open"])
        assert ended.last["first"] in questions, (name, kills, ended.last)
        id = ended.last["first"] if seed is None else chance.choice(sorted(questions))
        ended.questions.append(questions[id])
        given = (id, answer_to(questions[id], ended.scenario))
    ended.tally = read_lines(folder)
    return ended


def read_lines(folder: Path) -> list[str]:
    """Return what happened so far."""
    tally = folder / "tally"
    return tally.read_text().splitlines() if tally.exists() else []


def find_open_calls(folder: Path) -> Counter[str]:
    """Return the idempotency keys of the calls that began and have no result, in all runs. Nobody may use the journal.

    It reads a copy, so that the next process finds the journal as the killed one left it."""
    copied = folder / "copy"
    shutil.rmtree(copied, ignore_errors=True)
    copied.mkdir()
    for each in folder.glob("j.db*"):
        shutil.copy(each, copied)
    keys: Counter[str] = Counter()
    journal = Journal(copied / "j.db")
    runs = []
    with contextlib.suppress(JournalError):  # killed before it was made
        runs = journal.runs(-1, children=True)
    for run in runs:
        open_calls: dict[str, str] = {}
        for row in journal.rows(run.head.run):
            if isinstance(row.record, IntentRecord) and row.record.holder is not None:
                holder, key = row.record.holder, row.record.key
                closed = [str(holder.closed)] if holder.closed else []
                text = "\0".join((holder.run, *key.split("."), *closed)).encode()
                open_calls[key] = base64.b32encode(hashlib.blake2b(text, digest_size=15).digest()).decode().lower()
            elif isinstance(row.record, ResultRecord):
                open_calls.pop(row.record.key, None)
        keys.update(open_calls.values())
    return keys


def kill_points(undisturbed: Ended) -> list[dict[int, str]]:
    """Return all points at which one of a run's processes can be killed, as `perform` takes them."""
    return [
        {number: f"{when}:{write}"}
        for number, writes in enumerate(undisturbed.writes)
        for write in range(1, writes + 1)
        for when in ("before", "after")
    ]


def answer_to(question: str, scenario: Scenario) -> str:
    """Return what the user says to a question. Nobody repeats a call that may have taken effect."""
    if "not known" in question:
        return "no"
    return next((answer for words, answer in scenario.says.items() if words in question), "yes")


def find_faults(ended: Ended) -> list[str]:
    """Return what is wrong with how a run ended; empty if it ended as it should after so many kills."""
    scenario, last, kills = ended.scenario, ended.last, ended.kills
    wanted, made = Counter(scenario.effects), ended.effects
    wanted_files, found = Counter(scenario.files), Counter(last["files"])
    about_doubts = sum("not known" in each for each in ended.questions)
    doubts, asked = len(last["in_doubt"]), len(ended.questions) - about_doubts
    troubles = [*last["in_doubt"], *last["refused"]]
    ends = [(scenario.status, scenario.answer), *(scenario.instead if kills else ())]
    repeated = kills * scenario.beside  # what was on its way
    checks = {
        "the end": any(
            last["status"] == status and fits(last["answer"], answer, troubles if doubts else [])
            for status, answer in ends
        ),
        "no effect is repeated": not ended.repeated and (made - wanted).total() <= kills * wanted.total(),
        "no effect is lost": not ended.lost,
        "each effect is on record": last["made"] <= made.total() <= last["made"] + doubts or scenario.repeats,
        "the model reads of each doubt": all("not known" in each for each in last["in_doubt"]),
        "no doubt and no lost effect without a kill": kills or (not doubts and made == wanted),
        "nobody is asked about a doubt that is none": doubts or not about_doubts,
        "no call is in doubt": not (scenario.sure and (doubts or about_doubts)),
        # An answer that was killed before it was written is given again.
        "questions": scenario.asked - doubts <= asked <= scenario.asked + kills,
        "each request is counted": ended.asks
        <= last["requests"] - scenario.copied
        <= ended.asks + repeated * len(scenario.begin),
        "the limit of requests": last["requests"] <= scenario.limit,
        "requests": ended.asks <= scenario.requests + repeated and (kills or ended.asks == scenario.requests),
        "files are whole": found <= wanted_files and (wanted_files - found).total() <= doubts,
        "things are open while they are used, and closed once": not find_lifecycle_faults(ended.tally),
        "only calls in doubt are verified": not ended.needless,
        "a result is on the disk before anything reads it": not ended.unrecorded,
        "the replay is whole": last.get("whole"),
        "the replay performs and writes nothing": (last.get("performed"), last.get("replay_writes")) == ([], 0),
    }
    seen = f"{last} {ended.questions} {ended.tally}"
    return [f"{ended.name}, killed {ended.at}: {check}? {seen}" for check, holds in checks.items() if not holds]


def fits(answer: Any, expected: Any, troubles: list[str]) -> bool:
    """Say whether an answer is the expected one; `~words` expects a text with these words.

    Instead of a result it may have one of the `troubles`: the text of a call that has no result.
    """
    if answer == expected or (isinstance(expected, str) and expected[:1] == "~" and expected[1:] in answer):
        return True
    if isinstance(answer, list) and isinstance(expected, list) and len(answer) == len(expected):
        return all(fits(*pair, troubles) for pair in zip(answer, expected, strict=True))
    return isinstance(answer, str) and any(text.removeprefix("Error: ") in answer for text in troubles)
