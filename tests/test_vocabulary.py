"""One name for one thing: class names are unique, and words that were given up do not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "plait"
FILES = sorted(SOURCE.rglob("*.py"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md"), *SOURCE.rglob("*.md")]

OLD_IDENTIFIERS = frozenset(
    re.findall(
        r"\w+",
        """
        strategy strategies Strategy React JsonReact Rewoo Compiler Native Kit kit Desk desk Seat seat Job Thing Things
        Handle
        Window provenance Doubt doubts struck made_up Propose Take Taken Ask in_doubt InDoubt misses show_tools
        emit UsageError
        TooLong PromptTooLong Lacking MissingAbility Refused advise Advice retell faces
        """,
    )
)
"""Names that the code had before. Each has one successor; docs/glossary.md has the terms."""

OLD_OPTIONS = ("--strategy", "--strategies", "--provenance", "--in-doubt", "--show-tools", "--window", "--misses")
OLD_COMMANDS = ("plait strategies", "plait tables", "plait advise", "plait mark ", "plait window")
OLD_KEYS = ("strategy", "strategies", "provenance", "in_doubt", "show_tools", "misses", "window", "results", "at_least")


def test_no_public_class_name_is_used_twice() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(SOURCE).as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_old_identifier_remains(path: Path) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    found = {token.string for token in tokens if token.type == tokenize.NAME} & OLD_IDENTIFIERS
    assert not found - ALLOWED.get(path.relative_to(SOURCE).as_posix(), set())


ALLOWED = {"cli/plan.py": {"UsageError"}, "telemetry/sdk.py": {"emit"}}
"""Names of other libraries, by the file that uses them."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_names_an_old_option_or_command(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [word for word in (*OLD_OPTIONS, *OLD_COMMANDS) if word in text] == []


def test_no_old_option_or_key_is_taken() -> None:
    from plait.cli.commands import COMMANDS
    from plait.config import agent_types
    from plait.runtime.agent_fields import OPTIONS

    assert not set(COMMANDS) & {"strategies", "tables", "advise", "mark", "window"}
    assert not set(agent_types()[0].__struct_fields__) & set(OLD_KEYS)
    options = "\n".join(
        re.findall(r"\"(--[a-z-]+)", "\n".join(path.read_text() for path in (SOURCE / "cli").glob("*.py")))
    )
    flags = {option.flag.partition(" ")[0] for option in OPTIONS}
    assert [option for option in OLD_OPTIONS if option in {*options.split("\n"), *flags}] == []


def test_the_glossary_defines_each_term_in_one_line() -> None:
    rows = re.findall(r"^\| ([a-z][^|]*) \| ([^|]+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = [term for term, _ in rows if term != "term"]
    assert terms == sorted(terms) and len(terms) == len(set(terms)) > 30
    assert {"loop", "journal", "trace", "viewer", "wire", "approval", "grounding", "artifact", "handle"} <= set(terms)
