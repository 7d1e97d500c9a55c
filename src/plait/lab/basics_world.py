"""What the tasks of `basics` are about: towns, people, bridges and prices that are made up from a seed."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from msgspec import Struct

from plait.world.chance import chance

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

    def price(self, good: str) -> Fraction:
        """What one of the goods costs, in dollars."""
        return self.number(f"price of {with_article(good)} in dollars")


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
        facts[f"price of {with_article(good)} in dollars"] = dice.randrange(9, 400) + dice.choice((0, 0.5, 0.25, 0.75))
    for ship in ships:
        facts[f"crew of the {ship}"] = dice.randrange(14, 240)
    return World(tuple(towns), tuple(bridges), tuple(peaks), tuple(goods), tuple(ships), facts)


def with_article(word: str) -> str:
    """A word with its article."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
