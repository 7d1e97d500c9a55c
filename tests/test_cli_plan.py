"""A plan as a thing one can hold, on the command line: printed, priced, edited, approved, run again."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from cli_support import PLAIT, Ended, Shell, question
from fork_server import start_forked

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "How many more people live in Lyon than in Nice?"
PLAN = """\
Plan: People in Lyon.
#E1 = lookup[Lyon]
Plan: People in Nice.
#E2 = lookup[Nice]
Plan: The difference.
#E3 = calculator[#E1 - #E2]
Plan: That as a sentence.
#E4 = LLM[Say in words: #E3]"""
PICTURE = """\
# ●    E1  lookup  Lyon
# │ ●  E2  lookup  Nice
# ●─┘  E3  calculator  #E1 - #E2
# ●    E4  LLM  Say in words: #E3
# ●    answer"""
CITIES = {"Lyon": 522250, "Nice": 348085, "Lille": 236710}


class RunContext(Shell):
    """A shell whose model plans, works and solves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "cities.json").write_text(json.dumps(CITIES))
        self.replies: dict[str, list[Any]] = {
            "plan": [{"text": PLAN, "usage": {"input_tokens": 300, "output_tokens": 60}}],
            "work": ["A good many."],
            "solve": ["174,165 more."],
        }
        self.flags = ("--tools", "lookup:cities.json", "--tools", "calculator", "--model", "scripted:rewoo.json")
        self.said()

    def said(self, **phases: list[Any]) -> None:
        """Write the script, some phases said otherwise."""
        (self.folder / "rewoo.json").write_text(json.dumps({"replies": {**self.replies, **phases}}))

    def file(self, text: str, name: str = "plan.txt") -> str:
        (self.folder / name).write_text(text)
        return name

    @property
    def last(self) -> dict[str, Any]:
        found = json.loads(self("runs", "--json", "--limit", "1").out)
        assert isinstance(found[0], dict)
        return found[0]

    def calls(self, run: str = "last") -> list[Any]:
        """The tool calls of a run, as (tool, input)."""
        told = [json.loads(line) for line in self("export", run).out.splitlines()[1:]]
        records = [row.get("record", row) for row in told]
        made = [each["asked"] for each in records if each.get("work") == "call" and "asked" in each]
        return [(call["tool"], call.get("input")) for call in made]


@pytest.fixture
def plait(tmp_path: Path) -> RunContext:
    return RunContext(tmp_path)


# -- plait plan


def test_the_plan_and_its_picture_go_to_stdout_and_its_price_to_stderr(plait: RunContext) -> None:
    done = plait("plan", QUESTION, *plait.flags)
    assert (done.code, done.out) == (0, f"{PLAN}\n\n{PICTURE}\n")
    assert "Expected: 2 model calls and 3 tool calls, about " in done.err
    assert "price not known" in done.err
    assert "  plan: 300 + 60 tokens spent" in done.err
    assert plait.calls() == []
    assert (plait.last["status"], plait.last["calls"]) == ("answered", 1)


def test_the_price_is_in_usd_where_prices_are_known(plait: RunContext) -> None:
    (plait.folder / "replies.json").write_text(json.dumps([plait.replies["plan"][0]]))
    house = _endpoint(plait.folder / "replies.json")
    (plait.folder / "plait.toml").write_text(
        f'[endpoints.house]\nbase_url = "{house.url}"\nkind = "vllm"\n'
        '[prices]\n"house:small" = { input = 10, output = 20 }\n"house:big" = { input = 1000, output = 2000 }\n'
    )
    try:
        flags = [*plait.flags[:4], "--model", "house:small", "--model", "solve=house:big"]
        found = plait("plan", QUESTION, *flags, "--json").object["expected"]
        told = plait("plan", QUESTION, *flags)
    finally:
        house.close()
    assert found["spent"]["cost_usd"] == pytest.approx((300 * 10 + 60 * 20) / 1e6)
    work, solve = found["phases"]
    assert solve["cost_usd"] == pytest.approx((solve["input_tokens"] * 1000 + solve["output_tokens"] * 2000) / 1e6)
    assert found["cost_usd"] == pytest.approx(work["cost_usd"] + solve["cost_usd"])
    assert "  plan: 300 + 60 tokens spent, 0.00420 USD\n" in told.err
    assert f"  solve: 1 call of house:big, about {solve['input_tokens']} + 40 tokens, " in told.err


def _endpoint(script: Path) -> Any:
    """The endpoint of the examples, which answers from a script."""
    place = importlib.util.spec_from_file_location("endpoint", ROOT / "examples" / "endpoint.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module.Endpoint(str(script))


def test_each_form_is_what_it_says(plait: RunContext) -> None:
    def printed(*flags: str) -> str:
        done = plait("plan", QUESTION, *plait.flags, *flags)
        assert done.code == 0, done.err
        return done.out

    plan = json.loads(printed("--format", "json"))
    assert [step["id"] for step in plan["steps"]] == ["E1", "E2", "E3", "E4"]
    assert plan["steps"][2] == {
        "id": "E3",
        "tool": "calculator",
        "input": "#E1 - #E2",
        "why": "The difference.",
        "needs": ["E1", "E2"],
    }
    assert printed("--format", "mermaid").startswith("flowchart TD\n")
    assert ET.fromstring(printed("--format", "svg")).tag.endswith("svg")
    assert printed("--format", "text") == f"{PLAN}\n\n{PICTURE}\n"


@pytest.mark.parametrize(
    ("name", "begins"),
    [("p.txt", "Plan: "), ("p.json", "{"), ("p.mmd", "flowchart"), ("p.SVG", "<svg"), ("p", "Plan:")],
)
def test_a_file_gets_the_form_that_its_name_says(plait: RunContext, name: str, begins: str) -> None:
    done = plait("plan", QUESTION, *plait.flags, "-o", name, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (plait.folder / name).read_text().startswith(begins)


def test_json_is_one_object_with_the_plan_and_what_is_expected(plait: RunContext) -> None:
    found = plait("plan", QUESTION, *plait.flags, "--json").object
    assert list(found) == ["run", "status", "reason", "plan", "expected"]
    assert found["expected"]["calls"] == 2
    assert found["expected"]["spent"]["usage"]["input_tokens"] == 300
    # The object itself can be handed to `plait run --plan`.
    plait.file(json.dumps(found))
    assert plait("run", QUESTION, *plait.flags, "--plan", "plan.txt").out == "174,165 more.\n"


def test_where_there_is_no_plan_that_is_said_with_exit_code_3(plait: RunContext) -> None:
    plait.said(plan=["I can't plan.", "Still not."])
    done = plait("plan", QUESTION, *plait.flags)
    assert (done.code, done.out) == (3, "")
    assert "no call in your plan" in done.err
    found = plait("plan", QUESTION, *plait.flags, "--json", "--quiet")
    assert (found.code, found.object["status"], found.object["plan"]) == (3, "failed", None)


def test_an_endpoint_that_fails_is_a_crash_of_the_plan(plait: RunContext) -> None:
    plait.said(plan=[{"error": "BadRequest", "message": "The endpoint says no."}])
    done = plait("plan", QUESTION, *plait.flags)
    assert (done.code, done.out) == (1, "")
    assert "The endpoint says no." in done.err


# -- plait run --plan


def test_a_plan_that_is_edited_is_run_without_asking_the_planner(plait: RunContext) -> None:
    page = plait("plan", QUESTION, *plait.flags).out
    plait.file(page.replace("lookup[Nice]", "lookup[Lille]"))
    plait.said(plan=[{"error": "BadRequest", "message": "The planner was asked."}])
    done = plait("run", QUESTION, *plait.flags, "--plan", "plan.txt")
    assert (done.code, done.out) == (0, "174,165 more.\n")
    assert plait.calls() == [("lookup", "Lyon"), ("lookup", "Lille"), ("calculator", "522250 - 236710")]
    assert plait.last["calls"] == 2
    assert plait("replay", "last").code == 0


def test_a_plan_can_come_from_stdin(plait: RunContext) -> None:
    done = plait("run", QUESTION, *plait.flags, "--plan", "-", given=PLAN)
    assert (done.code, done.out) == (0, "174,165 more.\n")


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (
            "Plan: x\n#E1 = lokup[Lyon]\n",
            (),
            "Step E1 uses 'lokup', which is no tool. There are: LLM, calculator, lookup",
        ),
        ("#E1 = lookup[#E2]\n#E2 = lookup[#E1]\n", (), "wait for each other"),
        ("#E1 = lookup[Lyon]\n#E2 = calculator[#E7 + 1]\n", (), "Step E2 names E7, which no step gives."),
        ("#E1 = lookup[Lyon]\n#E1 = lookup[Nice]\n", (), "Step E1 is given twice."),
        ("Look it up.\n", (), "`#E1 = Tool[input]`"),
        ("", (), "The plan in plan.txt is empty."),
        ('{"steps": 7}', (), "This is no plan"),
        ('{"steps":\n [}', (), "can't be read: Expecting value: line 2 column 3"),
        ('{"steps": [{"id": "E1", "tool": "lookup", "input": "Lyon"}', (), "line 1 column 59"),
        (PLAN, ("--loop", "json"), "The loop 'json' takes no plan."),
        (PLAN, ("--plan", "absent.txt"), "There is no file absent.txt"),
    ],
)
def test_a_bad_plan_is_said_in_one_line_before_anything_runs(
    plait: RunContext, text: str, flags: tuple[str, ...], said: str
) -> None:
    plait.file(text)
    done = plait("run", QUESTION, *plait.flags, "--plan", "plan.txt", *flags)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1
    assert not (plait.folder / "journal.db").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run", QUESTION, "--evidence", "last"), "Give --plan FILE"),
        (("run", "-", "--plan", "-"), "can't both come from stdin"),
        (("plan",), "The question is missing"),
        (("plan", " "), "The question is missing"),
        (("plan", QUESTION, "--of", "last"), "--of stands alone"),
        (
            ("plan", QUESTION, "--loop", "react"),
            "needs a loop that plans first, and 'react' does not. Use --loop rewoo.",
        ),
        (("plan", QUESTION, "--format", "png"), "'png' is not one of"),
        (("plan", QUESTION, "-o", "plan.png"), "A plan has no form '.png' (plan.png). There are .txt, .json"),
        (("plan", QUESTION, "-o", "absent/plan.svg"), "absent/plan.svg can't be written: there is no folder absent."),
        (("plan", QUESTION, "-o", "."), ". is a folder. Name a file in it"),
        (("run", QUESTION, "--plan", "."), ". is a folder. Name a file in it"),
        (("run", QUESTION, "--loop", "react", "--approve", "plan"), "'react' makes no plan that could be approved"),
        (("run", QUESTION, "--approve", "plan", "--loop", "json"), "'json' makes no plan"),
    ],
)
def test_wrong_usage_exits_with_2(plait: RunContext, args: tuple[str, ...], said: str) -> None:
    done = plait(*args, "--model", "scripted:rewoo.json")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert not (plait.folder / "journal.db").exists()  # nothing was asked


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_plan_that_cannot_be_written_is_on_record(plait: RunContext) -> None:
    (plait.folder / "plan.txt").symlink_to("/dev/full")
    done = plait("plan", QUESTION, *plait.flags, "-o", "plan.txt", "--quiet")
    assert done.code == 1
    run = plait.last["run"]
    assert done.err.startswith("Error: plan.txt can't be written: No space left on device. The plan is recorded: ")
    assert done.err.endswith(f": plait plan --of {run}\n")
    assert PLAN in plait("plan", "--of", run).out


def test_a_plan_is_checked_drawn_and_priced_without_a_run(plait: RunContext) -> None:
    plait.file(PLAN)
    plait.said(plan=[])
    done = plait("plan", QUESTION, *plait.flags, "--plan", "plan.txt")
    assert (done.code, done.out) == (0, f"{PLAN}\n\n{PICTURE}\n")
    assert "Expected: 2 model calls and 3 tool calls" in done.err
    assert not (plait.folder / "journal.db").exists()
    plait.file("#E1 = nothing[x]")
    assert plait("plan", QUESTION, *plait.flags, "--plan", "plan.txt").code == 2


# -- evidence kept


def test_the_plan_of_a_run_comes_with_the_evidence_it_found(plait: RunContext) -> None:
    assert plait("run", QUESTION, *plait.flags, "--loop", "rewoo").code == 0
    page = plait("plan", "--of", "last")
    assert page.code == 0
    assert page.out.startswith(PLAN)
    assert "# ○─┘  E3  calculator  #E1 - #E2\n" in page.out
    assert "# E3 gave: 174165\n# E4 gave: A good many.\n" in page.out
    assert "Expected: 1 model call and 0 tool calls" in page.err
    found = json.loads(plait("plan", "--of", "last", "--format", "json").out)
    assert found["evidence"] == {"E1": "522250", "E2": "348085", "E3": "174165", "E4": "A good many."}


def test_json_with_some_evidence_runs_only_the_rest(plait: RunContext) -> None:
    plait("run", QUESTION, *plait.flags, "--loop", "rewoo")
    plan = json.loads(plait("plan", "--of", "last", "--format", "json").out)
    del plan["evidence"]["E3"], plan["evidence"]["E4"]
    plait.file(json.dumps(plan))
    done = plait("run", QUESTION, *plait.flags, "--plan", "plan.txt")
    assert (done.code, done.out) == (0, "174,165 more.\n")
    assert plait.calls() == [("calculator", "522250 - 348085")]
    assert plait.last["calls"] == 2


def test_evidence_of_a_run_is_kept_for_steps_that_are_as_they_were(plait: RunContext) -> None:
    plait("run", QUESTION, *plait.flags, "--loop", "rewoo")
    run = plait.last["run"]
    plait.file(plait("plan", "--of", run).out.replace("lookup[Nice]", "lookup[Lille]"))
    done = plait("run", QUESTION, *plait.flags, "--plan", "plan.txt", "--evidence", run)
    assert done.code == 0
    # Lyon is as it was; Nice is not, and so neither is what was made of it.
    assert plait.calls() == [("lookup", "Lille"), ("calculator", "522250 - 236710")]
    assert plait.last["calls"] == 2
    priced = plait("plan", QUESTION, *plait.flags, "--plan", "plan.txt", "--evidence", run)
    assert "# ○    E1  lookup  Lyon\n# │ ●  E2  lookup  Lille\n" in priced.out
    assert "Expected: 2 model calls and 2 tool calls" in priced.err


def test_a_run_that_was_cut_short_gives_what_it_had_found(plait: RunContext) -> None:
    plait.said(work=[{"error": "BadRequest", "message": "The worker is out."}])
    assert plait("run", QUESTION, *plait.flags, "--loop", "rewoo").code == 1
    found = json.loads(plait("plan", "--of", "last", "--format", "json").out)
    assert found["evidence"] == {"E1": "522250", "E2": "348085", "E3": "174165"}


def test_a_step_that_failed_has_no_evidence_and_is_run_again(plait: RunContext) -> None:
    plait.said(plan=[PLAN.replace("lookup[Nice]", "lookup[Atlantis]")])
    plait("run", QUESTION, *plait.flags, "--loop", "rewoo")
    found = json.loads(plait("plan", "--of", "last", "--format", "json").out)
    assert found["evidence"] == {"E1": "522250"}


def test_a_run_of_compiler_has_its_plan_in_its_own_form(plait: RunContext) -> None:
    plan = 'Thought: Both.\n1. lookup("Lyon")\n2. lookup("Nice")\n3. calculator("$1 - $2")\n4. join()'
    plait.said(plan=[plan], join=["Thought: Done.\nFinish(174,165 more.)"])
    done = plait("run", QUESTION, *plait.flags, "--loop", "compiler")
    assert (done.code, done.out) == (0, "174,165 more.\n")
    page = plait("plan", "--of", "last")
    assert page.out.startswith(plan)
    assert "# ○─┘  3  calculator  $1 - $2\n# ●    answer\n# 1 gave: 522250\n" in page.out
    found = json.loads(plait("plan", "--of", "last", "--format", "json").out)
    assert found["evidence"] == {"1": "522250", "2": "348085", "3": "174165"}


def test_all_plans_of_a_run_of_compiler_count(plait: RunContext) -> None:
    first, second = '1. lookup("Lyon")\n2. join()', '2. lookup("Nice")\n3. calculator("$1 - $2")\n4. join()'
    joined = ["Thought: Nice is missing.\nReplan(the number of people in Nice)", "Thought: Now.\nFinish(174,165)"]
    plait.said(plan=[first, second], join=joined)
    assert plait("run", QUESTION, *plait.flags, "--loop", "compiler").code == 0
    found = json.loads(plait("plan", "--of", "last", "--format", "json").out)
    assert [step["tool"] for step in found["steps"]] == ["lookup", "lookup", "calculator"]
    assert list(found["evidence"].values()) == ["522250", "348085", "174165"]


def test_a_run_of_another_loop_has_no_plan(plait: RunContext) -> None:
    plait("run", "q", "--model", plait.script(["Thought: I know.\nFinal Answer: 1"]))
    done = plait("plan", "--of", "last")
    assert (done.code, done.out) == (2, "")
    assert "needs a loop that plans first, and 'react' does not" in done.err


# -- approval


def waiting(plait: RunContext, *flags: str) -> Ended:
    done = plait("run", QUESTION, *plait.flags, "--loop", "rewoo", "--approve", "plan", *flags)
    assert (done.code, plait.calls()) == (5, [])
    return done


def test_without_a_terminal_the_run_waits_with_its_plan_and_says_what_to_do(plait: RunContext) -> None:
    done = waiting(plait)
    run = plait.last["run"]
    assert done.out == ""
    assert f"{PLAN}\n\n{PICTURE}\n\nExpected: 2 model calls and 3 tool calls" in done.err
    assert "waiting for approval of the plan" in done.err
    named = " ".join(question(plait))
    assert f"plait resume {run} {named} --answer yes" in done.err
    assert f"plait resume {run} {named} --plan plan.txt" in done.err
    assert plait.last["status"] == "waiting"
    found = plait("run", QUESTION, *plait.flags, "--loop", "rewoo", "--approve", "plan", "--json").object
    assert (found["status"], found["reason"]) == ("waiting", PLAN)


def test_yes_carries_it_out_and_no_does_not(plait: RunContext) -> None:
    waiting(plait)
    done = plait("resume", "last", *question(plait), "--answer", "yes")
    assert (done.code, done.out) == (0, "174,165 more.\n")
    assert len(plait.calls()) == 3
    assert plait("replay", "last").code == 0
    waiting(plait)
    refused = plait("resume", "last", *question(plait), "--answer", "no")
    assert (refused.code, refused.out, plait.calls()) == (3, "", [])
    assert "refused the plan" in refused.err


def test_the_commands_that_are_said_do_edit_the_plan_and_go_on(plait: RunContext) -> None:
    said = waiting(plait).err
    (line,) = [line for line in said.splitlines() if line.startswith("Edit it with: ")]
    program = os.path.dirname(PLAIT)
    script = line.removeprefix("Edit it with: ")
    env = {"EDITOR": "sed -i s/Nice/Lille/", "PATH": f"{program}:{os.environ['PATH']}"}
    done = plait(program=["bash", "-c", script], env=env)
    assert (done.code, done.out) == (0, "174,165 more.\n")
    assert ("lookup", "Lille") in plait.calls()


def test_words_go_to_the_planner_and_the_run_waits_again(plait: RunContext) -> None:
    again = PLAN.replace("Nice", "Lille")
    plait.said(plan=[PLAN, again])
    waiting(plait)
    done = plait("resume", "last", *question(plait), "--answer", "Take Lille instead of Nice, please.")
    assert done.code == 5
    assert "lookup[Lille]" in done.err
    assert plait("resume", "last", *question(plait), "--answer", "yes").code == 0
    assert ("lookup", "Lille") in plait.calls()


def test_a_plan_is_no_answer_where_it_cannot_be_one(plait: RunContext) -> None:
    waiting(plait)
    run = plait.last["run"]
    plait.file("#E1 = nothing[x]", "bad.txt")
    bad = plait("resume", run, "--plan", "bad.txt")
    assert bad.code == 2
    assert "'nothing', which is no tool" in bad.err
    assert plait.last["status"] == "waiting"
    both = plait("resume", run, "--plan", "bad.txt", "--answer", "yes")
    assert (both.code, "Give one of them" in both.err) == (2, True)
    plait("resume", run, *question(plait), "--answer", "yes")
    plait.file(PLAN)
    over = plait("resume", run, "--plan", "plan.txt")
    assert over.code == 2
    assert "does not wait with a plan" in over.err


def test_a_plan_of_the_other_loop_is_no_answer_to_compiler(plait: RunContext) -> None:
    plait.said(plan=['1. lookup("Lyon")\n2. join()'], join=["Finish: 522,250"])
    plait("run", QUESTION, *plait.flags, "--loop", "compiler", "--approve", "plan")
    plait.file(PLAN)
    wrong = plait("resume", "last", "--plan", "plan.txt")
    assert wrong.code == 2
    assert wrong.err.startswith("Error: The plan cannot run.")
    assert plait.last["status"] == "waiting"
    plait.file('1. lookup("Lille")\n2. join()\n')
    assert plait("resume", "last", *question(plait), "--plan", "plan.txt").out == "522,250\n"
    assert plait.calls() == [("lookup", "Lille")]


def at_terminal(plait: RunContext, *answers: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """A run at a terminal where a person gives these answers: its code, its stdout, what was drawn."""
    master, slave = pty.openpty()
    args = ("run", QUESTION, *plait.flags, "--loop", "rewoo", "--approve", "plan")
    env = {**plait.env, **(env or {}), "TERM": "xterm", "COLUMNS": "100"}
    reading, writing = os.pipe()
    process = start_forked([PLAIT, *args], cwd=plait.folder, env=env, stdin=slave, stdout=writing, stderr=slave)
    os.close(slave)
    os.close(writing)
    drawn = ""
    for answer in answers:
        before = drawn.count("the run waits)")
        while drawn.count("the run waits)") == before:
            drawn += os.read(master, 4096).decode(errors="replace")
        os.write(master, f"{answer}\n".encode())
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        drawn += piece.decode(errors="replace")
    os.close(master)
    with open(reading) as printed:
        out = printed.read()
    assert "Traceback" not in drawn
    return process.wait(60), out, drawn.replace("\r\n", "\n")


def test_at_a_terminal_the_plan_and_its_price_are_shown_and_the_person_asked(plait: RunContext) -> None:
    code, out, drawn = at_terminal(plait, "yes")
    assert (code, out) == (0, "174,165 more.\n")
    assert f"{PICTURE}\n\nExpected: 2 model calls and 3 tool calls" in drawn
    assert "(yes, no, e to edit it, or what to change; empty: the run waits)" in drawn
    assert at_terminal(plait, "no")[0] == 3
    assert at_terminal(plait, "")[0] == 5


def test_at_a_terminal_the_plan_can_be_edited(plait: RunContext) -> None:
    code, out, drawn = at_terminal(plait, "e", env={"VISUAL": "sed -i s/Nice/Lille/"})
    assert (code, out) == (0, "174,165 more.\n"), drawn
    assert ("lookup", "Lille") in plait.calls()


def test_a_plan_that_was_left_as_it_was_is_asked_about_again(plait: RunContext) -> None:
    code, _, drawn = at_terminal(plait, "e", "yes", env={"VISUAL": "true"})
    assert code == 0
    assert "The plan did not change." in drawn
    code, _, drawn = at_terminal(plait, "e", "no", env={"VISUAL": "there-is-no-such-editor"})
    assert code == 3
    assert "There is no editor there-is-no-such-editor; set EDITOR." in drawn


def test_an_edited_plan_that_cannot_be_run_is_said_and_asked_about_again(plait: RunContext) -> None:
    code, _, drawn = at_terminal(plait, "e", "yes", env={"VISUAL": "sed -i s/lookup/lokup/"})
    assert code == 0, drawn
    assert "That plan can't be carried out: Step E1 uses 'lokup'" in drawn
    assert plait.calls()[0] == ("lookup", "Lyon")


def test_no_plan_can_draw_on_the_terminal(plait: RunContext) -> None:
    plait.said(plan=[PLAN.replace("Lyon.", "Ly\x1b[2Jon \u202e.").replace("[Nice]", "[Ni\x07ce\x9b31m]")])
    done = waiting(plait)
    printed = plait("plan", QUESTION, *plait.flags)
    for text in (done.err, printed.err):
        assert not [char for char in text if (ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160]
        assert "\u202e" not in text
