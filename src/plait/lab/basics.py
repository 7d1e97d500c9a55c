"""`basics`: tasks of one to four steps over a table of made-up facts and the calculator, made from a seed.

Nothing in them can be known by heart: towns, people and prices are invented, and each split has its own. The
`tuning` split is there to shape prompts and readers on; what is published is measured on `report`, which shares no fact
with it (kinds of questions it does share). A task's steps are the tool calls it takes, made one by one.
"""

from __future__ import annotations

from plait.core.errors import UsageError
from plait.lab.base import Suite, Task
from plait.lab.basics_questions import KINDS
from plait.lab.basics_world import SEED, SPLITS, World, world
from plait.tools import Tool
from plait.world.chance import chance

EACH = 8
"""Tasks of each number of steps in a split: 32 a split, 64 in all."""
MOST = 200
"""As many as can be asked for: a split has only so many facts."""


def basics(settings: str = "") -> Suite:
    """The suite `basics`, `basics:report`, `basics:tuning`; of another seed and size `basics:report,seed=7,each=20`."""
    split, seed, each = _read(settings)
    splits = (split,) if split else SPLITS
    tasks = [task for name in splits for task in _tasks(name, seed, each)]
    extra = "".join([f",seed={seed}" * (seed != SEED), f",each={each}" * (each != EACH)])
    return Suite(
        word=f"basics{':' * bool(split or extra)}{split or ''}{extra if split else extra[1:]}",
        about="tasks of one to four steps over a table of made-up facts and the calculator",
        tasks=tuple(tasks),
        grader="has",
    )


def facts_tool(settings: str = "") -> Tool:
    """The lookup over a split's facts: `report`, `tuning,seed=7`."""
    from plait.toolkits.lookup import lookup

    split, seed, _ = _read(settings)
    return lookup(world(split or "report", seed).facts)


def _tasks(split: str, seed: int, each: int) -> list[Task]:
    """A split's tasks, one of each number of steps in turn: the first few are a fair sample."""
    where = world(split, seed)
    extra = f",seed={seed}" if seed != SEED else ""
    asked: set[str] = set()
    tasks = []
    for number in range(each):
        for steps, kinds in KINDS.items():
            # A kind that is used up gives way to the next one.
            for attempt in range(200 * len(kinds)):
                dice = chance(seed, "task", split, steps, number, attempt)
                question, answer = kinds[(number + attempt // 200) % len(kinds)](where, dice)
                if question not in asked and not _given_away(question, answer, where):
                    break
            else:
                raise UsageError(
                    f"There are not {each} different questions of {steps} steps.", hint="Ask for fewer with each=N."
                )
            asked.add(question)
            tasks.append(
                Task(
                    id=f"{split}-{steps}-{number + 1}",
                    question=question,
                    answer=answer,
                    tools=(f"lab:basics,{split}{extra}", "calculator"),
                    split=split,
                    about={"steps": steps},
                )
            )
    return tasks


def _given_away(question: str, answer: int | float | str, where: World) -> bool:
    """A computed answer stands in the question, or is some other fact as well: it could be had without the work."""
    return not isinstance(answer, str) and str(answer) in question


def _read(settings: str) -> tuple[str, int, int]:
    """Split ("" for both), seed and tasks of each number of steps."""
    split, numbers = "", {"seed": SEED, "each": EACH}
    for part in filter(None, (part.strip() for part in settings.split(","))):
        name, sign, value = part.partition("=")
        if not sign and name in SPLITS:
            split = name
        elif sign and name in numbers and value.isdecimal() and int(value) < 10**9:
            numbers[name] = int(value)
        else:
            raise UsageError(
                f"basics: {part!r} is not understood.", hint="Write basics:report or basics:report,seed=7,each=20."
            )
    if numbers["each"] > MOST:
        raise UsageError(f"basics: each={numbers['each']} is too many.", hint=f"At most {MOST}: its facts are few.")
    return split, numbers["seed"], max(1, numbers["each"])
