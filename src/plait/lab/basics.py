"""`basics`: tasks of one to four steps over a table of made-up facts and the calculator, made from a seed.

Nothing in them can be known by heart: towns, people and prices are invented, and each split has its own. The
`tuning` split is there to shape prompts and readers on; what is published is measured on `report`, which shares no fact
with it (kinds of questions it does share). A task's steps are the tool calls it takes, made one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import TypeAlias

from msgspec import Struct

from plait.core.errors import UsageError
from plait.lab.base import Suite, Task
from plait.tools import Tool
from plait.world.chance import chance

SPLITS = ("tuning", "report")
STEPS = (1, 2, 3, 4)
SEED = 1
EACH = 8
"""Tasks of each number of steps in a split: 32 a split, 64 in all."""
MOST = 200
"""As many as can be asked for: a split has only so many facts."""

_BEGIN = "Ald Bran Cor Dun Ebb Fen Gar Hol Ister Jor Kel Lun Mar Nor Ost Pel Quin Ros Sel Tor Ulm Ver Wex Yar Zell"
_END = "bury dale ford gate ham holm lea mere mouth stead ton vale wick worth"
_FIRST = "Ada Boris Clara Deniz Elif Farid Greta Hugo Ines Jonas Kira Leon Mona Nils Olga Piet Rosa Sven Tara Viktor"
_LAST = "Abreu Brandt Castell Dahl Ekwall Ferro Gruber Haddad Ivers Jansen Kovac Lund Moreau Novak Ortiz Prager Quist"
_GOODS = (
    "anchor armchair bench bicycle blanket canoe carpet clock drill kettle ladder lamp mirror pump saddle stove tent"
)
_SHIPS = "Albatross Comet Dauntless Heron Lodestar Mistral Osprey Petrel Solstice Tempest Vesper Zephyr"

Facts: TypeAlias = dict[str, "int | float | str"]
Made: TypeAlias = tuple[str, "int | float | str"]
"""A question and its answer."""


class World(Struct, frozen=True):
    """What a split's questions are about; the values stand in `facts`."""

    towns: tuple[str, ...]
    bridges: tuple[str, ...]
    peaks: tuple[str, ...]
    goods: tuple[str, ...]
    ships: tuple[str, ...]
    facts: Facts

    def number(self, key: str) -> Fraction:
        """A fact that is a number, exactly."""
        return Fraction(str(self.facts[key]))


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


def world(split: str, seed: int = SEED) -> World:
    """The towns, people and prices of a split."""
    dice = chance(seed, "basics", split)
    half = SPLITS.index(split)  # each split draws from its own half of the names: they never share one

    def some(words: str, count: int) -> list[str]:
        return dice.sample(words.split()[half :: len(SPLITS)], count)

    names = some(_BEGIN, 10)
    towns = [begin + end for begin, end in zip(names, some(_END, 4), strict=False)]
    people = [f"{first} {last}" for first, last in zip(some(_FIRST, 4), some(_LAST, 4), strict=True)]
    bridges = [f"{name} Bridge" for name in names[4:7]]
    peaks = [f"Mount {name}" for name in names[7:]]
    goods, ships = some(_GOODS, 4), some(_SHIPS, 2)
    facts: Facts = {}
    for town, person in zip(towns, people, strict=True):
        facts[f"population of {town}"] = dice.randrange(12_000, 190_000)
        facts[f"area of {town} in square kilometres"] = dice.randrange(18, 190)
        facts[f"mayor of {town}"] = person
    born = {person: dice.randrange(1948, 1986) for person in people}
    for person in sorted(people):  # in the order of the towns, the keys alone would say whose mayor each is
        facts[f"birth year of {person}"] = born[person]
    for bridge in bridges:
        facts[f"length of {bridge} in metres"] = dice.randrange(140, 1900)
        facts[f"opening year of {bridge}"] = dice.randrange(1990, 2021)
    for peak in peaks:
        facts[f"height of {peak} in metres"] = dice.randrange(1100, 4200)
    for good in goods:
        facts[f"price of {_a(good)} in dollars"] = dice.randrange(9, 400) + dice.choice((0, 0.5, 0.25, 0.75))
    for ship in ships:
        facts[f"crew of the {ship}"] = dice.randrange(14, 240)
    return World(tuple(towns), tuple(bridges), tuple(peaks), tuple(goods), tuple(ships), facts)


def _tasks(split: str, seed: int, each: int) -> list[Task]:
    """A split's tasks, one of each number of steps in turn: the first few are a fair sample."""
    where = world(split, seed)
    extra = f",seed={seed}" if seed != SEED else ""
    asked: set[str] = set()
    tasks = []
    for number in range(each):
        for steps in STEPS:
            kinds = KINDS[steps]
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


# -- one step


def _fact(w: World, dice: Random) -> Made:
    town, bridge, peak, good, ship = (dice.choice(names) for names in (w.towns, w.bridges, w.peaks, w.goods, w.ships))
    question, key = dice.choice(
        (
            (f"How many people live in {town}?", f"population of {town}"),
            (f"Who is the mayor of {town}?", f"mayor of {town}"),
            (f"How long is {bridge}, in metres?", f"length of {bridge} in metres"),
            (f"In which year was {bridge} opened?", f"opening year of {bridge}"),
            (f"How high is {peak}, in metres?", f"height of {peak} in metres"),
            (f"What is the price of {_a(good)}, in dollars?", f"price of {_a(good)} in dollars"),
            (f"How large is the crew of the {ship}?", f"crew of the {ship}"),
        )
    )
    return question, w.facts[key]


def _sum(w: World, dice: Random) -> Made:
    a, b, c = dice.randrange(23, 98), dice.randrange(23, 98), dice.randrange(110, 990)
    part, whole = dice.choice((5, 15, 35, 45)), 20 * dice.randrange(13, 190)
    return dice.choice(
        (
            (f"What is {a} times {b}?", a * b),
            (f"What is {part} percent of {whole}?", part * whole // 100),
            (f"What is the square root of {a * a}?", a),
            (f"What is {c} minus {a} times {b}?", c - a * b),
            (f"Divide {a * c} by {a}. What is the result?", c),
        )
    )


# -- two steps


def _cost(w: World, dice: Random) -> Made:
    good, count = dice.choice(w.goods), dice.randrange(3, 30)
    price = w.number(f"price of {_a(good)} in dollars")
    asked = dice.choice(
        (f"What do {count} {good}s cost, in dollars?", f"How many dollars do you pay for {count} {good}s?")
    )
    return asked, _plain(price * count)


def _mayors_birth(w: World, dice: Random) -> Made:
    town = dice.choice(w.towns)
    asked = dice.choice(("In which year was the mayor of {} born?", "What is the birth year of {}'s mayor?"))
    return asked.format(town), w.facts[f"birth year of {w.facts[f'mayor of {town}']}"]


def _share(w: World, dice: Random) -> Made:
    town, bridge, ship = dice.choice(w.towns), dice.choice(w.bridges), dice.choice(w.ships)
    part = dice.choice((10, 20, 25, 40))
    people, length = w.number(f"population of {town}"), w.number(f"length of {bridge} in metres")
    crew, more = w.number(f"crew of the {ship}"), dice.randrange(11, 90)
    return dice.choice(
        (
            (f"How many metres are {part} percent of the length of {bridge}?", _plain(length * part / 100)),
            (f"How many people will live in {town} when {more} more have moved there?", _plain(people + more)),
            (
                f"How many people are aboard the {ship} when its crew and {more} passengers are there?",
                _plain(crew + more),
            ),
            (f"You cross {bridge} {more} times. How many metres is that?", _plain(length * more)),
        )
    )


def _less(w: World, dice: Random) -> Made:
    good, peak, off = dice.choice(w.goods), dice.choice(w.peaks), dice.choice((20, 40, 60, 80))
    price, height = w.number(f"price of {_a(good)} in dollars"), w.number(f"height of {peak} in metres")
    return dice.choice(
        (
            (
                f"The price of {_a(good)} is lowered by {off} percent. What is it then, in dollars?",
                _plain(price * (100 - off) / 100),
            ),
            (f"What is the height of {peak} in kilometres?", _plain(height / 1000)),
        )
    )


# -- three steps


def _difference(w: World, dice: Random) -> Made:
    (a, b), (c, d), (e, f) = (dice.sample(names, 2) for names in (w.towns, w.bridges, w.peaks))
    question, keys, (more, less) = dice.choice(
        (
            ("How many more people live in {} than in {}?", "population of {}", (a, b)),
            ("By how many metres is {} longer than {}?", "length of {} in metres", (c, d)),
            ("How many metres higher is {} than {}?", "height of {} in metres", (e, f)),
        )
    )
    if w.number(keys.format(more)) < w.number(keys.format(less)):
        more, less = less, more
    return question.format(more, less), _plain(w.number(keys.format(more)) - w.number(keys.format(less)))


def _density(w: World, dice: Random) -> Made:
    town = dice.choice(w.towns)
    people, area = w.number(f"population of {town}"), w.number(f"area of {town} in square kilometres")
    asked = dice.choice(("How many people live on a square kilometre in {}?", "What is the population density of {}?"))
    return f"{asked.format(town)} Round to one decimal.", _plain(Fraction(round(people / area * 10), 10))


def _two_goods(w: World, dice: Random) -> Made:
    a, b = dice.sample(w.goods, 2)
    m, n = dice.randrange(2, 9), dice.randrange(2, 9)
    total = m * w.number(f"price of {_a(a)} in dollars") + n * w.number(f"price of {_a(b)} in dollars")
    return f"What do {m} {a}s and {n} {b}s cost together, in dollars?", _plain(total)


def _age_in(w: World, dice: Random) -> Made:
    town, year = dice.choice(w.towns), dice.randrange(2022, 2036)
    born = w.number(f"birth year of {w.facts[f'mayor of {town}']}")
    return f"How old does the mayor of {town} get in the year {year}?", _plain(year - born)


# -- four steps


def _three_together(w: World, dice: Random) -> Made:
    towns, peaks = dice.sample(w.towns, 3), dice.sample(w.peaks, 3)
    people = sum(w.number(f"population of {town}") for town in towns)
    metres = sum(w.number(f"height of {peak} in metres") for peak in peaks)
    return dice.choice(
        (
            (f"How many people live in {towns[0]}, {towns[1]} and {towns[2]} together?", _plain(people)),
            (f"How many metres do {peaks[0]}, {peaks[1]} and {peaks[2]} measure together?", _plain(metres)),
        )
    )


def _age_at_opening(w: World, dice: Random) -> Made:
    town, bridge = dice.choice(w.towns), dice.choice(w.bridges)
    born = w.number(f"birth year of {w.facts[f'mayor of {town}']}")
    return (
        f"How old did the mayor of {town} get in the year in which {bridge} was opened?",
        _plain(w.number(f"opening year of {bridge}") - born),
    )


def _three_goods(w: World, dice: Random) -> Made:
    a, b, c = dice.sample(w.goods, 3)
    m, n = dice.randrange(2, 7), dice.randrange(2, 7)
    prices = [w.number(f"price of {_a(good)} in dollars") for good in (a, b, c)]
    return (
        f"Someone buys {m} {a}s, {n} {b}s and {_a(c)}. What is to be paid, in dollars?",
        _plain(m * prices[0] + n * prices[1] + prices[2]),
    )


def _two_less_one(w: World, dice: Random) -> Made:
    a, b, c = sorted(dice.sample(w.towns, 3), key=lambda town: w.number(f"population of {town}"))
    more = w.number(f"population of {b}") + w.number(f"population of {c}") - w.number(f"population of {a}")
    return f"How many more people live in {b} and {c} together than in {a}?", _plain(more)


KINDS: dict[int, tuple[Callable[[World, Random], Made], ...]] = {
    1: (_fact, _sum),
    2: (_cost, _mayors_birth, _share, _less),
    3: (_difference, _density, _two_goods, _age_in),
    4: (_three_together, _age_at_opening, _three_goods, _two_less_one),
}
"""What is asked, by steps; the tasks of a split take the kinds in turn."""


def _plain(number: Fraction | int) -> int | float:
    whole = Fraction(number)
    return int(whole) if whole.denominator == 1 else float(whole)


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


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
