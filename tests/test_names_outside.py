"""The scripts and pages beside the source name only what is there: nothing else notices a name that has changed."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType

from conftest import for_each

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
    # From the byte code: Python 3.11's `ast.parse` fails at times while other threads run.
    todo, module = [compile(script.read_text(encoding="utf-8"), script.name, "exec")], ""
    while todo:
        code = todo.pop()
        todo += [each for each in code.co_consts if isinstance(each, CodeType)]
        for each in dis.get_instructions(code):
            if each.opname == "IMPORT_NAME":
                module = str(each.argval)
            elif each.opname == "IMPORT_FROM" and module.partition(".")[0] == "plait":
                yield f"{module}.{each.argval}"


@for_each("script", SCRIPTS)
def test_a_script_imports_only_names_that_are_there(script: Path) -> None:
    assert [name for name in imported_names(script) if not exists(name)] == []


@for_each("page", PAGES)
def test_a_page_names_only_what_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"\bplait\.[a-z_]+\.\w+(?:\.\w+)*", text))
    of_modules = [each for each in names if find_spec(".".join(each.split(".")[:2]))]
    assert [name for name in of_modules if not exists(name)] == []
