"""How often typed answers fit their type and are right, by loop and by the method that asks for them.

    python benchmarks/typed_output.py                       all 40 tasks with the embedded model
    python benchmarks/typed_output.py --tasks 5 --model openai:NAME --ways "react,tool_calling schema"

Each task is a short text and a type. `valid` counts answers of the type, `right` those with the expected value, and
`first` the right answers that needed no second try.
"""

from __future__ import annotations

import argparse
import statistics
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

import plait
from plait.core.events import Noted
from plait.core.output import OutputMethod


class Person(BaseModel):
    name: str
    age: int
    city: str | None = None


class Meeting(BaseModel):
    day: date
    hour: int
    people: list[str]


class Order(BaseModel):
    item: str
    count: int
    price: float


Mood = Literal["positive", "negative", "neutral"]
Numbers = list[int]
QUESTION = "Extract from this text: "
TASKS: list[tuple[Any, str, Any]] = [
    (Person, "Ada Brown is 36 years old and lives in Bath.", {"name": "Ada Brown", "age": 36, "city": "Bath"}),
    (Person, "My neighbour Jon Hale turned 71 in May.", {"name": "Jon Hale", "age": 71}),
    (Person, "Lena Roth, 28, moved to Ulm last year.", {"name": "Lena Roth", "age": 28, "city": "Ulm"}),
    (Person, "At 52, Omar Diallo still runs marathons.", {"name": "Omar Diallo", "age": 52}),
    (Person, "The winner is Mia Sand (19) from Oslo.", {"name": "Mia Sand", "age": 19, "city": "Oslo"}),
    (Person, "Born forty years ago in Graz, Karl Lang is 40.", {"name": "Karl Lang", "age": 40, "city": "Graz"}),
    (Person, "Ines Vaz (33) has no fixed address.", {"name": "Ines Vaz", "age": 33}),
    (Person, "Tom Ek lives in Lund. He is sixty-one.", {"name": "Tom Ek", "age": 61, "city": "Lund"}),
    (Meeting, "Ada and Ben meet on 3 May 2026 at 14 h.", {"day": "2026-05-03", "hour": 14, "people": ["Ada", "Ben"]}),
    (Meeting, "2026-01-20, 9 am: Cleo, Dan, Eve.", {"day": "2026-01-20", "hour": 9, "people": ["Cleo", "Dan", "Eve"]}),
    (Meeting, "Finn sees Gus on 1 June 2027 at 5 pm.", {"day": "2027-06-01", "hour": 17, "people": ["Finn", "Gus"]}),
    (Meeting, "Talk of Hal with Ida: 12/24/2026, noon.", {"day": "2026-12-24", "hour": 12, "people": ["Hal", "Ida"]}),
    (Meeting, "Jan waits alone on 7 July 2026 at 8.", {"day": "2026-07-07", "hour": 8, "people": ["Jan"]}),
    (Meeting, "On 31 March 2026 at 11, Kim and Lou talk.", {"day": "2026-03-31", "hour": 11, "people": ["Kim", "Lou"]}),
    (Meeting, "Max, Nia: Oct 9 2026, 10 o'clock am.", {"day": "2026-10-09", "hour": 10, "people": ["Max", "Nia"]}),
    (Meeting, "15 Feb 2026, 3 pm, Olga with Pia.", {"day": "2026-02-15", "hour": 15, "people": ["Olga", "Pia"]}),
    (Order, "Please send two lamps at 19.50 each.", {"item": "lamps", "count": 2, "price": 19.5}),
    (Order, "3 chairs, 45 euros apiece", {"item": "chairs", "count": 3, "price": 45}),
    (Order, "I want a dozen pens. One costs 1.20.", {"item": "pens", "count": 12, "price": 1.2}),
    (Order, "10 x stapler @ 7.99", {"item": "stapler", "count": 10, "price": 7.99}),
    (Order, "One desk for 250 euros.", {"item": "desk", "count": 1, "price": 250}),
    (Order, "five mugs, 4 euros a mug", {"item": "mugs", "count": 5, "price": 4}),
    (Order, "100 envelopes at 0.05", {"item": "envelopes", "count": 100, "price": 0.05}),
    (Order, "Four rugs; each rug is 80.25.", {"item": "rugs", "count": 4, "price": 80.25}),
    (Mood, "The food was wonderful and the staff kind.", "positive"),
    (Mood, "I waited an hour and the soup was cold.", "negative"),
    (Mood, "The shop opens at nine.", "neutral"),
    (Mood, "Never again. What a waste of money.", "negative"),
    (Mood, "Best trip of my life!", "positive"),
    (Mood, "The parcel has a weight of two kilos.", "neutral"),
    (Mood, "It broke on the first day.", "negative"),
    (Mood, "We loved every minute of it.", "positive"),
    (Numbers, "The rooms have 12, 15 and 9 seats.", [12, 15, 9]),
    (Numbers, "Scores: 3, 0, 1, 7.", [3, 0, 1, 7]),
    (Numbers, "There are no numbers here.", []),
    (Numbers, "From 1990 to 2004, then 2011.", [1990, 2004, 2011]),
    (bool, "Is the shop open? The sign says: closed until Monday.", False),
    (bool, "Did Ada pay? The invoice of Ada is marked as paid.", True),
    (int, "How many days? We arrive on the 3rd and leave on the 7th: four days.", 4),
    (int, "How many apples are left? Of ten apples, three were eaten, so seven are left.", 7),
]
WAYS: dict[str, tuple[str, OutputMethod | None]] = {
    "tool_calling prompt": ("tool_calling", "prompt"),
    "tool_calling tool": ("tool_calling", "tool"),
    "tool_calling schema": ("tool_calling", "schema"),
    "react": ("react", None),
    "json": ("json", None),
    "phased": ("phased", None),
    "codeact": ("codeact", None),
}


def is_right(output: Any, kind: Any, gold: Any) -> bool:
    """Return whether an output has the expected value. Case and blanks of texts do not count."""
    found, wanted = (TypeAdapter(kind).dump_python(each, mode="json") for each in (output, _read(kind, gold)))
    return repr(found).casefold() == repr(wanted).casefold()


def _read(kind: Any, gold: Any) -> Any:
    return TypeAdapter(kind).validate_python(gold)


def measure(way: str, model: str, tasks: list[tuple[Any, str, Any]], journal: str) -> str:
    """Run the tasks one way and return the row of the table."""
    loop, method = WAYS[way]
    valid = right = first = 0
    seconds = []
    for kind, text, gold in tasks:
        limits = plait.Limits(steps=8)
        agent = plait.Agent(
            loop,
            model=model,
            output=plait.OutputType(kind, method=method),
            journal=journal,
            can_ask=False,
            limits=limits,
        )
        run = agent.run(f"{QUESTION}{text}")
        seconds.append(run.seconds)
        if run.status != "answered":
            continue
        valid += 1
        found = is_right(run.output, kind, gold)
        right += found
        tried = any(isinstance(each, Noted) and each.kind in ("output", "unreadable") for each in run.events)
        first += found and not tried
    share = [f"{count / len(tasks):.0%}" for count in (valid, right, first)]
    return f"| {way} | {' | '.join(share)} | {statistics.median(seconds):.1f} |"


def main() -> None:
    options = argparse.ArgumentParser(description="Typed answers, by loop and method.")
    options.add_argument("--model", default="local")
    options.add_argument("--tasks", type=int, default=len(TASKS), help="how many tasks, spread over all types")
    options.add_argument("--ways", default="", help=f"some of: {', '.join(WAYS)}")
    options.add_argument("--journal", default="typed-output.db")
    given = options.parse_args()
    tasks = TASKS[:: max(1, len(TASKS) // given.tasks)][: given.tasks]
    ways = [each.strip() for each in given.ways.split(",")] if given.ways else list(WAYS)
    print(f"{len(tasks)} tasks, {given.model}\n\n| way | valid | right | first | median s |\n|---|---|---|---|---|")
    for way in ways:
        print(measure(way, given.model, tasks, given.journal), flush=True)


if __name__ == "__main__":
    main()
