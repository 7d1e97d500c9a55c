"""The published chat log of the phased reactor, sent byte for byte with its own prompts and Plait's public API.

The prompts are cut out of the published log while the tests run. A template holds the account's sentences and, in place
of the question, the tools and the results, a Jinja tag.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell
from conftest import data_file
from plait.core import Exchange

RESULT = re.compile(r"(?<=\(s\): ).+")
LIST = re.compile(r"(?s)(?<=:\n\n)  • .*?(?=\n\nYou )")
"""The published list of actions: an entry is a name, and one or two lines that describe it."""


class Account:
    """The published log: `sent` are its messages as (role, text); its templates are written to a folder."""

    def __init__(self, folder: Path) -> None:
        log = json.loads(data_file("published", "phased-reactor.json").read_text(encoding="utf-8"))
        self.sent: list[tuple[str, str]] = [(role, text) for role, text in log["messages"]]
        identity, reason, thought, react, actions, reply = (text for _, text in self.sent)
        self.question = reason.rpartition("“")[2].rstrip("”")
        found = RESULT.search(reply)
        listed = LIST.search(react)
        assert found and listed
        self.result, self.list, self.replies = found[0], listed[0], [thought, actions, "The answer."]
        self.folder, self.prompts = folder, folder / "prompts"
        (self.prompts / "phased").mkdir(parents=True)
        self.write(identity=identity, reason=reason, react=react)
        self.write(reply=reply.replace(found[0], "{{ results | map(attribute='text') | join('\n') }}"))

    def write(self, **templates: str) -> None:
        for name, text in templates.items():
            text = text.replace(self.question, "{{ question }}")
            (self.prompts / "phased" / f"{name}.j2").write_text(text, encoding="utf-8", newline="")

    def tools(self) -> list[plait.Tool]:
        """A tool for each published action: what is said of it is its description, and that of its argument."""
        made = []
        for entry in re.split(r"(?m)^  • ", self.list)[1:]:
            name, about, *argument = (line.strip().removeprefix("• ") for line in entry.strip().split("\n"))
            if name != "Basic":
                made.append(self.tool(name, about, argument[0] if argument else None))
        return made

    def tool(self, name: str, about: str, argument: str | None) -> plait.Tool:
        def look() -> str:
            return self.result

        def look_up(query: str) -> str:
            return self.result

        run = look if argument is None else look_up
        run.__doc__ = about if argument is None else f"{about}\n\nArgs:\n    query: {argument}"
        excludes = ("Wikipedia",) if name == "Google" else ()
        return plait.tool(run, name=name, read_only=True, excludes=excludes)

    def agent(self, *replies: str, **options: Any) -> plait.Agent:
        model = plait.Scripted(replies or self.replies, by_turn=False)
        return plait.Agent("phased", model=model, tools=self.tools(), prompts=self.prompts, **options)


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


def messages(run: plait.Run) -> list[list[tuple[str, str]]]:
    """(role, text) of each message, for each request of a run."""
    bodies = [json.loads(call.request or "") for call in run.timeline.model_calls]
    return [[(message["role"], message["content"]) for message in body["messages"]] for body in bodies]


def test_golden_the_six_messages_are_the_published_ones(account: Account) -> None:
    run = account.agent().run(account.question)
    assert (run.status, run.answer) == ("answered", "The answer.")
    assert messages(run) == [account.sent[:2], account.sent[:4], account.sent]


def test_golden_the_list_of_actions_can_be_filled_in_from_the_tools(account: Account) -> None:
    head, basic = account.sent[3][1].split(account.list)[0], account.list[account.list.index("  • Basic") :]
    entries = (
        "{% for tool in tools %}\n"
        "  • {{ tool.name }}\n"
        "    • {{ tool.description }}\n"
        "{% for argument in tool.parameters.properties.values() %}\n"
        "    • {{ argument.description }}\n"
        "{% endfor %}\n"
        "{% endfor %}\n"
    )
    account.write(react=head + entries + basic + account.sent[3][1].split(account.list)[1])
    assert messages(account.agent().run(account.question))[-1] == account.sent


def test_golden_the_same_messages_from_the_command_line(account: Account) -> None:
    shell = Shell(account.folder)
    names = [tool.spec.name for tool in account.tools()]
    lines = ["import plait", *(f"@plait.tool(name={name!r}, read_only=True)\ndef {name.lower()}(query: str) -> str:\n"
                               f"    'Finds it.'\n    return {account.result!r}" for name in names)]  # fmt: skip
    (account.folder / "tools.py").write_text("\n".join(lines), encoding="utf-8")
    model = shell.script(account.replies)
    done = shell("run", account.question, "--loop", "phased", "--prompts", "prompts", "--model", model,
                 "--tools", "tools.py", "--quiet")  # fmt: skip
    assert (done.code, done.out) == (0, "The answer.\n"), done.err
    bodies = re.findall(r'(?m)^\{"model".*"messages".*$', shell("show", "last", "--wire").out)
    sent = [[(each["role"], each["content"]) for each in json.loads(body)["messages"]] for body in bodies]
    assert sent == [account.sent[:2], account.sent[:4], account.sent]


async def test_golden_earlier_turns_stand_before_the_published_messages(account: Account) -> None:
    earlier = Exchange("Hello.", "Hello! What can I do for you?")
    run = await account.agent().arun(account.question, session="games", history=[earlier])
    before = [("user", earlier.question), ("assistant", earlier.answer)]
    assert messages(run)[-1] == [account.sent[0], *before, *account.sent[1:]]


def test_golden_an_empty_identity_sends_no_system_message(account: Account) -> None:
    account.write(identity="")
    assert messages(account.agent().run(account.question))[-1] == account.sent[1:]
    assert messages(account.agent(system="").run(account.question))[-1] == account.sent[1:]


@pytest.mark.parametrize(
    ("was", "now"), [(" } ]", ", }, ]"), ("“ACTION”", "'ACTION'"), ("EXPLAINATION", "Explanation"), ("[ {", "[\n{")]
)
def test_golden_a_list_with_odd_punctuation_stays_as_the_model_wrote_it(was: str, now: str, account: Account) -> None:
    thought, actions, answer = account.replies
    assert was in actions
    run = account.agent(thought, actions.replace(was, now), answer).run(account.question)
    assert messages(run)[-1][4] == ("assistant", actions.replace(was, now))
    assert messages(run)[-1][5] == account.sent[5]  # Google was called
    assert len(messages(run)) == 3
