"""Claims about words: what each loads, and what is said when it loads nothing. Real files, real packages."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.core.errors import ConfigError
from plait.tools import load, tools_from


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper.py").write_text("BASE = 10\n")
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from plait.tools import tool\n"
        "import helper\n"
        "@dataclass\nclass Place:\n    city: str\n"
        "@tool\ndef second(place: Place) -> str:\n    return place.city\n"
        "@tool(name='first')\ndef named(x: int) -> int:\n    return x + helper.BASE\n"
        "def plain(x: int) -> int:\n    return x\n"
    )
    (tmp_path / "facts.json").write_text('{"Lyon": 1, "Nice": 2}')
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def test_the_calculator_is_a_word(folder: Path) -> None:
    (calculator,) = load("calculator")
    assert calculator.source == "calculator" and calculator("2+2") == "4"


def test_a_file_gives_every_tool_in_it_in_order_and_no_plain_function(folder: Path) -> None:
    second, first = load("mine.py")
    assert (second.name, first.name, second.source) == ("second", "first", "mine.py")
    args, kwargs = second.bind({"place": {"city": "Lyon"}})
    assert second(*args, **kwargs) == "Lyon"
    assert first(1) == 11


def test_a_module_and_name_gives_that_tool_or_that_typed_function(folder: Path) -> None:
    assert load("mine:named")[0].name == "first"
    assert load("mine:plain")[0].bind("3") == ((), {"x": 3})


def test_a_lookup_is_loaded_with_its_file_and_can_be_renamed(folder: Path) -> None:
    cities, plain = tools_from(["cities=lookup:facts.json", "lookup:facts.json"])
    assert (cities.name, plain.name) == ("cities", "lookup")
    assert cities.source == "cities=lookup:facts.json" and cities("nice") == 2
    assert load(cities.source)[0].spec == cities.spec, "a resumed run gets the same tool by the source"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("calculater", "Did you mean calculator?"),
        ("zzz", "Toolkits: calculator, lookup"),
        ("", "Toolkits: calculator"),
        ("lookup", "Write lookup:"),
        ("lookup:", "needs a file"),
        ("lookup:none.json", "There is no file 'none.json'"),
        ("calculator:2", "no precision '2'"),
        ("none.py", "There is no file 'none.py'. Looked for"),
        ("plain.py", "no tools in it. Put @plait.tool above f"),
        ("empty.py", "no tools in it. Define some"),
        ("syntax.py", "line 2: SyntaxError"),
        ("raises.py", "line 2: ZeroDivisionError: division by zero"),
        ("exits.py", "line 1: SystemExit: 3"),
        ("imports.py", "line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("mine:secnd", "has no 'secnd'. Did you mean second"),
        ("mine:helper", "no tools in it"),
        ("calculatr:x", "Did you mean the toolkit calculator?"),
        ("raises:f", "fails when imported: ZeroDivisionError"),
        ("both=mine.py", "gives a name to 2 tools"),
        ("two words=calculator", "No toolkit is named"),
        ("mine:__file__", "is a str and not a tool"),
    ],
)
def test_a_word_that_loads_nothing_is_refused_with_what_to_do(folder: Path, word: str, said: str) -> None:
    (folder / "plain.py").write_text("def f(x: int) -> int:\n    return x\n")
    (folder / "empty.py").write_text("")
    (folder / "syntax.py").write_text("x = 1\ndef f(:\n")
    (folder / "raises.py").write_text("def f():\n    return 1 / 0\nf()\n")
    (folder / "exits.py").write_text("raise SystemExit(3)\n")
    (folder / "imports.py").write_text("import nowhere_at_all\n")
    with pytest.raises(ConfigError) as caught:
        load(word)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_installed_plugin_is_a_word_with_and_without_an_argument(folder: Path) -> None:
    name = f"plug{uuid.uuid4().hex[:8]}"
    (folder / f"{name}.py").write_text(
        "from plait.tools import tool, Tool\n"
        "@tool\ndef hello() -> str:\n    return 'hi'\n"
        "def shelf(argument: str = 'none') -> list[Tool]:\n"
        "    @tool\n    def look() -> str:\n        return argument\n    return [hello, look]\n"
        "def wrong() -> int:\n    return 3\n"
        "def fails() -> int:\n    raise OSError('no disk')\n"
    )
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[plait.toolkits]\ngreet={name}:hello\nshelf={name}:shelf\nwrong={name}:wrong\n"
        f"fails={name}:fails\nbroken={name}:nothing\n"
    )
    sys.path.append(str(folder))
    assert load("greet")[0]() == "hi"
    assert [one.name for one in load("shelf:books")] == ["hello", "look"]
    assert load("shelf:books")[1]() == "books" and load("shelf")[1]() == "none"
    for word, said in [
        ("gret", "Did you mean greet"),
        ("wrong", "is a int and not a tool"),
        ("fails", "OSError: no disk"),
        ("broken", "can't be loaded: AttributeError"),
    ]:
        with pytest.raises(ConfigError, match=said):
            load(word)
