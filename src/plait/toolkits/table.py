"""The table behind `lookup`: it reads JSON and CSV, and finds the entry that a model asks for.

An entry is found by its exact key, then by its words. Further words select a part of it: "population of Lyon" finds
`population` in the entry `Lyon`, or `Lyon` in the entry `population`. Fewer words than the key's are enough if no other
key has them all: "Lyon area" finds `area of Lyon in square kilometres`. If a few entries match, or the question asks
for several, all are returned with their names.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from plait.core.errors import ConfigError, ToolError
from plait.core.text import cut_text
from plait.search.keywords import SMALL_WORDS, drop_small_words, split_words, stem

NEAR = 500
"""Maximum number of keys that are compared with a question without an exact key."""
MOST_WORDS = 40
"""Maximum number of words of a question that are read."""
MOST_AT_ONCE = 5
"""Maximum number of entries that one question returns."""


class LookupTable(Struct, frozen=True, dict=True):
    """Entries by key. `columns` are the names in its records, empty if entries are single values."""

    entries: dict[str, Any]
    columns: tuple[str, ...] = ()

    @cached_property
    def _by_words(self) -> dict[tuple[str, ...], list[str]]:
        return _index(self.entries, split_words)

    @cached_property
    def _by_set(self) -> dict[tuple[str, ...], list[str]]:
        return _index(self.entries, _word_set)

    def find(self, key: str, column: str = "") -> Any:
        """Return the entry, or its part, that `key` (and `column`) name.

        Raises `ToolError` for no match or several matches; it suggests similar keys.
        """
        same = [key] if key in self.entries else self._keys_with_words(key)
        if same:
            if len(same) > 1:
                raise ToolError(f"{key!r} may mean {' or '.join(map(repr, same[:6]))}.", hint="Write the key exactly.")
            entry = self.entries[same[0]]
            if not column.strip():
                return entry
            if not isinstance(entry, dict):
                raise ToolError(f"The entry {key!r} has no columns.", hint="Ask for the key alone.")
            names = [column] if column in entry else _names_with_words(entry, drop_small_words(split_words(column)))
            if len(names) != 1:
                said = "no column" if not names else "more than one column like"
                raise ToolError(f"The entry {key!r} has {said} {column!r}.", hint=_describe_entry(entry))
            return entry[names[0]]
        if column.strip():
            raise self._no_entry(key)
        return self._find_several(key) or self._find_by_words(key)

    def _find_several(self, question: str) -> dict[str, Any]:
        """Return entries asked for together: "population of Lyon, area of Lyon" or "population of Lyon and Nice".

        It is empty unless each part is a key.
        """
        parts = [part for each in re.split(r"[,;\n]", question) for part in re.split(r"\band\b", each) if part.strip()]
        if not 1 < len(parts) <= MOST_AT_ONCE:
            return {}
        first = split_words(parts[0])[:MOST_WORDS]
        heads = [" ".join(first[:length]) for length in range(len(first) - 1, 0, -1)]
        keys = [self._keys_with_words(parts[0])]
        for part in parts[1:]:
            keys.append(next(filter(None, (self._keys_with_words(f"{head} {part}") for head in ("", *heads))), []))
        return {names[0]: self.entries[names[0]] for names in keys} if all(len(names) == 1 for names in keys) else {}

    def _keys_with_words(self, key: str) -> list[str]:
        return self._by_words.get(split_words(key)) or self._by_set.get(_word_set(key)) or []

    def _find_by_words(self, question: str) -> Any:
        """Return the part that a question's words select: some name an entry's key, the others a part of the entry."""
        asked = split_words(question)[:MOST_WORDS]
        named: list[tuple[str, tuple[str, ...]]] = []
        for length in range(len(asked), 0, -1):
            for begin in range(len(asked) - length + 1):
                span = asked[begin : begin + length]
                rest = asked[:begin] + asked[begin + length :]
                if all(word in SMALL_WORDS for word in span):
                    continue
                named += [(key, rest) for key in self._by_words.get(span, ())]
            if named:
                break  # "New York" is meant even if "York" is also a key
        found: list[tuple[str, Any]] = []
        if not named:  # the entry whose key is the only one with all of the words
            words = set(_word_set(question))
            among = self._candidates(split_words(question)) if words else {}
            holding = [keys for key, keys in among.items() if words <= set(_word_set(" ".join(key)))]
            found = [(key, self.entries[key]) for keys in holding for key in keys]
            if not found:
                raise self._no_entry(question)
        for key, rest in named:
            left = tuple(word for word in rest if word not in SMALL_WORDS)
            entry = self.entries[key]
            if not left:
                found.append((key, entry))
            elif isinstance(entry, dict):
                found += [(f"{key}: {name}", entry[name]) for name in _names_with_words(entry, left)]
        if found:
            return _join_entries(found, question)
        key, rest = named[0]
        more = " ".join(word for word in rest if word not in SMALL_WORDS)
        raise ToolError(f"The entry {key!r} has nothing on {more!r}.", hint=_describe_entry(self.entries[key]))

    def _no_entry(self, key: str) -> ToolError:
        asked = split_words(key)[:MOST_WORDS]
        folded = {" ".join(k): names[0] for k, names in self._candidates(asked).items()}
        close = difflib.get_close_matches(" ".join(asked)[:200], folded, 3, 0.6)
        wanted = set(_word_set(" ".join(asked)))
        shared = {k: len(wanted & set(_word_set(k))) for k in folded}
        best = max(shared.values(), default=0)
        # The key that shares most words comes first, except for one of several words: then spelling decides.
        sharing = sorted((k for k in folded if shared[k]), key=lambda k: -shared[k])
        first = [k for k in sharing if shared[k] == best] if best > 1 else []
        near = [folded[k] for k in dict.fromkeys([*first, *close, *sharing])][:3]
        hint = f"Did you mean {', '.join(near)}?" if near else ""
        if not near and len(self.entries) <= 20:
            hint = f"The keys are: {', '.join(self.entries)}."
        return ToolError(f"There is no entry {cut_text(key, 80)!r}.", hint=hint)

    def _candidates(self, asked: tuple[str, ...]) -> dict[tuple[str, ...], list[str]]:
        """Return the keys to compare: in a large table only those that begin alike, for speed."""
        if len(self._by_words) <= NEAR:
            return self._by_words
        begins = {word[:3] for word in drop_small_words(asked)}
        like = ((k, v) for k, v in self._by_words.items() if any(word[:3] in begins for word in k))
        return dict(item for item, _ in zip(like, range(NEAR), strict=False))


def _word_set(text: str) -> tuple[str, ...]:
    return tuple(sorted(map(stem, drop_small_words(split_words(text)))))


def _index(keys: Iterable[str], by: Any) -> dict[tuple[str, ...], list[str]]:
    index: dict[tuple[str, ...], list[str]] = {}
    for key in keys:
        folded = by(key)
        if folded:
            index.setdefault(folded, []).append(key)
    return index


def _join_entries(found: list[tuple[str, Any]], question: str) -> Any:
    """Return the one match, or each of a few with its name. Raises `ToolError` if there are many."""
    if len(found) == 1:
        return found[0][1]
    if len(found) <= MOST_AT_ONCE:
        return dict(found)
    meant = ", ".join(name for name, _ in found[:MOST_AT_ONCE])
    hint = "Ask for the one that is needed, by its whole name."
    raise ToolError(f"{question!r} may mean {len(found)} entries: {meant}, ...", hint=hint)


def _names_with_words(entry: Mapping[str, Any], asked: tuple[str, ...]) -> list[str]:
    """Return the names in an entry that match a few words: all words equal, or else one name with all of them."""
    wanted = set(map(stem, asked))
    same = [name for name in entry if set(_word_set(name)) == wanted]
    return same or [name for name in entry if wanted <= set(_word_set(name))]


def _describe_entry(entry: Any) -> str:
    if isinstance(entry, dict):
        return f"It has: {', '.join(list(entry)[:20])}."
    return f"All there is: {str(entry)[:200]}."


def table_of(mapping: Mapping[Any, Any], where: str) -> LookupTable:
    """Make a table of a mapping. Raises `ConfigError` if it is empty or two keys have the same text."""
    if not mapping:
        raise ConfigError(f"{where} has no entries.", hint="A lookup needs at least one.")
    entries: dict[str, Any] = {}
    for key, value in mapping.items():
        if str(key) in entries:
            raise ConfigError(f"{where} has the key {str(key)!r} twice.", hint="Keys must differ as texts.")
        entries[str(key)] = value
    columns: dict[str, None] = {}
    for value in entries.values():
        if isinstance(value, dict):
            columns |= dict.fromkeys(map(str, value))
    return LookupTable(entries, tuple(columns))


def read_json(text: str, where: str) -> LookupTable:
    """Read a table from a JSON object, or from a list of records, by the first field of the first record."""

    def check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ConfigError(f"{where} has the key {key!r} twice in one object.", hint="Remove one.")
            found[key] = value
        return found

    try:
        value = json.loads(text, object_pairs_hook=check_unique)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{where} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}.", hint="Correct it there."
        ) from error
    except RecursionError as error:
        raise ConfigError(f"{where} is nested too deeply.") from error
    if isinstance(value, dict):
        return table_of(value, where)
    if not isinstance(value, list) or not all(isinstance(row, dict) and row for row in value):
        raise ConfigError(f"{where} is neither an object nor a list of objects.", hint="Give keys with their values.")
    return _read_records(((f"record {i}", row) for i, row in enumerate(value, 1)), where)


def _read_records(rows: Iterator[tuple[str, dict[str, Any]]], where: str) -> LookupTable:
    entries: dict[Any, Any] = {}
    places: dict[str, str] = {}
    first = ""
    for place, row in rows:
        first = first or next(iter(row))
        if first not in row:
            raise ConfigError(f"{where}: {place} has no {first!r}, by which records are found.", hint="Add it.")
        key = str(row[first])
        if key in places:
            raise ConfigError(f"{where} has the key {key!r} twice: {places[key]} and {place}.", hint="Remove one.")
        places[key] = place
        rest = {name: value for name, value in row.items() if name != first}
        entries[key] = next(iter(rest.values())) if len(row) == 2 else rest or row[first]
    return table_of(entries, where)


def read_csv(text: str, where: str) -> LookupTable:
    """Read a table from CSV with a header row, by its first column; the separator is a comma, a semicolon or a tab."""
    header_line = text.partition("\n")[0]
    delimiter = max(",;\t", key=header_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ConfigError(f"{where} is not CSV: line {reader.line_num}: {error}.") from error
    if len(rows) < 2:
        raise ConfigError(f"{where} has no rows below its header.", hint="The first row names the columns.")
    header = [cell.strip() for cell in rows[0][1]]
    if len(set(header)) != len(header):
        raise ConfigError(f"{where} has two columns of one name: {', '.join(header)}.", hint="Rename one.")

    def records() -> Iterator[tuple[str, dict[str, Any]]]:
        for line, row in rows[1:]:
            if len(row) > len(header):
                raise ConfigError(
                    f"{where}: line {line} has {len(row)} cells, but there are {len(header)} columns.",
                    hint="Put a cell that holds a comma in double quotes.",
                )
            cells = [cell.strip() for cell in row] + [""] * (len(header) - len(row))
            yield f"line {line}", dict(zip(header, cells, strict=True))

    return _read_records(records(), where)
