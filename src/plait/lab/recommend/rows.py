"""The rows of a comparison, read from the output of `plait compare --json`, from a value, or from the journal."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from plait.core.errors import ConfigError
from plait.journal.results import Results
from plait.journal.store import Journal, wait_for
from plait.user_files import read_file

_MADE_BY = "`plait compare ... --json > FILE` writes one."


class MeasuredLoop(Struct, frozen=True, kw_only=True):
    """A loop with its models, and its measured results.

    `loop` is the loop's word with its options, `react(dialect=lines)`; `models` maps each phase to its model's name.
    `successes` of `n` runs succeeded, over `tasks` different tasks (fewer than `n` if tasks were repeated). `interval`
    is the 95 % interval of that share, None if not given. `tokens` (in and out) and `cost_usd` are means of a run, None
    for an unknown price; `seconds` is the median. `fell_back` runs continued as another loop, and `calls_as_text` runs
    wrote tool calls as text because the endpoint had no native tools. `agent` is the name of a compared agent, "" for a
    loop; `texts` are its prompts, where several were compared. `who` names models and texts, as the comparison does.
    """

    loop: str
    models: dict[str, str]
    successes: int
    n: int
    agent: str = ""
    texts: dict[str, str] = {}
    tasks: int = 0
    interval: tuple[float, float] | None = None
    tokens: float = 0.0
    seconds: float = 0.0
    cost_usd: float | None = None
    fell_back: int = 0
    calls_as_text: int = 0
    who: str = ""

    def __post_init__(self) -> None:
        if not self.who:
            names = set(self.models.values())
            of_phases = (f"{phase}={name}" for phase, name in self.models.items())
            structs.force_setattr(self, "who", names.pop() if len(names) == 1 else " ".join(of_phases))

    @property
    def success(self) -> float:
        """The share of successful runs; 0 without runs."""
        return self.successes / self.n if self.n else 0.0

    @property
    def evidence(self) -> tuple[int, int]:
        """Successes, and the number of tries. Repeats of a task are not evidence about other tasks. So if tasks were
        repeated, the tries are the tasks, and the successes are their share of them, rounded down."""
        tries = min(self.tasks or self.n, self.n)
        return (self.successes if tries == self.n else math.floor(self.success * tries + 1e-9)), tries

    def model_of(self, phase: str) -> str:
        return self.models.get(phase, self.models.get("", ""))


class MeasuredRows(Struct, frozen=True, kw_only=True):
    """A comparison's rows, and their source. `name` is the comparison's, or the file's if it has none. `digest` is the
    SHA-256 of the rows as JSON with sorted keys: it identifies the rows of a recommendation."""

    name: str
    rows: tuple[MeasuredLoop, ...]
    digest: str
    suite: str = ""
    unfinished: str = ""


def read_rows(results: object, journal: object = None) -> MeasuredRows:
    """Read the rows of a comparison. `results`: a file with the output of `plait compare --json`, its object as a
    mapping, anything with `rows`, or the name of a comparison in `journal`. Raises `ConfigError` for anything else."""
    if isinstance(results, MeasuredRows):
        return results
    name = ""
    if isinstance(results, str | Path):
        place, name = Path(results).expanduser(), str(results)
        if place.is_file():
            try:
                results = json.loads(read_file(place).decode())
            except OSError as why:
                raise ConfigError(f"{place} can't be read: {why.strerror}.") from why
            except (ValueError, RecursionError) as why:
                raise ConfigError(f"{place} is not JSON: {why}.", hint=_MADE_BY) from why
        elif name.endswith(".json") or "/" in name:
            raise ConfigError(f"There is no file {name}.", hint=_MADE_BY)
        else:
            results = _read_journal(name, journal)
    if isinstance(results, Mapping):
        found = {key: results.get(key) for key in ("name", "suite", "rows", "unfinished")}
    else:
        found = {key: getattr(results, key, None) for key in ("name", "suite", "rows", "unfinished")}
    where = name or "These results"
    if isinstance(found["rows"], str | bytes | Mapping) or not hasattr(found["rows"], "__iter__"):
        raise ConfigError(
            f"{where}: there is no list of `rows`, so they are not the results of a comparison.", hint=_MADE_BY
        )
    given = [each if isinstance(each, Mapping) else _as_mapping(each, where) for each in found["rows"] or ()]
    rows = tuple(_make_row(each, f"{where}, row {number}") for number, each in enumerate(given, 1))
    if not rows:
        raise ConfigError(f"{where}: there is no row.", hint="Compare at least one loop with one model.")
    # The suite is a word, or a suite with a word.
    suite = found["suite"] if isinstance(found["suite"], str) else getattr(found["suite"], "word", "")
    return MeasuredRows(
        name=str(found["name"] or name or "results given in Python"),
        rows=rows,
        digest=hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest(),
        suite=str(suite),
        unfinished=str(found["unfinished"] or ""),
    )


def _read_journal(name: str, journal: object) -> object:
    """Return the table of a comparison in the journal by its name. Raises `ConfigError` if there is none."""
    try:
        found = wait_for(Results(Journal.at(journal).store).find_comparison(name))  # type: ignore[arg-type]
    except ConfigError as why:
        raise ConfigError(f"There is no file {name}. {why.message}", hint=why.hint) from why
    if found.summary is None:
        raise ConfigError(f"The comparison {found.name} has no table yet.", hint="Let `plait compare` go on with it.")
    return {"name": found.name, "suite": found.head.get("suite", {}).get("word", ""), **found.summary}


def _as_mapping(row: object, where: str) -> Mapping[str, Any]:
    try:
        plain = msgspec.to_builtins(row)
    except TypeError as why:
        raise ConfigError(f"{where}: a row is {type(row).__name__}, which can't be read: {why}.") from why
    if not isinstance(plain, dict):
        raise ConfigError(f"{where}: a row is {type(row).__name__}, which is not an object.", hint=_MADE_BY)
    return plain


def _make_row(given: Mapping[str, Any], where: str) -> MeasuredLoop:
    fields = {name: given[name] for name in MeasuredLoop.__struct_fields__ if given.get(name) is not None}
    try:
        row = msgspec.convert(fields, MeasuredLoop)
    except msgspec.ValidationError as why:
        raise ConfigError(f"{where}: {why}.", hint=_MADE_BY) from why
    numbers = (row.tokens, row.seconds, row.cost_usd or 0.0, *(row.interval or ()))
    if not 0 <= row.successes <= row.n or row.tasks < 0:
        raise ConfigError(f"{where}: {row.successes} successes of {row.n} runs of {row.tasks} tasks can't be.")
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ConfigError(f"{where}: tokens, seconds, USD and interval are numbers from zero up.")
    if not row.models:
        raise ConfigError(f"{where}: it names no model.", hint=_MADE_BY)
    return row
