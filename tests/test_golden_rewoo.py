"""The published ReWOO: with the account's prompts in a folder, the requests equal those of its code, byte for byte.

The prompts are cut from the published text. `fill_input` and `write_plan_lines` do what the account's worker and solver
do with them; the replies are the example plan of its planner prompt, and plans in the ways in which models write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell
from conftest import data_file
from plait.journal.store import Journal

EARTH = "How heavy is Earth, and how many moons go round it?"
FILES = {
    "system": "",
    "work": "{{ step.filled }}",
    "evidence": "{{ text | tojson }}",
}
STEPS = """\
{% for step in plan %}
Plan: {{ step.thought }}
#{{ step.id }} = {{ step.tool }}[{{ step.filled }}]
{% endfor %}
"""
ONCE = """\
{% for step in plan %}
Plan: {{ step.thought }}
{% set filled = namespace(input=step.input) %}
{% for id, text in evidence.items() %}
{% set filled.input = filled.input | replace("#" ~ id, text, 1) %}
{% endfor %}
#{{ step.id }} = {{ step.tool }}[{{ filled.input }}]
{% endfor %}
"""


@pytest.fixture(scope="module")
def account() -> str:
    return data_file("published", "rewoo.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def planner(account: str) -> str:
    return account.partition("const plannerPrompt = `")[2].partition("`")[0]


@pytest.fixture(scope="module")
def solver(account: str) -> str:
    return account.partition("const solverPrompt = `")[2].partition("`")[0]


@pytest.fixture(scope="module")
def pattern(account: str) -> str:
    """The regular expression with which the account reads a plan."""
    return account.partition("new RegExp(\n'")[2].partition("',")[0].replace("\\\\", "\\")


@pytest.fixture(scope="module")
def example(planner: str) -> tuple[str, str]:
    """The task and the plan of the example in the planner's prompt."""
    task, _, rest = planner.partition("For example,\nTask: ")[2].partition("\nPlan: ")
    return task.replace("\n", " "), f"Plan: {rest.partition('Important!')[0].strip()}"


@pytest.fixture
def prompts(planner: str, solver: str, tmp_path: Path) -> Path:
    return write_folder(tmp_path / "prompts", planner, solver, STEPS)


def write_folder(folder: Path, planner: str, solver: str, steps: str) -> Path:
    files = {
        **FILES,
        "task": planner.replace("{task}", "{{ question }}"),
        "solve": solver.replace("{task}", "{{ question }}").replace("{plan}", f"{steps}"),
    }
    (folder / "rewoo").mkdir(parents=True)
    for name, text in files.items():
        (folder / "rewoo" / f"{name}.j2").write_text(text, encoding="utf-8")
    return folder


def make_tool(name: str, results: Mapping[str, str]) -> plait.Tool:
    """A tool that knows the results of these inputs, and that asked for anything else fails."""

    def look_up(text: str) -> str:
        return results[text]

    return plait.tool(look_up, name=name, description=f"The tool {name}.", read_only=True)


def fill_input(given: str, results: Mapping[str, str]) -> str:
    """An input as the worker and the solver of the account fill it: each name once, by the result as JSON."""
    for name, result in results.items():
        given = given.replace(name, json.dumps(result, ensure_ascii=False, indent=2), 1)
    return given


def write_plan_lines(steps: Sequence[tuple[str, ...]], results: Mapping[str, str]) -> str:
    """The plan in the account's solver prompt."""
    return "".join(
        f"Plan: {thought}\n{name} = {tool}[{fill_input(given, results)}]\n" for thought, name, tool, given in steps
    )


def expected_requests(
    prompts: tuple[str, str], pattern: str, task: str, reply: str, results: Mapping[str, str]
) -> list[str]:
    """The text of each request that the account's code sends: one user message each."""
    planner, solver = prompts
    steps = re.findall(pattern, reply, re.S)
    known: dict[str, str] = {}
    asked = [planner.replace("{task}", task)]
    for _, name, tool, given in steps:
        asked += [fill_input(given, known)] if tool == "LLM" else []
        known[name] = results[name]
    return [*asked, solver.replace("{plan}", write_plan_lines(steps, known)).replace("{task}", task)]


def bodies(run: plait.Run) -> list[dict[str, Any]]:
    return [json.loads(call.request) for call in run.timeline.model_calls]


def messages(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": text}] for text in texts]


def make_agent(
    prompts: Path, plan: str, tools: list[plait.Tool], works: Sequence[str] = (), **options: Any
) -> plait.Agent:
    model = plait.Scripted([plan, *works, "Done."], by_turn=False)
    return plait.Agent(plait.ReWOO(stop=""), model=model, tools=tools, prompts=prompts, **options)


HOURS = {"#E1": "x = 37", "#E2": "37", "#E3": "56"}


@pytest.mark.parametrize("grounding", ["off", "note", "warn", "ask", "refuse"])
def test_golden_example_takes_two_calls_and_one_for_its_llm_step(
    planner: str, solver: str, pattern: str, example: tuple[str, str], prompts: Path, grounding: Any
) -> None:
    task, plan = example
    inputs = [given for _, _, _, given in re.findall(pattern, plan, re.S)]
    tools = [
        make_tool("WolframAlpha", {inputs[0]: HOURS["#E1"]}),
        make_tool("Calculator", {"(2 * 37 - 10) - 8": HOURS["#E3"]}),
    ]
    run = make_agent(prompts, plan, tools, [HOURS["#E2"]], grounding=grounding).run(task)

    expected = expected_requests((planner, solver), pattern, task, plan, HOURS)
    assert len(expected) == 3
    assert [body["messages"] for body in bodies(run)] == messages(*expected)
    assert not any("stop" in body for body in bodies(run))
    assert (run.status, run.answer) == ("answered", "Done.")


PLANS = {
    "text around": "Here is my plan.\n\nPlan: Find it.\n#E1 = Google[mass of Earth]\n\nI hope this helps!",
    "numbered": "Plan 1: Find it.\n#E1 = Google[mass of Earth]\nPlan 2: Count.\n#E2 = LLM[How many moons, given #E1?]",
    "one line": "Plan: Find it. #E1 = Google[mass of Earth]\nPlan: Count. #E2 = LLM[Moons of Earth?]",
    "quotes": 'Plan: Find it.\n#E1 = Google["mass of Earth"]\nPlan: Count.\n#E2 = LLM["How many moons?" after #E1]',
    "chain": "Plan: a\n#E1 = LLM[the mass of Earth]\nPlan: b\n#E2 = LLM[#E1 in kg]\nPlan: c\n#E3 = LLM[#E1 or #E2]",
    "parallel": "Plan: a\n#E1 = Google[Earth]\nPlan: b\n#E2 = Google[Jupiter]\nPlan: c\n#E3 = LLM[#E1 minus #E2]",
    "ten": "\n".join(f"Plan: {n}\n#E{n} = LLM[the moon number {n}]" for n in range(1, 11)),
}
FOUND = {"mass of Earth": "5.97e24 kg", "Earth": 'about "6e24" kg,\nby weighing', "Jupiter": "1.9e27 кг <&>"}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_golden_requests_equal_those_of_the_published_code(
    planner: str, solver: str, pattern: str, prompts: Path, plan: str
) -> None:
    steps = re.findall(pattern, plan, re.S)
    works = [f"reply {name[2:]}" for _, name, tool, _ in steps if tool == "LLM"]
    results = {name: f"reply {name[2:]}" for _, name, _, _ in steps}
    results |= {name: FOUND[given.strip('"')] for _, name, tool, given in steps if tool == "Google"}
    run = make_agent(prompts, plan, [make_tool("Google", FOUND)], works).run(EARTH)
    expected = expected_requests((planner, solver), pattern, EARTH, plan, results)
    assert [body["messages"] for body in bodies(run)] == messages(*expected)
    assert len(bodies(run)) == 2 + len(works)
    assert not [each for each in run.timeline.moments if getattr(each.entry, "kind", "") == "unreadable"]


def test_golden_tool_in_another_case_costs_no_call(planner: str, solver: str, pattern: str, prompts: Path) -> None:
    """The account refuses this plan. Plait reads the tool's name."""
    plan = "Plan: Find it.\n#E1 = google[mass of Earth]"
    run = make_agent(prompts, plan, [make_tool("Google", FOUND)]).run(EARTH)
    named = plan.replace("google", "Google")
    expected = expected_requests((planner, solver), pattern, EARTH, named, {"#E1": FOUND["mass of Earth"]})
    assert [body["messages"] for body in bodies(run)] == messages(*expected)


def test_golden_template_can_fill_each_name_once_as_the_account_does(
    planner: str, solver: str, pattern: str, tmp_path: Path
) -> None:
    prompts = write_folder(tmp_path / "once", planner, solver, ONCE)
    plan = "Plan: Find it.\n#E1 = Google[mass of Earth]\nPlan: Again.\n#E2 = Google[#E1 and #E1]"
    found = {**FOUND, "5.97e24 kg and 5.97e24 kg": "twice"}
    run = make_agent(prompts, plan, [make_tool("Google", found)]).run(EARTH)
    results = {"#E1": FOUND["mass of Earth"], "#E2": "twice"}
    expected = expected_requests((planner, solver), pattern, EARTH, plan, results)
    assert '"5.97e24 kg" and #E1' in expected[-1]
    assert [body["messages"] for body in bodies(run)] == messages(*expected)


def test_golden_command_reproduces_the_example(
    planner: str, solver: str, pattern: str, example: tuple[str, str], prompts: Path, tmp_path: Path
) -> None:
    task, plan = example
    shell = Shell(tmp_path)
    first = json.loads(json.dumps(re.findall(pattern, plan, re.S)[0][3]))
    (tmp_path / "known.json").write_text(json.dumps({first: HOURS["#E1"]}))
    (tmp_path / "hours.py").write_text(
        "import json\nfrom pathlib import Path\nimport plait\n\n"
        "@plait.tool(read_only=True)\ndef WolframAlpha(query: str) -> str:\n"
        '    "Solves equations."\n    return json.loads(Path("known.json").read_text())[query]\n\n'
        "@plait.tool(read_only=True)\ndef Calculator(expression: str) -> str:\n"
        '    "Computes."\n    return str(eval(expression))\n'
    )
    script = {"replies": [plan, HOURS["#E2"], "56"], "by_turn": False}
    (tmp_path / "script.json").write_text(json.dumps(script))
    options = ("--loop", "rewoo", "--set", "stop=", "--prompts", str(prompts), "--tools", "hours.py")
    ended = shell("run", task, *options, "--model", "scripted:script.json", "--quiet")
    assert (ended.code, ended.out) == (0, "56\n")
    timeline = Journal(shell.env["PLAIT_JOURNAL"]).timeline("last")
    sent = [json.loads(call.request)["messages"] for call in timeline.model_calls]
    assert sent == messages(*expected_requests((planner, solver), pattern, task, plan, HOURS))
