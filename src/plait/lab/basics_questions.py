"""What the tasks of `basics` ask: kinds of questions of one to four steps, each with its answer."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import TypeAlias

from plait.lab.basics_world import World, with_article

Made: TypeAlias = tuple[str, "int | float | str"]
"""A question and its answer."""


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
            (f"What is the price of {with_article(good)}, in dollars?", f"price of {with_article(good)} in dollars"),
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
    price = w.price(good)
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
    total = m * w.price(a) + n * w.number(f"price of {with_article(b)} in dollars")
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
    prices = [w.price(good) for good in (a, b, c)]
    return (
        f"Someone buys {m} {a}s, {n} {b}s and {with_article(c)}. What is to be paid, in dollars?",
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
"""By steps; the tasks of a split take the kinds in turn."""


def _plain(number: Fraction | int) -> int | float:
    whole = Fraction(number)
    return int(whole) if whole.denominator == 1 else float(whole)
