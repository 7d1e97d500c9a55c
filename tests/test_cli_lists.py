"""The commands that tell what there is: prompts, tools, loops, models; and the page made from their help."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from cli_support import Shell, final, run_in_process
from conftest import for_each
from fork_server import run_forked
from plait.cli.commands import plait as program
from plait.core import LoopTraits
from plait.loops import shared_prompts_of
from plait.loops.registry import OURS, UNLISTED

ROOT = Path(__file__).parents[1]
LOOPS = ROOT / "src/plait/loops"
TURNS, PLANS = ("compaction", "transcript"), ("plan",)
SHARED = {"react": TURNS, "json": TURNS, "codeact": TURNS, "rewoo": PLANS, "compiler": PLANS, "judge": ()}
SHARED |= dict.fromkeys(("tool_calling", "phased"), ("compaction",))
"""The folders of `loops/prompts` whose templates a loop also has."""


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def template(name: str) -> Path:
    """The file of a prompt, such as "react/system"; those in `loops/prompts` belong to several loops."""
    loop, _, prompt = name.partition("/")
    folders = (LOOPS / loop / "prompts", LOOPS / "prompts", *(LOOPS / "prompts" / each for each in SHARED[loop]))
    return next(path for folder in folders if (path := folder / f"{prompt}.j2").exists())


def test_every_prompt_is_shown_as_its_file_is(plait: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    names = plait("prompts", "list").out.split()
    shipped = {f"{path.parent.parent.name}/{path.stem}" for path in LOOPS.glob("*/prompts/*.j2")}
    loops = {name.partition("/")[0] for name in shipped}
    shared = {f"{loop}/{path.stem}" for loop in loops for path in LOOPS.glob("prompts/*.j2")}
    assert {loop: shared_prompts_of(loop) for loop in loops} == SHARED
    shared |= {
        f"{loop}/{path.stem}" for loop in loops for each in SHARED[loop] for path in LOOPS.glob(f"prompts/{each}/*")
    }
    assert sorted(names) == sorted(shipped | shared)
    for name in names:
        assert run_in_process(["prompts", "show", name]) == 0
        assert capsys.readouterr().out == template(name).read_text()
    assert plait("prompts", "show", "react").out.count("--- react/") == sum(n.startswith("react/") for n in names)
    assert plait("prompts", "show", "reakt").code == 2
    assert plait("prompts", "show", "react/absent").code == 2


@for_each("loop", [*OURS, *UNLISTED])
def test_a_loop_states_only_what_is_asked_of_it(loop: str) -> None:
    """A misspelled attribute would be the default, silently."""
    module, kind = {**OURS, **UNLISTED}[loop]
    loop_class = getattr(import_module(f"plait.loops.{module}.loop"), kind)
    stated = {name for name, hint in vars(loop_class)["__annotations__"].items() if hint.startswith("ClassVar")}
    assert stated <= {"name", "phases", *LoopTraits.__struct_fields__}


def test_copied_prompts_are_used_and_never_written_over(plait: Shell) -> None:
    assert plait("prompts", "copy", "react", "mine").code == 0
    question = plait.folder / "mine" / "react" / "question.j2"
    question.write_text("Mine: {{ question }}")
    again = plait("prompts", "copy", "react", "mine")
    assert again.code == 2 and "--force" in again.err
    assert question.read_text() == "Mine: {{ question }}"
    plait("run", "why?", "--model", plait.script([final("ok")]), "--prompts", "mine")
    assert "Mine: why?" in plait("show", "last", "--wire").out
    assert plait("prompts", "copy", "react", "mine", "--force").code == 0
    assert question.read_text() == template("react/question").read_text()


def test_a_prompt_that_is_no_template_is_refused_with_its_line(plait: Shell) -> None:
    plait("prompts", "copy", "react", "mine")
    (plait.folder / "mine" / "react" / "question.j2").write_text("fine\n{{ question ")
    done = plait("run", "q", "--model", plait.script([final("ok")]), "--prompts", "mine")
    assert done.code == 2
    assert "react/question" in done.err and "line 2" in done.err


def test_tools_list_names_the_toolkits_and_tells_of_each_tool(plait: Shell) -> None:
    listed = dict(line.split(maxsplit=1) for line in plait("tools", "list").out.splitlines())
    assert {"calculator", "lookup", "weather", "slack", "world", "all"} <= set(listed)
    assert "get_current_weather, " in listed["weather"]
    assert listed["calculator"].startswith("Computes")
    told = plait("tools", "list", "calculator", "tools.py").out
    assert told.startswith('calculator {"expression": string}  [read_only')
    assert 'send {"text": string}\n  Sends a text.' in told
    found = json.loads(plait("tools", "list", "tools.py", "--json").out)
    assert [each["name"] for each in found] == ["send", "hang", "stubborn", "hostile", "long"]
    assert plait("tools", "list", "calculater").code == 2


def test_loops_list_tells_options_defaults_and_phases(plait: Shell) -> None:
    told = plait("loops", "list").out
    assert "--set transcript=chat  (chat | user | completion)" in told
    assert "phases: act" in told
    found = {each["name"]: each for each in json.loads(plait("loops", "list", "--json").out)}
    assert {"react", "json"} <= set(found)
    assert found["react"]["options"]["max_parse_errors"] == ["int", 3]


def test_models_list_tells_what_is_there(plait: Shell) -> None:
    told = plait("models", "list", env={"PLAIT_CACHE": str(plait.folder / "cache")}).out
    assert "local:qwen2.5-coder-1.5b" in told and "openai" in told
    found = json.loads(plait("models", "list", "--json", env={"PLAIT_CACHE": str(plait.folder)}).out)
    assert [each["cached"] for each in found] == [False] * len(found)
    wrong = plait("models", "pull", "qwen2.5-coder-15b")
    assert wrong.code == 2 and "qwen2.5-coder-1.5b" in wrong.err


def test_the_reference_pages_are_what_the_program_says_now(tmp_path: Path) -> None:
    assert run_forked([ROOT / "docs/generate_reference.py", tmp_path]).returncode == 0
    for name in (each.name for each in tmp_path.iterdir()):
        place = ROOT / ("skills/plait" if name == "SKILL.md" else "docs") / name
        assert (tmp_path / name).read_text() == place.read_text(), "run: make docs"


def test_the_skill_has_the_head_that_the_format_demands() -> None:
    folder = ROOT / "skills" / "plait"
    _, head, body = (folder / "SKILL.md").read_text().split("---\n", 2)
    fields = dict(re.findall(r"^([a-z]+): (?:>-\n)?((?:.+|\n  .+)+)", head, re.M))
    assert fields["name"] == folder.name and 100 < len(fields["description"]) <= 1024
    assert body.count("\n") < 500 and "](" not in body.replace("`](", "")


def test_every_line_of_the_names_is_whole_sentences() -> None:
    page = (ROOT / "docs" / "reference-python.md").read_text().partition("\n## ")[2]
    lines = [line for line in page.splitlines() if line and line[0] != "#" and not line.startswith("`")]
    assert len(lines) > 150
    assert [line for line in lines if not line.endswith((".", "?", "!", ")"))] == []


LINK = re.compile(r"\[([^]]+)\]\(#[^)]+\)(?:, without their defaults)?(?:, (but not|only) ((?:`\S+`(?:, )?)+))?")
"""A shared section that a section of the reference names: its title, and the options that the command lacks or has."""


def walk_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below
            yield from walk_commands(below, f"{path} {name}")


def in_one_line(text: str) -> str:
    text = re.sub(r" (Several are compared|Can be repeated)\.", "", " ".join(text.split()))
    return re.sub(r"\.? \(default [^()]*\)(?=\.)", "", text)


def test_each_option_of_each_command_is_in_its_section_of_the_reference_or_in_a_shared_one_that_it_names() -> None:
    page = (ROOT / "docs" / "reference-cli.md").read_text("utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    shared = {title.lower(): text for title, text in sections.items() if title[0] != "`"}
    sections = {re.sub(r" [A-Z\[].*", "", title.strip("`")): text for title, text in sections.items()}
    without_journal = re.findall(r"`([^`]+)`", shared["journal and configuration"].partition("except")[2])
    for path, command in walk_commands(program, "plait"):
        own, _, also = sections[path].partition("\nAlso: ")
        links = LINK.findall(also)
        links += [further for link, *_ in links for further in LINK.findall(shared[link])]
        places = [(own, "but not", ""), *((shared[link], rule, words) for link, rule, words in links)]
        options = [each for each in command.params if isinstance(each, click.Option)]
        words = {word for option in options for word in option.opts}
        if not isinstance(command, click.Group):
            assert ("--journal" in words) is not any(path.startswith(each) for each in without_journal), path
        places.append((shared["journal and configuration"], "only", "`--journal`, `--config`"))
        for text, rule, named in places[1:]:
            if rule != "only":
                assert set(re.findall(r"^(--?\w[\w-]*)", text, re.M)) - words == set(re.findall(r"`(\S+)`", named)), (
                    path
                )
        for option in options:
            record = option.get_help_record(click.Context(command))
            assert not record or any(
                in_one_line(" ".join(record)) in in_one_line(text)
                for text, rule, named in places
                if rule != "only" or f"`{option.opts[0]}`" in named
            ), f"{path}: {record[0]}"


def test_the_module_is_the_command() -> None:
    words = [sys.executable, "-m", "plait", "loops", "list", "codeact"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "codeact")
