"""`plait run` as a user has it: a process with stdout, stderr and an exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from cli_support import Shell, action, final, turn
from conftest import for_each

KEYS = ["run", "status", "answer", "reason", "waits", "loop", "steps", "calls", "usage", "cost_usd", "seconds"]
KEYS += ["models", "user", "tags", "metadata", "phases"]


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_stdout_has_the_answer_alone_and_stderr_what_happened(plait: Shell) -> None:
    model = plait.script([action("calculator", "6 * 7", "I multiply."), final("It is 42.")])
    done = plait("run", "What is 6 times 7?", "--model", model, "--tools", "calculator")
    assert (done.code, done.out) == (0, "It is 42.\n")
    lines = done.err.splitlines()
    order = ["Thought: I multiply.", 'Action: calculator "6 * 7"', "Observation: 42"]
    assert [line for line in lines if line in order] == order
    assert lines[-1].startswith("answered · 2 steps · 2 calls · ")
    assert "It is 42." not in done.err


def test_json_is_one_object_with_the_promised_keys(plait: Shell) -> None:
    reply = {"text": final("Paris"), "usage": {"input_tokens": 100, "output_tokens": 7, "cached_tokens": 60}}
    done = plait("run", "Capital?", "--model", plait.script([reply]), "--json")
    found = done.object
    assert list(found) == KEYS
    none = {"cache_write_tokens": 0, "reasoning_tokens": 0, "estimated": False, "cache_write_1h_tokens": 0}
    assert found["usage"] == {"input_tokens": 100, "output_tokens": 7, "cached_tokens": 60, **none}
    told = {key: found[key] for key in ("status", "answer", "reason", "loop", "steps", "calls", "models")}
    assert told == {
        "status": "answered",
        "answer": "Paris",
        "reason": None,
        "loop": "react",
        "steps": 1,
        "calls": 1,
        "models": {"act": "scripted:script.json"},
    }
    assert found["seconds"] > 0
    assert found["run"] in plait("runs").out


def test_an_answer_that_is_no_text_is_printed_as_json(plait: Shell) -> None:
    model = plait.script([turn("final_answer", {"answer": {"city": "Köln", "list": [1, 2.5, None]}})])
    done = plait("run", "q", "--loop", "json", "--model", model)
    assert done.code == 0
    assert json.loads(done.out) == {"city": "Köln", "list": [1, 2.5, None]}
    assert "Köln" in done.out


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize(
    ("status", "code", "replies", "flags"),
    [
        ("answered", 0, [turn("final_answer", "yes")], []),
        ("failed", 3, [turn("fail_task", "no data")], []),
        ("stopped", 4, [turn("long", None), turn("final_answer", "so far")], ["--max-steps", "1"]),
        ("waiting", 5, [turn("ask_user", "Which one?")], []),
        ("crashed", 1, [{"error": "BadRequest", "message": "The endpoint says no."}], []),
    ],
)
def test_each_outcome_has_its_exit_code(
    plait: Shell, status: str, code: int, replies: list[object], flags: list[str], as_object: bool
) -> None:
    model = plait.script(replies)
    flags = [*flags, "--json"] if as_object else flags
    done = plait("run", "q", "--loop", "json", "--model", model, "--tools", "tools.py", *flags)
    assert done.code == code
    if as_object:
        assert (done.object["status"], list(done.object)) == (status, KEYS)
    else:
        assert done.out == {"answered": "yes\n", "stopped": "so far\n"}.get(status, "")
    said = {"failed": "no data", "stopped": "limit of 1 step is", "waiting": "Which one?", "crashed": "says no"}
    assert said.get(status, "answered") in done.err


@for_each(
    ("args", "said"),
    [
        ([], "Missing argument 'QUESTION'"),
        ([""], "The question is empty."),
        (["  \n"], "The question is empty."),
        (["a \udcff b"], "The question is no text: half a character at 2. Send UTF-8."),
        (["q", "--loop", "reakt"], "There is no loop 'reakt'. Did you mean react? "),
        (["q", "--set", "dialect=lines"], "The loop 'auto' takes no options, such as dialect"),
        (["q", "--loop", "react", "--set", "dialekt=lines"], "has no option 'dialekt'"),
        (["q", "--loop", "react", "--set", "dialect=line"], "dialect (blob or lines or numbered or original)"),
        (["q", "--loop", "react", "--set", "max_parse_errors=many"], "max_parse_errors (int)"),
        (["q", "--set", "max_parse_errors"], "K=V"),
        (["q", "--tools", "calculater"], "Did you mean calculator?"),
        (["q", "--tools", "absent.py"], "There is no file 'absent.py'"),
        (["q", "--tools", "lookup:absent.json"], "absent.json"),
        (["q", "--tools", "lookup"], "lookup:"),
        (["q", "--tools", "calculator", "--tools", "calculator"], "Two tools are named calculator"),
        (["q", "--model", "opnai:x"], "'opnai'"),
        (["q", "--model", "openai:gpt"], "OPENAI_API_KEY is not set"),
        (["q", "--model", "scripted:absent.json"], "absent.json can't be read"),
        (["q", "--model", "local:absent"], "no local model called 'absent'"),
        (["q", "--model", "plan=local"], "has no phase 'plan'"),
        (["q", "--model", ""], "--model is empty"),
        (["q", "--max-steps", "few"], "'few' is not a whole number"),
        (["q", "--max-steps", "0"], "0 is not above zero"),
        (["q", "--max-cost", "nan"], "nan is not a number 0 or more"),
        (["q", "--max-seconds", "soon"], "'soon' is not a number"),
        (["q", "--prompts", "absent"], "no prompts folder absent"),
        (["q", "--system", "absent.txt"], "There is no file absent.txt"),
        (["q", "--config", "absent.toml"], "no configuration file absent.toml"),
        (["q", "--approve", "maybe"], "'maybe' is not one of"),
        (["q", "--journal", "j.db", "--no-journal"], "contradict"),
        (["q", "--session", "s", "--no-journal"], "A session is stored in the journal. Leave out --no-journal"),
        (
            ["q", "--session", "s", "--embedder", "opnai:x"],
            "'opnai:x' is not an embedder. There are: local, openai:NAME",
        ),
        (["q", "--session", "s", "--embedder", "openai:x"], "OPENAI_API_KEY is not set"),
        (["q", "--loop", "rewoo", "--model", "json.act=local"], "has no phase 'json.act'"),
        (["q", "--modle", "x"], "No such option '--modle'. (Did you mean one of: '--deps', '--model'?)"),
    ],
)
def test_wrong_usage_is_said_and_exits_with_2(plait: Shell, args: list[str], said: str) -> None:
    done = plait("run", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert not (plait.folder / "journal.db").exists()


def test_without_a_command_help_is_shown_and_an_unknown_one_is_wrong_usage(plait: Shell) -> None:
    alone = plait()
    assert (alone.code, alone.err) == (0, "")
    assert all(name in alone.out for name in ("run", "runs", "show", "replay", "resume", "fork", "prompts"))
    assert plait("rnu").code == 2
    assert plait("--version").out.startswith("plait ")


def test_the_question_can_come_from_stdin(plait: Shell) -> None:
    model = plait.script([final("ok")])
    done = plait("run", "-", "--model", model, given="What,\nin two lines?\n")
    assert done.code == 0
    assert "What, in two lines?" in plait("runs").out
    assert plait("run", "-", "--model", model, given="\n").code == 2


def test_flags_win_over_environment_over_file(plait: Shell) -> None:
    names = {where: plait.script([final(where)], f"{where}.json") for where in ("flag", "env", "file")}
    (plait.folder / "plait.toml").write_text(
        f'[run]\nloop = "react"\nmodel = "{names["file"]}"\ntools = ["calculator"]\nmax_steps = 3\n'
        'set = { dialect = "lines" }\n'
    )
    assert plait("run", "q").out == "file\n"
    assert plait("run", "q", env={"PLAIT_MODEL": names["env"]}).out == "env\n"
    assert plait("run", "q", "--model", names["flag"], env={"PLAIT_MODEL": names["env"]}).out == "flag\n"
    assert plait("run", "q", "--model", f"act={names['flag']}", env={"PLAIT_MODEL": names["env"]}).out == "flag\n"
    head = json.loads(plait("export", "last").out.splitlines()[0])["head"]
    assert head["loop"]["options"]["dialect"] == "lines"
    assert head["settings"]["limits"]["steps"] == 3
    assert head["sources"] == ["calculator"]
    # What the file sets for its loop is no option of another one.
    assert plait("run", "q", "--loop", "json", "--model", plait.script([turn("final_answer", "j")])).out == "j\n"
    other = plait.folder / "other.toml"
    other.write_text(f'[run]\nmodel = "{names["env"]}"\n')
    assert plait("run", "q", "--config", "other.toml").out == "env\n"
    other.write_text("[run]\nmodle = 1\n")
    wrong = plait("run", "q", "--config", "other.toml")
    assert wrong.code == 2
    assert "other.toml, table [run]: there is no setting 'modle'. Did you mean model?" in wrong.err
    other.write_text("[electricity]\nwatts = 3\n")
    assert "other.toml: electricity has the keys watts." in plait("run", "q", "--config", "other.toml").err
    other.write_text(f'[run]\nmodel = "{names["env"]}"\nembedder = "nonesuch"\n')
    assert "'nonesuch' is not an embedder" in plait("run", "q", "--config", "other.toml").err
    assert plait("run", "q", "--config", "other.toml", "--embedder", "local").out == "env\n"


def test_the_loop_that_is_fallen_back_to_may_have_a_model_of_its_own(plait: Shell) -> None:
    (plait.folder / "plans.json").write_text(json.dumps({"replies": {"plan": ["No.", "No."]}}))
    (plait.folder / "acts.json").write_text(json.dumps({"replies": {"react.act": [final("done")]}}))
    words = ("--model", "plan=scripted:plans.json", "--model", "react.act=scripted:acts.json", "--model", "local")
    done = plait("run", "q", "--loop", "rewoo", *words, "--json")
    asked = [(row["phase"], row["model"]) for row in json.loads(done.out)["phases"]]
    assert asked == [("plan", "scripted:plans.json"), ("react.act", "scripted:acts.json")]


def test_a_users_system_prompt_is_sent_byte_for_byte(plait: Shell) -> None:
    text = "You are {{ not }} a template.\r\n\tTabs, and é, and a blank at the end. \n\n"
    (plait.folder / "system.txt").write_bytes(text.encode())
    assert plait("run", "q", "--model", plait.script([final("ok")]), "--system", "system.txt").code == 0
    request = json.loads(plait("show", "last", "--wire", "--json").out.splitlines()[0])
    assert json.loads(request["body"])["messages"][0] == {"role": "system", "content": text}


def test_no_tool_can_draw_on_the_terminal_or_pass_for_a_line_of_the_log(plait: Shell) -> None:
    done = plait("run", "q", "--model", plait.script([action("hostile"), final("ok")]), "--tools", "tools.py")
    assert not [c for c in done.err if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]
    assert "Observation: one two\n  Thought: I was never thought\n  X\n" in done.err


def test_a_long_observation_is_shortened_with_a_note_and_whole_on_record(plait: Shell) -> None:
    done = plait("run", "q", "--model", plait.script([action("long"), final("ok")]), "--tools", "tools.py")
    assert len(done.err) < 5_000
    assert "more characters)" in done.err
    assert plait("show", "last", "--full").out.count("word") >= 20_000


def test_quiet_says_nothing_of_an_answered_run(plait: Shell) -> None:
    done = plait("run", "q", "--model", plait.script([final("ok")]), "--quiet")
    assert (done.code, done.out, done.err) == (0, "ok\n", "")


def test_no_journal_keeps_no_record_and_offers_no_resume(plait: Shell) -> None:
    model = plait.script([turn("ask_user", "Which?")])
    done = plait("run", "q", "--loop", "json", "--model", model, "--no-journal")
    assert done.code == 5
    assert "plait resume" not in done.err
    assert not (plait.folder / "journal.db").exists()


def test_no_ask_takes_the_question_to_the_person_away(plait: Shell) -> None:
    model = plait.script([turn("ask_user", "Which?"), turn("final_answer", "alone")])
    done = plait("run", "q", "--loop", "json", "--model", model, "--no-ask")
    assert (done.code, done.out) == (0, "alone\n")


def test_a_journal_that_cannot_be_written_is_said_before_anything_is_asked(plait: Shell) -> None:
    model = plait.script([final("ok")])
    (plait.folder / "file").write_text("")
    done = plait("run", "q", "--model", model, "--journal", "file/journal.db", "--json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: The journal")


def test_when_the_reader_of_stdout_has_gone_the_run_still_ends_in_order(plait: Shell) -> None:
    process = plait.start("run", "q", "--model", plait.script([final(" ".join(map(str, range(50_000))))]))
    assert process.stdout and process.stderr
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(20) == 0
    process.stderr.close()
    assert "Traceback" not in said and "BrokenPipe" not in said
    assert "answered" in plait("runs").out


def test_when_stdout_is_full_that_is_said_and_the_record_has_the_answer(plait: Shell) -> None:
    with open("/dev/full", "w") as full:
        done = plait("run", "q", "--model", plait.script([final("kept")]), stdout=full)
        assert done.code == 1
        assert "can't be written to stdout: No space left on device. `plait show " in done.err
        assert "Answer: kept" in plait("show", "last").out
        listed = plait("runs", stdout=full)
        assert (listed.code, listed.err) == (1, "Error: stdout: No space left on device.\n")


def test_when_the_reader_of_stderr_has_gone_the_answer_still_comes(plait: Shell) -> None:
    model = plait.script([action("long"), final("still here")])
    process = plait.start("run", "q", "--model", model, "--tools", "tools.py")
    assert process.stdout and process.stderr
    process.stderr.close()
    assert process.stdout.read() == "still here\n"
    assert process.wait(20) == 0
    process.stdout.close()


def test_in_a_terminal_the_three_strands_are_drawn(plait: Shell) -> None:
    replies = [action("hostile", None, "A thought that is " + "very " * 30 + "long."), final("42")]
    (plait.folder / "slow.json").write_text(json.dumps({"replies": replies, "chunk": 3, "delay": 0.05}))
    master, slave = pty.openpty()
    args = ("run", "q", "--model", "scripted:slow.json", "--tools", "tools.py")
    process = plait.start(*args, stderr=slave, env={"TERM": "xterm-256color", "COLUMNS": "60"})
    os.close(slave)
    drawn = _read_all(master)
    assert process.communicate()[0] == "42\n"
    assert process.returncode == 0
    for label in ("thought", "action", "observation"):
        assert f"{label:<12}" in drawn
    assert "\x1b[2J" not in drawn and "title" not in drawn
    thought = [line for line in drawn.splitlines() if "very" in line]
    assert len(thought) >= 3
    assert max(line.count("very ") for line in thought) <= 9


def test_a_person_at_the_terminal_is_asked_at_once(plait: Shell) -> None:
    model = plait.script([turn("ask_user", "Which city?"), turn("final_answer", "done")])
    master, slave = pty.openpty()
    process = plait.start("run", "q", "--loop", "json", "--model", model, stdin=slave, stderr=slave)
    os.close(slave)
    drawn = ""
    while "the run waits)" not in drawn:
        drawn += os.read(master, 4096).decode()
    os.write(master, b"Lyon\n")
    _read_all(master)
    assert process.communicate()[0] == "done\n"
    assert process.returncode == 0
    assert "Lyon" in plait("show", "last").out


def _read_all(master: int) -> str:
    data = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        data += piece
    os.close(master)
    return data.decode()


def test_a_defect_is_one_line_and_a_traceback_only_when_asked_for(plait: Shell) -> None:
    broken = "import plait.cli.agent_options as s\ns.make_agent = None\nfrom plait.cli.main import main\nmain()\n"
    (plait.folder / "broken.py").write_text(broken)
    import sys

    program = [sys.executable, "broken.py"]
    done = plait("run", "q", program=program)
    assert done.code == 1
    assert done.err.count("\n") == 1 and "PLAIT_DEBUG=1" in done.err
    process = plait.start("run", "q", program=program, env={"PLAIT_DEBUG": "1"})
    assert "Traceback" in process.communicate()[1]
    assert isinstance(process, subprocess.Popen) and process.returncode == 1
