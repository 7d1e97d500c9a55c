"""Agents by name: `-a module:agent` on the command line, `[agents.NAME]` in plait.toml; what a record may select."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import plait
from cli_support import Shell
from plait import named_agents
from plait.config import ServeTable, load
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.runtime.agents import dependencies
from plait.runtime.agents.dependencies import open_deps
from plait.server.agents import serve_agent
from plait.server.runs import RunManager

SUPPORT = '''
from contextlib import asynccontextmanager

import plait

CALLS = [
    '{"thought": "", "tool": "refund", "tool_input": {"order": "A1"}}',
    '{"thought": "", "tool": "final_answer", "tool_input": {"answer": "Refunded."}}',
]


class Shop:
    """Where refunds are noted."""


def note(text):
    with open("log.txt", "a", encoding="utf-8") as file:
        file.write(text + "\\n")


@asynccontextmanager
async def make_shop():
    note("open")
    try:
        yield Shop()
    finally:
        note("close")


@plait.tool
def refund(ctx: plait.Context[Shop], order: str) -> str:
    """Refund an order.

    Args:
        order: its number
    """
    note(f"refund {order} with {type(ctx.deps).__name__}")
    return f"refunded {order}"


agent = plait.Agent(
    "json", model=plait.Scripted(CALLS), tools=[refund], deps=Shop, make_deps=make_shop, approve="effects"
)
named = agent.using(name="billing")


def make():
    return agent.using(approve="never")


def broken():
    raise ValueError("no database")


async def later():
    return agent
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "support.py").write_text(SUPPORT, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "support", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def shell(shop: Path) -> Shell:
    return Shell(shop)


def log_of(folder: Path) -> list[str]:
    return (folder / "log.txt").read_text("utf-8").split("\n")[:-1]


def id_of_last(folder: Path) -> str:
    return Journal(folder / "j.db").run("last").head.run


# -- the command line


@pytest.mark.parametrize("word", ["support:agent", "support.py:agent"])
def test_an_agent_runs_waits_is_approved_replayed_and_forked_by_its_name(shell: Shell, shop: Path, word: str) -> None:
    ran = shell("run", "Refund A1", "-a", word, "--journal", "j.db")
    assert ran.code == 5 and f"-a {word} --journal j.db --question" in ran.err
    run = id_of_last(shop)
    assert Journal(shop / "j.db").run(run).head.agent == named_agents.anchor_agent(word)
    question = ran.err.rpartition("--question ")[2].split()[0]
    approved = shell(
        "resume", run, "-a", word, "--journal", "j.db", "--question", question, "--answer", "yes", "--quiet"
    )
    assert (approved.code, approved.out) == (0, "Refunded.\n"), approved.err
    assert log_of(shop) == ["open", "close", "open", "refund A1 with Shop", "close"]
    assert shell("replay", run, "-a", word, "--journal", "j.db").code == 0
    forked = shell("fork", run, "--at", "2", "-a", "support.py:make", "--journal", "j.db", "--quiet")
    assert (forked.code, forked.out) == (0, "Refunded.\n"), forked.err


def test_every_printed_command_names_the_agent_and_works(shell: Shell, shop: Path) -> None:
    hooked = SUPPORT.replace('approve="effects"\n)', 'approve="effects", hooks=[Own()]\n)')
    hooked = hooked.replace("agent = plait", "class Own(plait.Hook): ...\n\n\nagent = plait", 1)
    (shop / "hooked.py").write_text(hooked, "utf-8")
    assert shell("run", "Refund A1", "-a", "hooked:agent", "--session", "s").code == 5
    (line,) = (each for each in shell("show", "last").out.splitlines() if each.startswith("Approve with: "))
    words = line.removeprefix("Approve with: plait ").partition("    (")[0].split()
    assert words[2:5] == ["-a", "hooked:agent", "--question"]
    second = shell("run", "Refund A1", "-a", "hooked:agent", "--session", "s")
    assert second.code == 2 and " -a hooked:agent --question" in second.err
    without = shell(*words[:2], *words[4:])
    assert without.code == 2 and "-a module:agent" in without.err and "Traceback" not in without.err
    assert shell(*words, "--quiet").out == "Refunded.\n"


def test_a_name_that_is_no_place_is_not_printed_as_one(shell: Shell, shop: Path) -> None:
    assert shell("run", "Refund A1", "-a", "support:named").code == 5
    assert " -a " not in shell("show", "last").out  # nothing has that name here


def test_a_resume_and_a_fork_keep_the_model_of_the_run(shell: Shell, shop: Path) -> None:
    calls = '{"tool": "refund", "tool_input": {"order": "A1"}}', '{"tool": "final_answer", "tool_input": "Other."}'
    (shop / "other.json").write_text(json.dumps(calls), "utf-8")
    words = ("-a", "support:agent", "--quiet")
    asked = shell("run", "Refund A1", "--model", "scripted:other.json", *words)
    question = asked.err.rpartition("--question ")[2].split()[0]
    for name in ("journal.db", "journal.db-wal"):
        shutil.copy(shop / name, shop / name.replace("journal", "foreign")) if (shop / name).exists() else None
    answer = ("resume", "last", "--question", question, "--answer", "yes", *words)
    assert shell(*answer).out == "Other.\n"
    assert shell("fork", "last", "--at", "2", *words).out == "Other.\n"
    # A journal from elsewhere does not choose a file that answers for the model of the user's agent.
    made = log_of(shop).count("refund A1 with Shop")
    foreign = shell(*answer, "--journal", "foreign.db")
    assert foreign.code == 1 and "The run differs from its record at step 1" in foreign.err
    assert log_of(shop).count("refund A1 with Shop") == made
    assert (
        shell("fork", "last", "--at", "1", "--approve", "never", *words, "--journal", "foreign.db").out == "Refunded.\n"
    )


def test_flags_change_a_named_agent_and_the_environment_and_run_table_do_not(
    shell: Shell, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_LOOP", "rewoo")
    monkeypatch.setenv("PLAIT_MODEL", "openai:gpt-5")
    (shop / "own.toml").write_text('[run]\napprove = "always"\nmax_steps = 1\nmodel = "openai:x"\n', "utf-8")
    words = ("--config", "own.toml", "--journal", "j.db", "--quiet")
    done = shell("run", "Refund A1", "-a", "support:make", *words)
    assert (done.code, done.out) == (0, "Refunded.\n"), done.err
    assert shell("run", "Refund A1", "-a", "support:make", "--approve", "always", *words).code == 5
    assert shell("run", "Refund A1", "-a", "support:make", "--max-steps", "1", *words).code == 4


def test_a_table_of_plait_toml_names_an_agent_and_changes_it(shell: Shell, shop: Path) -> None:
    (shop / "own.toml").write_text(
        '[agents.support]\nagent = "support:agent"\n[agents.free]\nagent = "support:agent"\napprove = "never"\n',
        "utf-8",
    )
    words = ("--config", "own.toml", "--journal", "j.db")
    assert shell("run", "Refund A1", "-a", "support", *words).code == 5
    run = id_of_last(shop)
    assert Journal(shop / "j.db").run(run).head.agent == "support"
    # Without -a the configuration is searched for the name in the record.
    asked = shell("resume", run, *words)
    assert asked.code == 5, asked.err
    question = asked.err.rpartition("--question ")[2].split()[0]
    assert shell("resume", run, "--question", question, "--answer", "yes", *words).code == 0
    free = shell("run", "Refund A1", "-a", "free", "--quiet", *words)
    assert (free.code, free.out) == (0, "Refunded.\n")
    assert "plait.toml has support, free" in shell("run", "q", "-a", "suport", *words).err


def test_the_wording_of_what_cannot_be_loaded_says_what_to_do(shell: Shell, shop: Path) -> None:
    for word, said in {
        "support:agnet": "the module support has no 'agnet'. Did you mean agent?",
        "supprt:agent": "there is no module 'supprt'. Is it installed, or in this folder?",
        "nothing.py:agent": "There is no file 'nothing.py'",
        "support.py": "'support.py' has the agents agent, named. Name one: support.py:agent.",
        "support:Shop": "is a Shop and no agent. Name a plait.Agent",
        "support:CALLS": "is a list and no agent",
        "support:broken": "makes no agent: ValueError: no database",
        "support:later": "makes no agent: TypeError: later returned an awaitable",
        "support": "There is no agent 'support'",
        ":agent": "does not name an agent. Write module:name",
    }.items():
        done = shell("run", "q", "-a", word)
        assert done.code == 2 and said in done.err and "Traceback" not in done.err, (word, done.err)
    assert shell("run", "Refund A1", "-a", "support:agent").code == 5
    alone = shell("resume", "last")
    assert alone.code == 2 and "was given in Python. Name the agent: -a module:agent" in alone.err


def test_one_file_gives_an_agent_and_its_dependencies_the_same_classes(shell: Shell, shop: Path) -> None:
    done = shell("run", "A1", "-a", "support.py:make", "--deps", "support.py:make_shop", "--no-journal", "--quiet")
    assert (done.code, done.out) == (0, "Refunded.\n"), done.err


# -- what a record may do


@pytest.mark.parametrize("name", ["os:system", "support:agent", "{}/support.py:make", "evil:run", "../x.py:agent"])
def test_a_foreign_journal_names_an_agent_and_nothing_is_imported(shell: Shell, shop: Path, name: str) -> None:
    for module in ("evil", "support"):
        (shop / f"{module}.py").write_text("open('imported.txt', 'w').close()\n", "utf-8")
    agent = plait_agent(shop)
    run = agent.run("q")
    journal = Journal(shop / "foreign.db")
    head = msgspec.structs.replace(Journal(shop / "runs.db").run(run.id).head, agent=name.format(shop))
    asyncio.run(journal.store.begin(head, ""))
    for command in (["resume"], ["replay"], ["fork", "--at", "1"], ["show"], ["runs"]):
        words = [command[0], *([] if command[0] == "runs" else ["last"]), *command[1:]]
        done = shell(*words, "--journal", "foreign.db")
        assert "Traceback" not in done.err
    assert not (shop / "imported.txt").exists()


def plait_agent(folder: Path) -> plait.Agent[str]:
    return plait.Agent("react", model=plait.Scripted(["Final Answer: 42"]), journal=folder / "runs.db")


def test_a_folders_plait_toml_with_an_agent_needs_trust(shell: Shell, shop: Path) -> None:
    (shop / "plait.toml").write_text('[agents.s]\nagent = "support:agent"\ndeps = "support:make_shop"\n', "utf-8")
    shell.trusts_folder = False
    done = shell("run", "q", "-a", "s")
    assert done.code == 2
    assert (
        "It would run the code of support:agent (agents.s); run the code of support:make_shop (agents.s)." in done.err
    )
    assert "support" not in sys.modules


def test_names_of_configured_agents_are_found(shop: Path) -> None:
    (shop / "own.toml").write_text(
        '[agents.a]\nagent = "support:agent"\n[agents.b]\nagent = "support.py:named"\n[agents.c]\n', "utf-8"
    )
    config = load(shop / "own.toml")
    found = {
        name: named_agents.find_configured_name(config, name)
        for name in ("a", "c", "support:agent", f"{shop}/support.py:named", "billing", "os:system", "")
    }
    assert found == {
        "a": "a",
        "c": "c",
        "support:agent": "a",
        f"{shop}/support.py:named": "b",
        "billing": "b",
        "os:system": None,
        "": None,
    }


# -- dependencies


class Database:
    """Dependencies of the tests."""


def agent_with(make: Any, **more: Any) -> plait.Agent[str]:
    return plait.Agent(
        "react", model=plait.Scripted(["Final Answer: 42"]), make_deps=make, instructions=seen_by, journal=False, **more
    )


def seen_by(deps: object) -> str:
    return f"You have {type(deps).__name__}."


async def make_async() -> Database:
    return Database()


async def generate() -> Any:
    yield Database()


@asynccontextmanager
async def manage() -> Any:
    yield Database()


@pytest.mark.parametrize("make", [Database, make_async, generate, manage, lambda: Database()])
def test_dependencies_are_made_by_a_function_an_async_one_or_a_context_manager(make: Any) -> None:
    agent = agent_with(make, deps=Database)
    run = agent.run("q")
    assert run.status == "answered"
    assert [*agent.stream("q")][-1].run.status == "answered"
    given = agent.run("q", deps=Database())  # given ones are not made
    assert given.status == "answered"


def test_dependencies_of_another_type_and_those_that_cannot_be_made_are_said() -> None:
    with pytest.raises(ConfigError, match="The dependencies are dict"):
        agent_with(dict, deps=Database).run("q")

    def refuse() -> None:
        raise OSError("no database")

    def generate_plainly() -> Any:
        yield Database()

    with pytest.raises(ConfigError, match="can't be made: refuse raised OSError: no database"):
        agent_with(refuse).run("q")
    with pytest.raises(ConfigError, match="generate_plainly raised TypeError: it is a generator without `async`"):
        agent_with(generate_plainly).run("q")
    with pytest.raises(ConfigError, match="Agent\\(make_deps=5\\) is invalid"):
        agent_with(5)


async def test_dependencies_are_closed_when_the_run_is_cancelled_and_see_why() -> None:
    seen = []

    @asynccontextmanager
    async def watch() -> Any:
        try:
            yield Database()
        except BaseException as why:
            seen.append(type(why).__name__)
            raise

    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(30)
        return ""

    agent = agent_with(watch).using(
        model=plait.Scripted(["Thought: x\nAction: wait\nAction Input: {}"]), tools=[plait.tool(wait)]
    )
    task = asyncio.ensure_future(agent.arun("q"))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["CancelledError"]


async def test_a_manager_cannot_hide_how_a_run_ended_and_one_that_breaks_while_closing_is_a_warning() -> None:
    @asynccontextmanager
    async def swallow() -> Any:
        with suppress(ValueError):
            yield 1

    with pytest.raises(ValueError, match="own"):
        async with open_deps(swallow, None):
            raise ValueError("own")

    @asynccontextmanager
    async def break_at_the_end() -> Any:
        yield 1
        raise OSError("the connection is gone")

    with pytest.warns(RuntimeWarning, match="can't be closed: break_at_the_end raised OSError: the connection is gone"):
        async with open_deps(break_at_the_end, None) as deps:
            assert deps == 1


def test_a_child_makes_its_own_dependencies_or_has_those_of_its_parent() -> None:
    seen = []

    def look(ctx: plait.Context[Any]) -> str:
        """Look."""
        seen.append(type(ctx.deps).__name__)
        return "x"

    script = ["Thought: x\nAction: look\nAction Input: {}", "Final Answer: 1"]
    child = plait.Agent("react", model=plait.Scripted(script), tools=[look], make_deps=Database, deps=Database)
    ask = ["Thought: x\nAction: child\nAction Input: q", "Final Answer: 2"]
    parent = plait.Agent("react", model=plait.Scripted(ask), journal=False, make_deps=dict)
    assert parent.using(tools=[child.as_tool("child", "Looks.")]).run("q").answer == "2"
    plain = child.using(make_deps=None, deps=None, model=plait.Scripted(script))
    other = parent.using(tools=[plain.as_tool("child", "Looks.")], model=plait.Scripted(ask))
    assert other.run("q").answer == "2"
    assert seen == ["Database", "dict"]


@pytest.mark.parametrize("ending", ["cancelled", "the tool takes too long", "in a child"])
def test_dependencies_are_closed_after_the_threads_that_use_them(ending: str) -> None:
    """A thread cannot be stopped. It goes on when its call was given up."""
    log: list[str] = []
    begun = threading.Event()

    async def connect() -> AsyncIterator[str]:
        try:
            yield "db"
        finally:
            log.append("closed")

    @plait.tool(timeout=0.05 if ending == "the tool takes too long" else None)
    def slow(ctx: plait.Context[str], text: str) -> str:
        """Takes a moment."""
        begun.set()
        time.sleep(0.15)
        log.append(f"used {ctx.deps}")
        return text

    script = ["Thought: x\nAction: slow\nAction Input: x", "Final Answer: 1"]
    agent = plait.Agent("react", model=plait.Scripted(script), tools=[slow], make_deps=connect, deps=str, journal=False)
    if ending == "in a child":
        asks = plait.Scripted(["Thought: x\nAction: child\nAction Input: q", "Final Answer: 2"])
        agent = plait.Agent("react", model=asks, tools=[agent.as_tool("child", "Helps.")], journal=False)

    async def cancel() -> None:
        task = asyncio.ensure_future(agent.arun("q"))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    if ending == "the tool takes too long":
        assert agent.run("q").answer == "1"
    else:
        asyncio.run(cancel())
    assert log == ["used db", "closed"]


async def test_dependencies_are_closed_in_time_though_a_thread_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "GRACE", 0.05)
    begun, free, log = threading.Event(), threading.Event(), list[str]()

    async def connect() -> AsyncIterator[str]:
        try:
            yield "db"
        finally:
            log.append("closed")

    def hang(text: str) -> str:
        """Hang."""
        begun.set()
        free.wait(10)
        return text

    script = ["Thought: x\nAction: hang\nAction Input: x"]
    agent = plait.Agent("react", model=plait.Scripted(script), tools=[hang], make_deps=connect, deps=str, journal=False)
    task = asyncio.ensure_future(agent.arun("q"))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert log == ["closed"] and not free.is_set() and asyncio.all_tasks() == {asyncio.current_task()}
    free.set()


def test_a_child_run_that_has_begun_is_not_forgotten_when_its_dependencies_fail(journal: Path) -> None:
    """Its run ends without a result of the call, and goes on later. The user's answer to the child counts then."""
    made: list[str] = []
    sent: list[str] = []

    async def connect() -> AsyncIterator[str]:
        made.append("")
        if len(made) == 2:
            raise OSError("the database is down")
        yield "db"

    def send(ctx: plait.Context[str], text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    async def help(ctx: plait.Context[Any], what: str) -> str:
        """Let the helper send texts; goes on whatever it raises."""
        try:
            return str((await ctx.arun(helper, what)).answer)
        except Exception:
            return "no helper"

    def make_parent(name: str, **fields: Any) -> plait.Agent[Any]:
        call = f"Thought: x\nAction: {name}\nAction Input: q"
        tool = {
            "helper": lambda: helper.as_tool("helper", "Helps."),
            "help": lambda: plait.tool(idempotent=True)(help),
            "middle": lambda: make_parent("helper").as_tool("middle", "Helps."),
        }[name]()
        return plait.Agent("react", model=plait.Scripted([call, "Final Answer: 2"]), tools=[tool], **fields)

    script = [*(f"Thought: x\nAction: send\nAction Input: {text}" for text in ("one", "two")), "Final Answer: both"]
    helper: plait.Agent[Any] = plait.Agent(
        "react", model=plait.Scripted(script), tools=[send], make_deps=connect, deps=str,
        approve=lambda call: call.input == {"text": "two"},
    )  # fmt: skip
    for name in ("helper", "help", "middle"):
        made.clear()
        sent.clear()
        parent = make_parent(name, journal=journal)
        run = parent.run("q")
        assert run.status == "waiting" and sent == ["one"]
        run = parent.resume(run, "yes")
        assert run.status == "crashed" and "the database is down" in str(run.reason) and sent == ["one"]
        assert run.timeline.results == [] and "Nothing" not in str(run.reason)
        run = parent.resume(run)
        assert (run.status, sent, len(made)) == ("answered", ["one", "two"], 3)
        assert parent.replay(run.id).whole


def test_a_hook_gets_the_dependencies_of_its_own_run_also_in_child_runs() -> None:
    class Look(plait.Hook):
        """Looks at the dependencies."""

        def before_tool(self, context: plait.Context[Any], call: Any) -> None:
            seen.append((type(self).__name__, call.tool, context.deps))

    class LookToo(Look):
        """Looks, too."""

    def look() -> str:
        """Look."""
        return "x"

    seen: list[tuple[str, str, str]] = []
    tools: list[Any] = [look]
    for name, hooks in (("look", []), ("inner", [LookToo()]), ("outer", [Look()])):
        script = [f"Thought: x\nAction: {name}\nAction Input: {{}}", "Final Answer: 1"]
        if name != "look":
            script[0] = f"Thought: x\nAction: {name}\nAction Input: q"
        agent = plait.Agent("react", model=plait.Scripted(script), tools=tools, hooks=hooks, deps=str, journal=False,
                            make_deps=lambda name=name: f"deps of {name}")  # fmt: skip
        tools = [agent.as_tool("inner" if name == "look" else "outer", "Looks.")]
    assert agent.run("q").answer == "1"
    assert sorted(seen) == [
        ("Look", "inner", "deps of outer"),
        ("Look", "look", "deps of outer"),
        ("Look", "outer", "deps of outer"),
        ("LookToo", "inner", "deps of inner"),
        ("LookToo", "look", "deps of inner"),
    ]


# -- comparisons and servers


def test_agents_and_texts_are_rows_of_a_comparison_and_a_recommendation(shell: Shell, shop: Path) -> None:
    (shop / "tasks.jsonl").write_text('{"id": "a", "question": "Refund A1", "answer": "Refunded."}\n', "utf-8")
    words = ("tasks.jsonl", "-a", "support:make", "--instructions", "Be brief.", "--instructions", "Be long.")
    done = shell("compare", *words, "--journal", "j.db", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [(row["loop"], row["agent"], row["texts"], row["success"]) for row in rows] == [
        ("support:make", "support:make", {"instructions": text}, 1.0) for text in ("Be brief.", "Be long.")
    ]
    heads = [row.head for row in Journal(shop / "j.db").runs()]
    assert {head.settings["instructions"] for head in heads} == {"Be brief.", "Be long."}
    assert log_of(shop) == ["open", "refund A1 with Shop", "close"] * 2
    (shop / "rows.json").write_text(done.out, "utf-8")
    chosen = shell("recommend", "rows.json")
    assert "-a support:make --instructions 'Be " in chosen.out, chosen.err
    again = shell("compare", *words, "--journal", "j.db", "--json")  # nothing runs again
    assert again.code == 0 and len(log_of(shop)) == 6
    (shop / "support.py").write_text(SUPPORT.replace('return f"refunded', 'return f"now refunded'), "utf-8")
    changed = shell("compare", *words, "--journal", "j.db", "--json")  # but with other code
    assert changed.code == 0 and len(log_of(shop)) == 12


def test_an_agent_is_compared_with_other_loops(shell: Shell, shop: Path) -> None:
    (shop / "tasks.jsonl").write_text('{"id": "a", "question": "Refund A1", "answer": "Refunded."}\n', "utf-8")
    words = ("tasks.jsonl", "-a", "support:make", "--loops", "tool_calling,react(dialect=lines)", "--journal", "j.db")
    done = shell("compare", *words, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    names = ["support:make/tool_calling", "support:make/react(dialect=lines)"]
    assert [(row["loop"], row["agent"]) for row in rows] == [(name, "support:make") for name in names]
    heads = {row.head.loop["name"]: row.head for row in Journal(shop / "j.db").runs()}
    assert set(heads) == {"tool_calling", "react"} and rows[0]["success"] == 1.0
    assert all([spec["name"] for spec in head.tools] == ["refund"] for head in heads.values())
    (shop / "rows.json").write_text(json.dumps({"rows": [{**rows[1], "success": 1.0, "successes": 1}]}), "utf-8")
    chosen = shell("recommend", "rows.json")
    assert "-a support:make --loop react --set dialect=lines --model" in chosen.out, chosen.err


def test_a_loop_that_an_agent_is_compared_with_takes_its_models_for_the_phases_that_it_has(tmp_path: Path) -> None:
    model = plait.Scripted(lambda request: {"answer": "42"})
    agent = plait.Agent("rewoo", model=model, models={"plan": model}, name="planner")
    tasks = [{"id": "a", "question": "6*7?", "answer": "42"}]
    found = plait.compare(tasks, agents=agent, loops=["json", "rewoo"], journal=tmp_path / "j.db")
    assert [row.loop for row in found.rows] == ["planner/json", "planner/rewoo"]
    assert {"plan", "solve"} <= set(found.rows[1].models) and found.rows[0].success == 1.0


def test_agents_of_a_comparison_keep_their_own_settings_and_need_names(tmp_path: Path) -> None:
    tasks = [{"id": "a", "question": "6*7?", "answer": "42"}]
    agent = plait.Agent("react", model=plait.Scripted(["Final Answer: 42"]), limits=plait.Limits(steps=3))
    found = plait.compare(tasks, agents={"one": agent, "two": agent.using(loop="json")}, journal=tmp_path / "j.db")
    assert [(row.loop, row.success) for row in found.rows] == [("one", 1.0), ("two", 0.0)]
    assert all(row.head.settings["limits"]["steps"] == 3 for row in Journal(tmp_path / "j.db").runs())
    with pytest.raises(ConfigError, match="Two agents have the name 'x'"):
        plait.compare(tasks, agents=[agent.using(name="x")] * 2, journal=tmp_path / "j.db")
    with pytest.raises(ConfigError, match="have a field 'tools'"):
        plait.compare(tasks, agents=agent, texts={"a": {"tools": []}}, journal=tmp_path / "j.db")


async def test_a_server_goes_on_with_a_run_that_another_program_began_with_the_agent(shop: Path) -> None:
    agent = named_agents.load_agent("support.py:agent").using(journal=shop / "j.db")
    run = await agent.arun("Refund A1")
    assert run.status == "waiting"
    manager = RunManager([serve_agent("shop", agent, ServeTable()), serve_agent("b", agent_with(None), ServeTable())])
    going = await manager.resume(run.id, "yes", question=run.outcome.question)
    assert (await going.done()).answer == "Refunded."
    head = manager.journal.head(run.id)
    forked = await manager.fork_with(manager.agent_for(head), head, 2)
    assert (await forked.done()).answer == "Refunded."
    assert log_of(shop).count("refund A1 with Shop") == 1
