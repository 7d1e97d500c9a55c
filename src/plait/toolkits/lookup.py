"""The tool `lookup`, over a user's own table (a mapping, JSON, CSV) or folder of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.core.errors import ConfigError
from plait.tools.render import numeral
from plait.tools.tool import Tool, tool
from plait.user_files import read_text

if TYPE_CHECKING:
    from plait.toolkits.passages import Passages
    from plait.toolkits.table import LookupTable

FEW_KEYS = 40
FEW_CHARACTERS = 1200
AT_ONCE = 1000
"""A table of at most this many entries needs no thread, even for a miss, which compares all keys."""
TEXTS = (".txt", ".md")
PLACE = "X"
"""Replaces the part in which keys differ."""
_OF = " of "


def lookup(source: str | Path | Mapping[Any, Any], name: str = "lookup") -> Tool:
    """Make a tool that looks things up in `source`: a mapping, a .json or .csv file, a text, or a folder of texts.

    JSON is an object of keys and values, or a list of records whose first field is the key; CSV has a header
    row and its first column is the key. A small table (at most 40 keys and 1,200 characters) names its keys
    in the tool's description. Everything is read once, now; a call reads nothing. Raises `ConfigError` for a
    source that can't be read, is empty, or has a key twice.
    """
    from plait.toolkits import table

    if isinstance(source, Mapping):
        return _make_table_tool(table.table_of(source, "the mapping"), name, "a table", from_file=False)
    if not str(source):
        raise ConfigError("A lookup needs a file or a folder.", hint="Write lookup:facts.json.")
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in TEXTS
            and file.is_file()
            and not any(part.startswith(".") for part in file.relative_to(path).parts)
        )
        if not files:
            raise ConfigError(f"The folder {str(path)!r} has no .txt or .md files.", hint="Put the texts there.")
        return _make_text_tool(_load_texts(files, path), name, f"the texts of {path.resolve().name}")
    if not path.exists():
        raise ConfigError(f"There is no file {str(source)!r}.", hint=f"Looked for {path.absolute()}.")
    suffix = path.suffix.lower()
    if suffix in TEXTS:
        return _make_text_tool(_load_texts([path], path.parent), name, path.name)
    if suffix not in (".json", ".csv", ".tsv"):
        hint = "It reads .json, .csv, .tsv, .txt, .md, and folders of .txt and .md."
        raise ConfigError(f"{str(source)!r} is no table or text that lookup knows.", hint=hint)
    if not (text := read_text(str(path))).strip():
        raise ConfigError(f"{path.name} is empty.", hint="A lookup needs at least one entry.")
    read = table.read_json if suffix == ".json" else table.read_csv
    return _make_table_tool(read(text, path.name), name, path.name)


def _make_table_tool(table: LookupTable, name: str, where: str, from_file: bool = True) -> Tool:
    description = f"Looks up one entry of {where} by its key, one key a call."
    keys = ", ".join(table.entries)
    if len(table.entries) <= FEW_KEYS and len(keys) <= FEW_CHARACTERS:
        description += f" Keys: {summarize_keys(list(table.entries))}."
    else:
        description += f" It has {len(table.entries):,} keys, such as {', '.join(list(table.entries)[:3])}."
    options: dict[str, Any] = {"name": name, "returns": "the entry", "read_only": True, "open_world": from_file}
    options["inline"] = len(table.entries) <= AT_ONCE
    if not table.columns:

        @tool(description=description, **options)
        def find(key: str) -> Any:
            """
            Args:
                key: One of the keys, whole.
            """
            return numeral(table.find(key))

        return find
    columns = ", ".join(table.columns[:20])
    if len(columns) <= FEW_CHARACTERS:
        description += f" An entry has: {columns}{', ...' if len(table.columns) > 20 else ''}."

    @tool(description=description, **options)
    def find_part(key: str, column: str = "") -> Any:
        """
        Args:
            key: The entry's key.
            column: Which part of the entry; leave it out for the whole entry.
        """
        return numeral(table.find(key, column))

    return find_part


def summarize_keys(keys: Sequence[str]) -> str:
    """Name all keys of a table in few words: keys that differ in one part are named together.

    "area of Ghent in km2, area of Lier in km2" becomes "area of X in km2 (X: Ghent, Lier)". It is shorter, and a small
    model does not recite it.
    """
    families: dict[str, list[str]] = {}
    for key in keys:
        head, of, _ = key.partition(_OF)
        families.setdefault(head + of if of else key, []).append(key)
    forms_of: dict[tuple[str, ...], list[str]] = {}
    for head, members in families.items():
        rest = [member[len(head) :] for member in members]
        tail = _common_tail(rest)
        names = tuple(each[: len(each) - len(tail)] for each in rest)
        if len(members) < 2 or not head.endswith(_OF) or not all(names) or len(set(names)) < len(names):
            forms_of.setdefault((), []).extend(members)
        else:
            forms_of.setdefault(names, []).append(f"{head}{PLACE}{tail}")
    return "; ".join(
        f"{', '.join(forms)} ({PLACE}: {', '.join(names)})" if names else ", ".join(forms)
        for names, forms in forms_of.items()
    )


def _common_tail(texts: Iterable[str]) -> str:
    """Return the words at the end of all texts; empty if that is all of one text."""
    words = [text.split(" ") for text in texts]
    longest = min(len(each) for each in words) - 1
    count = next((n for n in range(longest, 0, -1) if len({tuple(each[-n:]) for each in words}) == 1), 0)
    tail = words[0][len(words[0]) - count :]
    while tail and tail[0][:1].isupper():  # belongs to a name: `Cor Bridge`
        tail = tail[1:]
    return "".join(f" {word}" for word in tail)


def _make_text_tool(texts: Passages, name: str, where: str) -> Tool:
    files = ", ".join(texts.files)
    listed = len(texts.files) <= FEW_KEYS and len(files) <= FEW_CHARACTERS
    named = f" ({files})" if listed and len(texts.files) > 1 else ""
    if not listed:
        named = f" ({len(texts.files):,} files)"

    @tool(
        name=name,
        description=f"Finds the passages of {where}{named} that best fit some words.",
        returns="the best passages, each with its file's name",
        read_only=True,
        open_world=True,
        inline=True,
    )
    def search(query: str) -> str:
        """
        Args:
            query: A few words on what is wanted.
        """
        return texts.find(query)

    return search


def _load_texts(files: list[Path], root: Path) -> Passages:
    from plait.toolkits.passages import Passages, split_passages

    names = [file.relative_to(root).as_posix() for file in files]
    passages = [
        part for file, name in zip(files, names, strict=True) for part in split_passages(name, read_text(str(file)))
    ]
    if not passages:
        raise ConfigError(f"There is no text in {', '.join(names[:5])}.", hint="The files are empty.")
    return Passages(tuple(passages), tuple(names))
