"""`basics`: tasks of one to four steps over a table of invented facts and the calculator, made from a seed.

Towns, people and prices are invented, and each split has its own: no model knows them by heart. The `tuning` split is
there to develop prompts and readers. Published figures are measured on `report`, which shares no fact with it. The
steps of a task are the tool calls it takes, made one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import TypeAlias

from msgspec import Struct

from plait.core.errors import ConfigError
from plait.lab.tasks import Suite, SuiteTask
from plait.lab.world.chance import chance
from plait.toolkits.lookup import lookup
from plait.tools import Tool

SPLITS = ("tuning", "report")
SEED = 1

_BEGIN = "Ald Bran Cor Dun Ebb Fen Gar Hol Ister Jor Kel Lun Mar Nor Ost Pel Quin Ros Sel Tor Ulm Ver Wex Yar Zell"
_END = "bury dale ford gate ham holm lea mere mouth stead ton vale wick worth"
_FIRST = "Ada Boris Clara Deniz Elif Farid Greta Hugo Ines Jonas Kira Leon Mona Nils Olga Piet Rosa Sven Tara Viktor"
_LAST = "Abreu Brandt Castell Dahl Ekwall Ferro Gruber Haddad Ivers Jansen Kovac Lund Moreau Novak Ortiz Prager Quist"
_GOODS = (
    "anchor armchair bench bicycle blanket canoe carpet clock drill kettle ladder lamp mirror pump saddle stove tent"
)
_SHIPS = "Albatross Comet Dauntless Heron Lodestar Mistral Osprey Petrel Solstice Tempest Vesper Zephyr"

Facts: TypeAlias = dict[str, "int | float | str"]


class BasicsFacts(Struct, frozen=True):
    """The names that a split's questions use, and their facts by key."""

    towns: tuple[str, ...]
    bridges: tuple[str, ...]
    peaks: tuple[str, ...]
    goods: tuple[str, ...]
    ships: tuple[str, ...]
    facts: Facts

    def number(self, key: str) -> Fraction:
        """Return a numeric fact as an exact fraction."""
        return Fraction(str(self.facts[key]))

    def price(self, good: str) -> Fraction:
        return self.number(f"price of {with_article(good)} in dollars")


def make_facts(split: str, seed: int = SEED) -> BasicsFacts:
    """Return the towns, people and prices of a split."""
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
        facts[f"price of {with_article(good)} in dollars"] = dice.randrange(9, 400) + dice.choice((0, 0.5, 0.25, 0.75))
    for ship in ships:
        facts[f"crew of the {ship}"] = dice.randrange(14, 240)
    return BasicsFacts(tuple(towns), tuple(bridges), tuple(peaks), tuple(goods), tuple(ships), facts)


def with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


QuestionAndAnswer: TypeAlias = tuple[str, "int | float | str"]


# -- one step


def _fact(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    town, bridge, peak, good, ship = (dice.choice(names) for names in (w.towns, w.bridges, w.peaks, w.goods, w.ships))
    question, key = dice.choice(
        (
            (f"How many people live in {town}?", f"population of {town}"),
            (f"Who is the mayor of {town}?", f"mayor of {town}"),
            (f"How long is {bridge}, in metres?", f"length of {bridge} in metres"),
            (f"In which year was {bridge} opened?", f"opening year of {bridge}"),
            (f"How high is {peak}, in metres?", f"height of {peak} in metres"),
            (f"What is the price of {with_article(good)}, in dollars?", f"price of {with_article(good)} in dollars"),
            (f"How large is the crew of the {ship}?", f"crew of the {ship}"),
        )
    )
    return question, w.facts[key]


def _sum(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
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


def _cost(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    good, count = dice.choice(w.goods), dice.randrange(3, 30)
    price = w.price(good)
    asked = dice.choice(
        (f"What do {count} {good}s cost, in dollars?", f"How many dollars do you pay for {count} {good}s?")
    )
    return asked, _plain(price * count)


def _mayors_birth(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    town = dice.choice(w.towns)
    asked = dice.choice(("In which year was the mayor of {} born?", "What is the birth year of {}'s mayor?"))
    return asked.format(town), w.facts[f"birth year of {w.facts[f'mayor of {town}']}"]


def _share(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
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


def _less(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    good, peak, off = dice.choice(w.goods), dice.choice(w.peaks), dice.choice((20, 40, 60, 80))
    price, height = w.price(good), w.number(f"height of {peak} in metres")
    return dice.choice(
        (
            (
                f"The price of {with_article(good)} is lowered by {off} percent. What is it then, in dollars?",
                _plain(price * (100 - off) / 100),
            ),
            (f"What is the height of {peak} in kilometres?", _plain(height / 1000)),
        )
    )


# -- three steps


def _difference(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
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


def _density(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    town = dice.choice(w.towns)
    people, area = w.number(f"population of {town}"), w.number(f"area of {town} in square kilometres")
    asked = dice.choice(("How many people live on a square kilometre in {}?", "What is the population density of {}?"))
    return f"{asked.format(town)} Round to one decimal.", _plain(Fraction(round(people / area * 10), 10))


def _two_goods(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    a, b = dice.sample(w.goods, 2)
    m, n = dice.randrange(2, 9), dice.randrange(2, 9)
    total = m * w.price(a) + n * w.number(f"price of {with_article(b)} in dollars")
    return f"What do {m} {a}s and {n} {b}s cost together, in dollars?", _plain(total)


def _age_in(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    town, year = dice.choice(w.towns), dice.randrange(2022, 2036)
    born = w.number(f"birth year of {w.facts[f'mayor of {town}']}")
    return f"How old does the mayor of {town} get in the year {year}?", _plain(year - born)


# -- four steps


def _three_together(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    towns, peaks = dice.sample(w.towns, 3), dice.sample(w.peaks, 3)
    people = sum(w.number(f"population of {town}") for town in towns)
    metres = sum(w.number(f"height of {peak} in metres") for peak in peaks)
    return dice.choice(
        (
            (f"How many people live in {towns[0]}, {towns[1]} and {towns[2]} together?", _plain(people)),
            (f"How many metres do {peaks[0]}, {peaks[1]} and {peaks[2]} measure together?", _plain(metres)),
        )
    )


def _age_at_opening(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    town, bridge = dice.choice(w.towns), dice.choice(w.bridges)
    born = w.number(f"birth year of {w.facts[f'mayor of {town}']}")
    return (
        f"How old did the mayor of {town} get in the year in which {bridge} was opened?",
        _plain(w.number(f"opening year of {bridge}") - born),
    )


def _three_goods(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    a, b, c = dice.sample(w.goods, 3)
    m, n = dice.randrange(2, 7), dice.randrange(2, 7)
    prices = [w.price(good) for good in (a, b, c)]
    return (
        f"Someone buys {m} {a}s, {n} {b}s and {with_article(c)}. What is to be paid, in dollars?",
        _plain(m * prices[0] + n * prices[1] + prices[2]),
    )


def _two_less_one(w: BasicsFacts, dice: Random) -> QuestionAndAnswer:
    a, b, c = sorted(dice.sample(w.towns, 3), key=lambda town: w.number(f"population of {town}"))
    more = w.number(f"population of {b}") + w.number(f"population of {c}") - w.number(f"population of {a}")
    return f"How many more people live in {b} and {c} together than in {a}?", _plain(more)


KINDS: dict[int, tuple[Callable[[BasicsFacts, Random], QuestionAndAnswer], ...]] = {
    1: (_fact, _sum),
    2: (_cost, _mayors_birth, _share, _less),
    3: (_difference, _density, _two_goods, _age_in),
    4: (_three_together, _age_at_opening, _three_goods, _two_less_one),
}
"""Kinds of questions by number of steps. The tasks of a split take the kinds in turn."""


def _plain(number: Fraction | int) -> int | float:
    whole = Fraction(number)
    return int(whole) if whole.denominator == 1 else float(whole)


EACH = 8
"""Tasks for each number of steps in a split: 32 a split, 64 in all."""
MOST = 200
"""The limit of `each`: a split has few facts."""


def load_basics(settings: str = "") -> Suite:
    """Load `basics`, `basics:report` or `basics:tuning`; `basics:report,seed=7,each=20` has another seed and size."""
    split, seed, each = _parse_settings(settings)
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
    """Return the lookup tool over a split's facts: `report`, `tuning,seed=7`."""
    split, seed, _ = _parse_settings(settings)
    return lookup(make_facts(split or "report", seed).facts)


def _tasks(split: str, seed: int, each: int) -> list[SuiteTask]:
    """Return a split's tasks, one for each number of steps in turn, so that the first few are a fair sample."""
    where = make_facts(split, seed)
    extra = f",seed={seed}" if seed != SEED else ""
    asked: set[str] = set()
    tasks = []
    for number in range(each):
        for steps, kinds in KINDS.items():
            # When a kind of question is used up, the next kind takes its place.
            for attempt in range(200 * len(kinds)):
                dice = chance(seed, "task", split, steps, number, attempt)
                question, answer = kinds[(number + attempt // 200) % len(kinds)](where, dice)
                in_question = not isinstance(answer, str) and str(answer) in question
                if question not in asked and not in_question:
                    break
            else:
                hint = "Ask for fewer with each=N."
                raise ConfigError(f"There are not {each} different questions of {steps} steps.", hint=hint)
            asked.add(question)
            tasks.append(
                SuiteTask(
                    id=f"{split}-{steps}-{number + 1}",
                    question=question,
                    answer=answer,
                    tools=(f"lab:basics,{split}{extra}", "calculator"),
                    split=split,
                    about={"steps": steps},
                )
            )
    return tasks


def _parse_settings(settings: str) -> tuple[str, int, int]:
    """Return the split ("" for both), the seed, and the tasks for each number of steps."""
    split, numbers = "", {"seed": SEED, "each": EACH}
    for part in filter(None, (part.strip() for part in settings.split(","))):
        name, sign, value = part.partition("=")
        if not sign and name in SPLITS:
            split = name
        elif sign and name in numbers and value.isdecimal() and int(value) < 10**9:
            numbers[name] = int(value)
        else:
            hint = "Write basics:report or basics:report,seed=7,each=20."
            raise ConfigError(f"basics: {part!r} is not understood.", hint=hint)
    if numbers["each"] > MOST:
        raise ConfigError(f"basics: each={numbers['each']} is too many.", hint=f"At most {MOST}: its facts are few.")
    return split, numbers["seed"], max(1, numbers["each"])
