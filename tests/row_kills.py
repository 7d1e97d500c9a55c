"""Performs scenarios in processes that are killed, and checks how they end: what the tests and the campaign share."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fork_server import run_forked
from guard_scenarios import GUARDS
from step_scenarios import STEPS, Scenario

SCENARIOS = {**STEPS, **GUARDS}

SCRIPT = Path(__file__).with_name("steps_script.py")
MOST_PROCESSES = 40


@dataclass
class Ended:
    """How a run ended: what the last process printed, what happened, and how many `writes` each process made."""

    name: str
    at: Mapping[int, str]
    last: dict[str, Any] = field(default_factory=dict)
    tally: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    kills: int = 0
    writes: list[int] = field(default_factory=list)

    @property
    def scenario(self) -> Scenario:
        return SCENARIOS[self.name]

    @property
    def effects(self) -> Counter[str]:
        """Return how often each effect happened that must not be repeated, whatever mark a hook gave it (`number`)."""
        return Counter(line[3:].partition("#")[0] for line in self.tally if line.startswith("do "))

    @property
    def asks(self) -> int:
        """Return the number of requests that models got."""
        return sum(line.startswith("ask ") for line in self.tally)


def perform(folder: Path, name: str, kills: Mapping[int, str] = {}, seed: int | None = None) -> Ended:
    """Perform a scenario, in one process after the other, until it ends.

    `kills` maps numbers of processes, from 0, to the point at which each is killed, as `steps_script.py` describes it.
    A process that ends before its point lives. Each answer to a question is given in a process of its own; with a
    `seed`, the order of the answers to open questions is drawn.
    """
    folder.mkdir(exist_ok=True)
    ended, chance = Ended(name, kills), random.Random(seed)
    given: tuple[str, ...] = ()
    for number in range(MOST_PROCESSES):
        point = kills.get(number, "0")
        done = run_forked([SCRIPT, folder, name, point, *given])
        if point != "0" and done.returncode == -9:
            ended.kills, given = ended.kills + 1, ()
            ended.writes.append(0)
            continue
        assert done.returncode == 0, (name, kills, done.stderr)
        ended.last = json.loads(done.stdout)
        ended.writes.append(ended.last["writes"])
        if ended.last["status"] != "waiting":
            break
        questions = dict(ended.last["open"])
        assert ended.last["first"] in questions, (name, kills, ended.last)
        id = ended.last["first"] if seed is None else chance.choice(sorted(questions))
        ended.questions.append(questions[id])
        given = (id, answer_to(questions[id], ended.scenario))
    tally = folder / "tally"
    ended.tally = tally.read_text().splitlines() if tally.exists() else []
    return ended


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
        "no effect is repeated": made <= wanted
        or (scenario.repeats and (made - wanted).total() <= kills * wanted.total()),
        "no effect is lost": (wanted - made).total() <= doubts + about_doubts,
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
