"""The scripts and pages beside the source name only what is there: nothing else notices a name that has changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path for folder in ("benchmarks", "docs", "examples") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])


def find(name: str) -> object:
    """Return the module or the member of a module with this name."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(find(module), last)


def exists(name: str) -> bool:
    try:
        find(name)
    except AttributeError:
        return False
    except ImportError as why:
        return not (why.name or "").startswith("plait")  # an extra that is not installed
    return True


def imported_names(script: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "plait" and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_imports_only_names_that_are_there(script: Path) -> None:
    assert [name for name in imported_names(script) if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_names_only_what_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"\bplait\.[a-z_]+\.\w+(?:\.\w+)*", text))
    of_modules = [each for each in names if find_spec(".".join(each.split(".")[:2]))]
    assert [name for name in of_modules if not exists(name)] == []
