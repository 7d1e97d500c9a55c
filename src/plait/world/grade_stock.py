"""Grades messages with the week of a share's lowest close."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from plait.world import reading, stocks
from plait.world.grades import Findings, no_other_date, said
from plait.world.state import Sent, World

if TYPE_CHECKING:
    from plait.world.tasks import WorldTask


def lowest_week(task: WorldTask, world: World, sent: Sent, found: Findings) -> None:
    """The week with the lowest close, its date and its price."""
    rows, text = world.weeks(task.symbol), sent.text
    best = stocks.lowest(rows, world.today, task.months)
    since = world.today - timedelta(days=round(task.months * 30.44))
    monday = best.timestamp - timedelta(days=best.timestamp.weekday())
    week = [monday + timedelta(days=n) for n in range(7)]
    dates = reading.dates(text, world.today.year)
    dated = any(set(each.days) & set(week) for each in dates)
    span = {world.today + timedelta(days=n) for n in range(-2, 3)} | {since + timedelta(days=n) for n in range(-6, 7)}
    no_other_date(world, text, {*week} | span, found)
    priced = False
    table = [value for row in rows if row.timestamp >= since for value in row[1:5]]
    known = [*table, *map(float, (best.volume, task.months, 13, 12, 90, 91, 92, len(rows)))]
    known += [each for each, *_ in reading.numbers(task.question)]
    for number, decimals, start, end in reading.numbers(text, {*week} | span):
        priced |= (decimals >= 1 and said(number, decimals, [best.close])) or number == best.close
        if not said(number, decimals, known):
            found.flaws.append(f"{text[start:end].strip()} is not from the world")
    if not dated:
        found.flaws.append(f"the week ({best.timestamp}) is not said")
    if not priced:
        found.flaws.append(f"the price ({best.close}) is not said")
    if not dated and not priced:
        found.lacks.append("the message has neither the week nor its price")
    symbols = set(re.findall(r"\b[A-Z]{2,5}\b", text)) & set(stocks.SYMBOLS)
    found.flaws.extend(f"{symbol} is named" for symbol in sorted(symbols - {task.symbol}))
