"""A comparison: a suite, the loops and models that do it, and a result for every cell that is finished."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from plait.lab.base import Suite
from plait.lab.result import Result

if TYPE_CHECKING:
    from plait.lab.table import Row

_DAY = re.compile(r"(\d{4})(\d\d)(\d\d)-\d{6}-")


class Contender(Struct, frozen=True):
    """A loop with its models, as the table names it: one row. `models` maps each phase to its model's name.

    `strategy` is the loop with the options that are not its usual ones, `react(dialect=lines)`; `who` the models in
    words; `key` both, `react @ local`.
    """

    key: str
    strategy: str
    who: str
    models: dict[str, str]


class NotMeasured(Struct, frozen=True, kw_only=True):
    """A cell whose last run ended with an error that says nothing about the loop: its endpoint was out or rejected it.

    `variant` is the contender's key, `error` the name of the error, `reason` the whole sentence, `run` the run's id.
    """

    variant: str
    task: str
    repeat: int
    run: str
    error: str
    reason: str


class Comparison(Struct, frozen=True, kw_only=True):
    """What was compared, and what came of it so far.

    `results` has at most one for each contender, task and repeat (0, 1, ... `repeat` - 1), in the order of
    contenders, tasks and repeats. `not_measured` are the cells without a result whose last run crashed for a reason
    outside the loop. `unfinished` says in words why there are fewer results ("" when it is whole). `journal` is
    the file with the runs. As text it is its table.
    """

    name: str
    suite: Suite
    contenders: tuple[Contender, ...]
    repeat: int
    results: tuple[Result, ...]
    not_measured: tuple[NotMeasured, ...] = ()
    journal: str = ""
    unfinished: str = ""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table's rows, computed anew (see `table.py`); what advice is made from."""
        from plait.lab.table import rows

        return rows(self)

    def __str__(self) -> str:
        from plait.lab.render import terminal

        return terminal(self)

    @property
    def cells(self) -> int:
        """How many cells there are, finished or not."""
        return len(self.suite.tasks) * len(self.contenders) * self.repeat

    @property
    def when(self) -> str:
        """The days (UTC) of its runs, by their names: `2026-11-21`, or first and last; "" where none says it."""
        days = sorted({"-".join(day.groups()) for each in self.results if (day := _DAY.match(each.run))})
        return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""

    @property
    def whole(self) -> bool:
        """Every cell is finished."""
        return len(self.results) == self.cells

    def of(self, contender: Contender) -> tuple[Result, ...]:
        """The results of one row."""
        return tuple(each for each in self.results if each.variant == contender.key)
