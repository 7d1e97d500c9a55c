"""What the documentation says is so: its code and commands run, its links lead somewhere, its tables are whole."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest

import plait
from docs_support import PAGES, ROOT, blocks_of, commands_of, files_of, fits, run_page
from fork_server import run_shell
from plait.cli.run import run as run_command
from plait.cli.run_output import CODES
from plait.config import TelemetryTable, agent_types, load
from plait.core import events
from plait.models.base import ABILITIES
from plait.models.config import EndpointConfig, ModelConfig
from plait.models.embedded import ServerSettings
from plait.runtime.limits import Limits
from plait.runtime.run import Run
from plait.runtime.templates.prompts import shipped_prompts, variables_of

DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "plait"
BY_HAND = [page for page in PAGES if not page.name.startswith("reference-")]
EVERYWHERE = "\n".join(page.read_text(encoding="utf-8") for page in BY_HAND)
MARKDOWN = sorted(
    {
        path
        for folder in (
            ROOT,
            DOCS,
            DOCS / "published",
            DOCS / "recipes",
            ROOT / "examples",
            *(path.parent for path in SOURCE.rglob("*.py")),
        )
        for path in folder.glob("*.md")
    }
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- what is shown is what happens


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_page_runs_and_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    ran = run_page(page, folder)
    assert ran == sum(
        len(commands_of(block)) if block.language == "console" else 1
        for block in blocks_of(page.read_text(encoding="utf-8"))
        if block.language in ("console", "python") and not block.no_run and not block.file
    )


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\n```text output\n2\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nx = 1\n```\n```text output\n1\n```\n",
        "```python\nassert False\n```\n",
        "```console\n$ plait --version\nplait 9.9.9\n```\n",
        "```console\n$ plait --version\nplait ...\nanother line\n```\n",
        "```console\n$ plait run\n```\n",
        "```console\n$ plait absent | cat; exit 3\n```\n",
        "```console no-run\n$ plait --version\n```\n",
        "```console\nplait --version\n```\n",
        "```python\nx = 1\n",
    ],
)
def test_a_page_that_is_not_true_fails(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs_support.ROOT", tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "folder").mkdir()
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError):
        run_page(page, tmp_path / "folder")


def test_in_a_shell_the_command_has_its_folder_variables_streams_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    words = [
        "cd below",
        "plait --version > version",
        "XDG_CONFIG_HOME=$PWD/own plait profiles list --absent 2> error; echo $?",
        "plait absent 2>&1 | wc -l; echo ${PIPESTATUS[0]}",
        "printf 'Well?\\n' | plait run - --model absent:x --no-journal 2>&1 | head -1",
    ]
    done = run_shell("\n".join(words), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (tmp_path / "below" / "version").read_text().startswith("plait ")
    assert done.stderr == "" and (tmp_path / "below" / "error").read_text()
    refused, lines, absent, first = done.stdout.splitlines()
    assert (refused, absent) == ("2", "2") and int(lines) > 0 and first.startswith("Error: ")


def test_a_true_page_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs_support.ROOT", tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "folder").mkdir()
    page = tmp_path / "page.md"
    page.write_text(
        "```python file=one.py\nx = 41\n```\n"
        "```python\nimport one\nprint(one.x + 1)\n```\n````text output\n42\n````\n"
        "```console\n$ plait --version\nplait ...\n$ false; echo $?\n1\n$ printf 'a\\nb\\nc'\na\n...\n"
        "$ cat \\\n    one.py\nx = 41\n```\n```console no-run: needs a network\n$ false\n```\n"
    )
    assert run_page(page, tmp_path / "folder") == 5


def test_wildcards_stand_for_what_they_say_and_no_more() -> None:
    assert fits("run 20260101-000000-abcdef took 3.2 s", "run 20261121-044535-2h9f3h took 17 ms")
    assert fits("a\n...\nz", "a\nz") and fits("a\n...\nz", "a\nb\nc\nz")
    assert fits("a ... z", "a b z") and not fits("a ... z", "a b\nz")
    assert not fits("a\nb", "a\nb\nc") and not fits("a\nb", "a")
    assert not fits("3 steps", "4 steps") and not fits("a.c", "abc")


# --- links


def test_every_relative_link_leads_somewhere() -> None:
    for page in MARKDOWN:
        plain = re.sub(r"^(```+).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", plain):
            if re.match(r"[a-z]+:", link):
                continue
            place, _, heading = link.partition("#")
            target = (page.parent / place).resolve() if place else page
            assert target.exists(), f"{page} links to {link}"
            if heading:
                heads = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
                names = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
                assert heading in names, f"{page} links to {link}"


def test_the_index_links_every_page() -> None:
    for folder in (DOCS, DOCS / "published", DOCS / "recipes"):
        index = (folder / "README.md").read_text(encoding="utf-8")
        for page in folder.glob("*.md"):
            assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_the_program_of_a_recipe_has_at_most_60_lines() -> None:
    for page in (DOCS / "recipes").glob("*.md"):
        for name, text in files_of(page).items():
            assert not name.endswith(".py") or len(text.splitlines()) <= 60, f"{page.name}: {name}"


# --- nothing is left out


def test_every_public_name_stands_on_the_page_of_the_library() -> None:
    page = text_of("docs/python.md")
    for name in plait.__all__:
        assert re.search(rf"`plait\.{re.escape(name)}\b", page), name
    for name in (item.name for item in fields(plait.Agent) if not item.name.startswith("_")):
        assert f"| `{name}` |" in page, name
    for name in ("run", "arun", "stream", "using", "resume", "aresume", "replay", "fork", "afork", "from_journal"):
        assert hasattr(plait.Agent, name) and re.search(rf"`(?:await |Agent\.)?{name}\b", page), name
    for name in (*Run.__struct_fields__, "status", "answer", "reason", "trace", "events"):
        if name not in ("rows", "read_children", "loop"):
            assert f"`{name}`" in page, name


def test_every_event_stands_there_with_its_fields() -> None:
    table = text_of("docs/python.md").partition("| event of `plait.core.events` |")[2]
    for kind in events.Event.__args__:
        row = next(line for line in table.splitlines() if line.startswith("|") and f"`{kind.__name__}`" in line)
        for name in kind.__struct_fields__:
            assert f"`{name}`" in row, f"{kind.__name__}.{name}"


def test_every_limit_stands_with_its_default() -> None:
    page = text_of("docs/limits.md")
    defaults = Limits()
    for name in Limits.__struct_fields__[:-1]:  # the last holds the limits of code
        row = next(line for line in page.splitlines() if f"| `{name}` |" in line)
        default = getattr(defaults, name)
        assert row.endswith(f"| {'none' if default is None else format(default, 'g')} |"), row


def test_every_outcome_stands_with_its_exit_code() -> None:
    page = text_of("docs/limits.md")
    for status, code in CODES.items():
        assert f"| {status} | {code} |" in page, status


def test_every_option_of_plait_run_is_told_of_by_hand_and_in_the_reference() -> None:
    reference = text_of("docs/reference-cli.md")
    for option in run_command.params:
        for word in option.opts:
            if word.startswith("--"):
                assert word in reference, word
                assert re.search(rf"{word}\b", EVERYWHERE), f"{word} stands only in the reference"


@pytest.mark.parametrize("loop", ["json", "tool_calling"])
def test_every_variable_of_a_prompt_stands_in_the_table(loop: str) -> None:
    table = text_of("docs/prompts.md").partition(f"| prompt of `{loop}` |")[2].partition("\n\n")[0]
    for name, template in shipped_prompts(loop).items():
        row = next(line for line in table.splitlines() if f"`{name}`" in line.partition(" | ")[0])
        for variable in variables_of(template):
            assert f"`{variable}`" in row, f"{loop}/{name}: {variable}"


def test_every_command_is_told_of() -> None:
    from plait.cli.commands import COMMANDS

    for command in COMMANDS:
        assert f"plait {command}" in EVERYWHERE, command


def test_every_ability_is_told_of() -> None:
    page = text_of("docs/models.md")
    for ability in ABILITIES:
        assert f"`{ability}`" in page, ability


def test_every_environment_variable_is_told_of() -> None:
    page = text_of("docs/configuration.md")
    used = {name for path in SOURCE.rglob("*.py") for name in re.findall(r"\bPLAIT_[A-Z_]+\b", path.read_text("utf-8"))}
    assert {"PLAIT_JOURNAL", "PLAIT_MODEL"} <= used
    for name in used:
        assert f"`{name}`" in page, name


def test_the_example_configuration_has_everything_and_is_taken() -> None:
    place = ROOT / "examples" / "plait.toml"
    config = load(place)
    assert config.run["loop"] == "react" and "house" in config.models.endpoints
    text = place.read_text(encoding="utf-8")
    said = tomllib.loads(re.sub(r"^# (?=(prompts|journal|system|instructions|schema) = )", "", text, flags=re.M))
    assert set(said["run"]) <= set(agent_types()[0].__struct_fields__)  # reference-options.md has all
    assert set(said["telemetry"]) == set(TelemetryTable.__struct_fields__)
    assert set(said) - {"run", "serve", "agents", "telemetry"} == set(ModelConfig.__struct_fields__) - {"source"}
    assert set(said["endpoints"]["house"]) == set(EndpointConfig.__struct_fields__)
    assert set(said["local"]) == set(ServerSettings.__struct_fields__)


def test_a_command_names_the_question_that_was_printed_last() -> None:
    ids, named = re.compile(r"--question ([a-z2-7]{8})\b"), 0
    for page in PAGES:
        printed = ""
        for line in page.read_text().splitlines():
            if not line.startswith("$ "):
                printed = next(reversed(ids.findall(line)), printed)
            elif found := ids.findall(line):
                assert found == [printed], f"{page.name}: {line}"
                named += 1
    assert named >= 6


def test_the_picture_is_of_the_question_that_make_run_asks_and_needs_no_network() -> None:
    picture = ElementTree.parse(DOCS / "images" / "run.svg")
    drawn = " ".join("".join(picture.getroot().itertext()).replace("\xa0", " ").split())
    question = re.search(r'plait run "([^"]+)"', text_of("Makefile"))
    assert question and re.sub(r"\s", "", question[1]) in re.sub(r"\s", "", drawn)
    assert "answered" in drawn
    source = text_of("docs/images/run.svg").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|@import|@font-face|<image", source)
    assert len(source) < 100_000


# --- the folders of the source


def test_each_folder_has_a_line_for_every_file() -> None:
    for folder in (*(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE), ROOT / "examples"):
        page = folder / "README.md"
        assert page.exists(), f"{folder.relative_to(ROOT)} has no README.md"
        text = page.read_text(encoding="utf-8")
        here = {path.name for path in folder.iterdir() if path.is_file()} - {"__init__.py", "README.md", "py.typed"}
        for name in here:
            assert f"`{name}`" in text, f"{folder.name}/README.md has no line for {name}"
        for name in re.findall(r"`(\w+\.py)`", text):
            assert (folder / name).exists(), f"{folder.name}/README.md tells of {name}, which is not there"
