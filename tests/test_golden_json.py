"""The published JSON ReAct: with the account's own prompt in a folder, the requests are equal to it byte for byte.

The account appends the user's query, the model's output and the tools' results to the bottom of one prompt, line by
line. The prompt and the reply are cut from the published text; only labels and Jinja tags stand here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell, question
from conftest import data_file
from plait.journal.store import Journal

QUERY = "How long is the diagonal of a square with sides of 1?"
OPTIONS = ("--loop", "json", "--set", "transcript=completion", "--tools", "calculator")
FILES = {
    "question": "{{ question }}",
    "completion": "{{ system }}\n{{ question }}\n"
    "{% for turn in turns %}\n{{ turn.reply }}\n{{ turn.observation }}\n{% endfor %}\n{{ opening }}",
    "result": "{{ text }}",
}


@pytest.fixture(scope="module")
def account() -> str:
    return data_file("published", "json-react.txt").read_text(encoding="utf-8")


def cut(text: str, first: str, last: str) -> str:
    """The part from the line that begins with `first` to the line that begins with `last`."""
    begin = text.index(f"\n{first}") + 1
    end = text.index(f"\n{last}", begin) + 1
    return text[begin : text.index("\n", end)]


@pytest.fixture(scope="module")
def published(account: str) -> str:
    """The whole prompt, with the tools tool1 and tool2."""
    return cut(account, "You are the ReAct", "- The user cannot see")


@pytest.fixture(scope="module")
def reply(account: str) -> str:
    """The worked example of the prompt, which is a turn as models write it."""
    return cut(account, '{\n"thought": "I need', "}")


@pytest.fixture
def prompts(published: str, tmp_path: Path) -> Path:
    """The published prompt as a template: its tools and names are those of the agent."""
    tools = published[published.index("tool1:") : published.index("ask_user:")]
    template = published.replace(
        tools, "{% for tool in tools %}\n{{ tool.name }}:\n{{ tool.description }}\n{% endfor %}\n"
    ).replace("{tool1, tool2, ask_user, final_answer, fail_task", "{{ '{' ~ names }}")
    folder = tmp_path / "prompts" / "json"
    folder.mkdir(parents=True)
    for name, text in {**FILES, "system": template}.items():
        (folder / f"{name}.j2").write_text(text, encoding="utf-8")
    return folder.parent


@pytest.fixture
def tools(published: str) -> list[plait.Tool]:
    """Two tools with the names and the explanations that the published prompt shows."""

    def explanation(name: str) -> str:
        return published.partition(f"{name}:\n")[2].partition("\n")[0]

    return [
        plait.tool(lambda: "1.41421356237", name="tool1", description=explanation("tool1")),
        plait.tool(lambda: "nothing", name="tool2", description=explanation("tool2")),
    ]


def turn(tool: str, given: Any = None) -> str:
    """A reply in the published shape."""
    fields = {"thought": "I go on.", "tool": tool, "tool_input": given}
    return json.dumps(fields, indent=0)


def bodies(run: plait.Run) -> list[dict[str, Any]]:
    return [json.loads(call.request) for call in run.timeline.model_calls]


def sent(shell: Shell) -> list[dict[str, Any]]:
    """The requests of a shell's last run."""
    timeline = Journal(shell.env["PLAIT_JOURNAL"]).timeline("last")
    return [json.loads(call.request) for call in timeline.model_calls]


REPLIES = [turn("tool1"), turn("tool2"), turn("final_answer", "1.414")]


def test_golden_prompt_grows_at_its_bottom(published: str, prompts: Path, tools: list[plait.Tool]) -> None:
    loop = plait.JsonReAct(transcript="completion")
    run = plait.Agent(loop, model=plait.Scripted(REPLIES), tools=tools, prompts=prompts).run(QUERY)
    grown = [f"{published}\n{QUERY}\n"]
    for said, result in zip(REPLIES, ("1.41421356237", "nothing"), strict=False):
        grown.append(f"{grown[-1]}{said}\n{result}\n")
    assert [body["prompt"] for body in bodies(run)] == grown
    assert run.answer == "1.414"


def test_golden_prompt_keeps_what_the_model_wrote(prompts: Path, tools: list[plait.Tool]) -> None:
    """A reply that Plait repairs to read it stays in the prompt as it came."""
    loop, said = plait.JsonReAct(transcript="completion"), f"Well: {turn('tool1')}\n\n"
    model = plait.Scripted([said, turn("final_answer", "1.414")], by_turn=False)
    run = plait.Agent(loop, model=model, tools=tools, prompts=prompts).run(QUERY)
    first, second = (body["prompt"] for body in bodies(run))
    assert second == f"{first}{said}\n1.41421356237\n"


def test_golden_chat_is_the_same_text_in_messages(published: str, prompts: Path, tools: list[plait.Tool]) -> None:
    run = plait.Agent("json", model=plait.Scripted(REPLIES), tools=tools, prompts=prompts).run(QUERY)
    said = [
        ("system", published),
        ("user", QUERY),
        ("assistant", REPLIES[0]),
        ("user", "1.41421356237"),
        ("assistant", REPLIES[1]),
        ("user", "nothing"),
    ]
    expected = [{"role": role, "content": content} for role, content in said]
    assert [body["messages"] for body in bodies(run)] == [expected[:2], expected[:4], expected]


def test_golden_script_skips_the_worked_example_unless_by_turn_is_off(prompts: Path, reply: str) -> None:
    for by_turn, called in ((True, []), (False, ["calculator"])):
        model = plait.Scripted([reply, turn("final_answer", "1.4")], by_turn=by_turn)
        loop = plait.JsonReAct(transcript="completion")
        run = plait.Agent(loop, model=model, tools=["calculator"], prompts=prompts).run(QUERY)
        assert (run.answer, [each.call.tool for each in run.timeline.tool_calls]) == ("1.4", called)


def test_golden_command_reproduces_the_worked_example(
    published: str, prompts: Path, reply: str, tmp_path: Path
) -> None:
    """`plait run` alone, with one tool of the library and the reply that the account shows."""
    shell = Shell(tmp_path)
    # The prompt holds this reply, as an example: so the script may not look for it, and gives its replies in order.
    script = {"replies": [reply, turn("final_answer", "1.41421356237")], "by_turn": False}
    (tmp_path / "script.json").write_text(json.dumps(script))
    ended = shell("run", QUERY, *OPTIONS, "--prompts", str(prompts), "--model", "scripted:script.json", "--quiet")
    assert (ended.code, ended.out) == (0, "1.41421356237\n")
    prompt = sent(shell)[-1]["prompt"]
    after_tools = published[published.index("ask_user:") : published.index("The tool input must")]
    assert after_tools.replace("tool1, tool2", "calculator") in prompt
    assert prompt.endswith(f" tools.\n{QUERY}\n{reply}\n1.41421356237\n")


def test_golden_run_waits_for_the_user_and_continues(published: str, prompts: Path, tmp_path: Path) -> None:
    """`ask_user` suspends the run; the answer is appended as any tool's result."""
    shell = Shell(tmp_path)
    replies = [turn("ask_user", "In which unit?"), turn("final_answer", "1.414 m")]
    waits = shell("run", QUERY, *OPTIONS, "--prompts", str(prompts), "--model", shell.script(replies))
    assert waits.code == 5 and "waiting: In which unit?" in waits.err
    ended = shell("resume", "last", *question(shell), "--answer", "metres", "--quiet")
    assert (ended.code, ended.out) == (0, "1.414 m\n")
    first, second = (body["prompt"] for body in sent(shell))
    assert second == f"{first}{replies[0]}\nmetres\n"


def test_golden_failure_is_typed(prompts: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    model = shell.script([turn("fail_task", "No tool knows it.")])
    ended = shell("run", QUERY, *OPTIONS, "--prompts", str(prompts), "--model", model, "--json")
    assert (ended.code, ended.object["status"], ended.object["reason"]) == (3, "failed", "No tool knows it.")
    assert ended.object["answer"] is None


class Notes:
    """Notes of one run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> int:
        """Adds a line.

        Returns:
            the number of lines
        """
        self.lines.append(line)
        return len(self.lines)


def test_golden_tools_are_methods_of_one_object_per_run(published: str, prompts: Path) -> None:
    replies = [turn("add", "one"), turn("add", "two"), turn("final_answer", "done")]
    agent = plait.Agent(
        plait.JsonReAct(transcript="completion"), model=plait.Scripted(replies), tools=[Notes], prompts=prompts
    )
    for _ in range(2):  # the second run starts with an object of its own
        run = agent.run("Note one and two.")
        assert bodies(run)[-1]["prompt"].endswith(f"Note one and two.\n{replies[0]}\n1\n{replies[1]}\n2\n")


class OnlyCompletions(BaseHTTPRequestHandler):
    """An endpoint that has `/v1/completions` and nothing else."""

    replies: list[str]
    prompts: list[str]

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        known = self.path == "/v1/completions"
        found: dict[str, Any] = {"error": {"message": "Not found"}}
        if known:
            self.prompts.append(body["prompt"])
            choice = {"index": 0, "text": self.replies[len(self.prompts) - 1], "finish_reason": "stop"}
            found = {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
        raw = json.dumps(found).encode()
        self.send_response(200 if known else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def endpoint() -> Iterator[tuple[type[OnlyCompletions], str]]:
    """The class of the endpoint, for its replies and prompts, and its address."""
    handler = type("Endpoint", (OnlyCompletions,), {"replies": [], "prompts": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_golden_prompt_over_http_needs_only_completions(
    prompts: Path, reply: str, endpoint: tuple[type[OnlyCompletions], str], tmp_path: Path
) -> None:
    """Also the repair of a reply, and the last answer at a limit, are completions."""
    served, address = endpoint
    served.replies = [reply, "{not an object", turn("final_answer", "1.414")]
    shell = Shell(tmp_path)
    table = f'[endpoints.old]\nbase_url = "{address}"\nabilities = {{ completion = true }}\n'
    (tmp_path / "plait.toml").write_text(table)
    ended = shell("run", QUERY, *OPTIONS, "--prompts", str(prompts), "--model", "old:davinci", "--quiet")
    assert (ended.code, ended.out) == (0, "1.414\n"), ended.err
    first, second, repaired = served.prompts
    assert second == f"{first}{reply}\n1.41421356237\n"
    assert repaired.startswith(f"{second}\n{{not an object\n")

    served.prompts.clear()
    served.replies = [reply, turn("final_answer", "about 1.4")]
    limited = shell(
        "run", QUERY, *OPTIONS, "--prompts", str(prompts), "--model", "old:davinci", "--max-calls", "2", "--quiet"
    )
    assert (limited.code, limited.out) == (4, "about 1.4\n"), limited.err
    assert served.prompts[1].startswith(f"{second}\n")
