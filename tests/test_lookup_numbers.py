"""Numbers that a table holds as text arrive in code as numbers; in other loops nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from plait.toolkits.lookup import lookup
from plait.tools import render
from test_sandbox_restored import Pieces

FACTS = {
    "price of a lamp": "14.5",
    "price of a desk": "14.50",
    "people in Lyon": "522250",
    "people in Nice": 348085,
    "code of Lier": "02500",
    "river": "Aln",
}


def run(tmp_path: Path, code: str, **more: Any) -> str:
    agent = plait.Agent(
        Pieces((code,)), model=plait.Scripted([]), tools=[lookup(FACTS)], journal=tmp_path / "j.db", **more
    )
    done = agent.run("q")
    assert agent.replay(done.id).whole
    return str(done.answer)


@pytest.mark.parametrize("sandbox", ["process", "monty"])
def test_a_number_in_a_lookup_is_a_number_in_code(tmp_path: Path, sandbox: str) -> None:
    code = (
        "print(12 * lookup('price of a lamp'), lookup('people in Lyon') + lookup('people in Nice'))\n"
        "print(repr(lookup('code of Lier')), repr(lookup('river')), repr(lookup('price of a desk')))"
    )
    assert run(tmp_path, code, sandbox=sandbox) == "174.0 870335\n'02500' 'Aln' '14.50'\n"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("12 * price", "TypeError: can't multiply '14.50', it is a str: use float('14.50')"),
        ("price * 2", "TypeError: can't multiply '14.50', it is a str"),
        ("price + price", "TypeError: can't add '14.50' and '14.50', each is a str: use float() on both"),
    ],
)
def test_an_expression_that_would_repeat_or_join_figures_is_rejected_with_a_hint(
    tmp_path: Path, expression: str, said: str
) -> None:
    assert said in run(tmp_path, f"price = lookup('price of a desk')\nprint({expression})")


def test_such_a_text_is_a_text_in_all_else(tmp_path: Path) -> None:
    code = (
        "p = lookup('price of a desk')\nprint(p + ' EUR', 'EUR ' + p, f'{p:>6}', float(p) * 2, p == '14.50', "
        "{p: 1}['14.50'], isinstance(p, str), json.dumps([p]), p.split('.'), p[0:2])"
    )
    assert run(tmp_path, code) == "14.50 EUR EUR 14.50  14.50 29.0 True 1 True [\"14.50\"] ['14', '50'] 14\n"


def test_a_record_has_its_numbers_in_code(tmp_path: Path) -> None:
    (tmp_path / "shops.csv").write_text("item,price,code\nlamp,14.5,007\ndesk,99,x1\n")
    agent = plait.Agent(
        Pieces(
            ("r = lookup('lamp')\nprint(r['price'] * 2, repr(r['code']))\nprint(lookup('desk', column='price') + 1)",)
        ),
        model=plait.Scripted([]),
        tools=[f"lookup:{tmp_path / 'shops.csv'}"],
        journal=tmp_path / "j.db",
    )
    assert agent.run("q").answer == "29.0 '007'\n100\n"


def test_what_other_loops_are_shown_of_a_lookup_is_as_it_was() -> None:
    tool = lookup(FACTS)
    shown = [render(tool(key)) for key in FACTS]
    assert shown == [
        ("14.5", "14.5"),
        ("14.50", "14.50"),
        ("522250", "522250"),
        ("348085", 348085),
        ("02500", "02500"),
        ("Aln", "Aln"),
    ]
    assert all(type(value) in (str, int) for _, value in shown)
