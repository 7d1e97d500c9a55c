"""Reading a journal runs no code that it names, unless the user allows it, and does not stop the machine."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

import plait
from cli_support import Shell, action, final
from plait.core.errors import ConfigError, JournalError
from plait.journal import bodies
from plait.journal.store import Journal
from plait.lab import records
from plait.trust import risk_of_tool

TOOLS = """
from pathlib import Path
import plait

Path(__file__).with_name("loaded").touch()

@plait.tool
def send(text: str) -> str:
    \"\"\"Send a text.\"\"\"
    return "sent " + text
"""


answer: list[str] = []
"""The words that approve the call which the run waits with."""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder with a recorded run that waits for approval of a call of a tool in a file."""
    shell = Shell(tmp_path)
    (tmp_path / "evil.py").write_text(TOOLS)
    (tmp_path / "script.json").write_text(json.dumps([action("send", "one"), final("sent")]))
    words = ("run", "Send one.", "--model", "scripted:script.json", "--tools", "evil.py", "--approve", "always")
    done = shell(*words, "--journal", "foreign.db")
    assert done.code == 5
    answer[:] = ["resume", "last", *re.findall(r"--question \S+", done.err)[0].split(), "--answer", "yes"]
    (tmp_path / "loaded").unlink()
    return shell


def loaded(shell: Shell) -> bool:
    return (shell.folder / "loaded").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "last"),
        ("show", "last"),
        ("show", "last", "--wire"),
        ("runs",),
        ("export", "last"),
        ("costs", "last"),
    ],
    ids=lambda words: " ".join(words),
)
def test_reading_a_foreign_journal_loads_nothing(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell(*words, "--journal", "foreign.db")
    assert done.code == 0, done.err
    assert not loaded(shell)


@pytest.mark.parametrize("words", [answer, ["fork", "last", "--at", "1"]], ids=["resume", "fork"])
def test_resume_and_fork_of_a_foreign_journal_say_what_they_would_load(shell: Shell, words: list[str]) -> None:
    done = shell(*words, "--journal", "foreign.db")
    assert (done.code, done.out) == (2, ""), done.err
    assert "names tools that need your trust" in done.err and "evil.py" in done.err and "--load-tools" in done.err
    assert not loaded(shell)
    done = shell(*words, "--journal", "foreign.db", "--load-tools")
    assert done.code in (0, 5), done.err
    assert loaded(shell)


def test_the_user_s_default_journal_loads_the_tools_it_names(shell: Shell) -> None:
    (shell.folder / "foreign.db").rename(shell.env["PLAIT_JOURNAL"])
    done = shell(*answer)
    assert (done.code, done.out) == (0, "sent\n"), done.err
    assert loaded(shell)


def test_tools_that_the_user_names_take_the_place_of_the_recorded_ones(shell: Shell) -> None:
    (shell.folder / "mine.py").write_text(TOOLS.replace("loaded", "mine"))
    done = shell(*answer, "--journal", "foreign.db", "--tools", "mine.py")
    assert (done.code, done.out) == (0, "sent\n"), done.err
    assert not loaded(shell) and (shell.folder / "mine").exists()


def test_an_mcp_command_of_a_foreign_journal_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_JOURNAL", str(tmp_path / "default.db"))

    @plait.tool
    def send(text: str) -> str:
        """Send a text."""
        return "sent"

    said = [action("send", "one"), final("sent")]
    agent = plait.Agent("react", model=plait.Scripted(said), tools=[send], approve="always", journal=tmp_path / "j.db")
    agent.run("q")
    head = Journal(tmp_path / "j.db").head("last")
    command = f'mcp:{sys.executable} -c \'open("{tmp_path}/started", "w")\''
    head = structs.replace(head, sources=(command,))
    again = plait.Agent.from_journal(head, journal=tmp_path / "j.db", model=plait.Scripted(said))
    assert [spec.name for spec in again.specs] == ["send"]
    with pytest.raises(ConfigError, match="names tools that need your trust"):
        again.resume("last")
    assert not (tmp_path / "started").exists()


HARMLESS = ("calculator", "sum=calculator", "date", "ask-user")
RISKY = (
    "tools.py",
    "x=tools.py",
    "os:system",
    "a-plug-in",
    "mcp:server",
    "mcp:http://localhost:1/mcp",
    "lab:corpus,k,t,m,f",
)
RISKY += (
    "files:/",
    "x=files:/,read_only",
    "docs:~",
    "shell:.",
    " shell:. ",
    "lookup:facts.json",
    " lookup:/etc/passwd",
)
RISKY += ("a=lookup:/etc", "fetch", "fetch:a.example", "websearch", "tables", "slack", "ask-model", "all")


def test_only_harmless_words_of_a_foreign_journal_are_loaded() -> None:
    assert [word for word in HARMLESS if risk_of_tool(word, None)] == []
    assert [word for word in RISKY if not risk_of_tool(word, None)] == []


def test_a_file_that_a_foreign_journal_names_is_not_read(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"PIN": "4711"}')
    word = f"lookup:{tmp_path / 'notes.json'}"
    said = [action("lookup", "PIN"), final("sent")]
    plait.Agent("react", model=plait.Scripted(said), tools=[word], approve="always", journal=journal).run("q")
    agent = plait.Agent.from_journal(Journal(journal).head("last"), journal=journal, model=plait.Scripted(said))
    with pytest.raises(ConfigError, match=r"need your trust.*lookup:.*--load-tools"):
        agent.fork("last", 1)
    head = structs.replace(Journal(journal).head("last"), tools=(), sources=(word, "evil.py"))
    assert not plait.Agent.from_journal(head, journal=journal).specs, "a word without a recorded tool loads nothing"


@pytest.mark.parametrize(
    "output", [{"type": "evil:T"}, "x", {"schema": 1, "retries": 2}, {"schema": None, "retries": "x"}]
)
def test_an_output_that_plait_did_not_write_is_an_error_of_the_journal(output: object, journal: Path) -> None:
    plait.Agent("react", model=plait.Scripted([final("x")]), journal=journal).run("q")
    head = Journal(journal).head("last")
    head = structs.replace(head, settings={**head.settings, "output": output})
    with pytest.raises(JournalError, match="did not write its output"):
        plait.Agent.from_journal(head, journal=journal)


# -- files that somebody made to stop the machine

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"
COLUMNS = "id, question, loop, status, owner, parent, fork_at, started, updated, rows, head, outcome, totals, session"

ALTERED = {
    "a view in place of a table": f"""
        ALTER TABLE runs RENAME TO other; DROP INDEX runs_of_session; DROP INDEX runs_of_label;
        DROP INDEX runs_of_caller;
        CREATE VIEW runs AS SELECT n, {COLUMNS}, label, caller, crc FROM other WHERE ({ENDLESS}) > 0""",
    "a view of another name": f"CREATE VIEW more AS {ENDLESS}",
    "a view with a table's name in capitals": f"DROP TABLE kept; CREATE VIEW KEPT AS {ENDLESS}",
    "a trigger": f"CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT ({ENDLESS}); END",
    "a trigger on a deletion": f"CREATE TRIGGER t AFTER DELETE ON events BEGIN SELECT ({ENDLESS}); END",
    "a generated column": "ALTER TABLE runs ADD COLUMN more AS (hex(id))",
    "a default": "ALTER TABLE events ADD COLUMN more DEFAULT ('x')",
    "a check": """
        DROP TABLE marks; CREATE TABLE marks (name TEXT PRIMARY KEY CHECK (length(hex(name)) > 9), value)""",
    "a virtual table": "DROP TABLE kept; CREATE VIRTUAL TABLE kept USING fts5(kind, key, run, at, data)",
    "another virtual table": "CREATE VIRTUAL TABLE more USING rtree(id, a, b)",
    "an index of an expression": "CREATE INDEX more ON events (hex(body))",
    "an index with a condition": "CREATE INDEX more ON runs (id) WHERE length(hex(head)) > 9",
    "another table": "CREATE TABLE more (x)",
    "a missing table": "DROP TABLE contents",
    "a missing index": "DROP INDEX runs_of_label",
    "a view that says it is a table": f"""
        CREATE VIEW more AS {ENDLESS}; PRAGMA writable_schema = ON;
        UPDATE sqlite_master
        SET type = 'table', name = 'sqlite_autoindex_more', tbl_name = 'runs' WHERE name = 'more'""",
    "statistics that compute": """
        ANALYZE; PRAGMA writable_schema = ON;
        UPDATE sqlite_master
        SET sql = 'CREATE TABLE sqlite_stat1(tbl,idx,stat AS (hex(1)))' WHERE name = 'sqlite_stat1'""",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with one short run that made a call."""
    place = tmp_path_factory.mktemp("whole") / "runs.db"
    agent = plait.Agent("react", model=plait.Scripted([final("yes")]), journal=place)
    assert agent.run("How? " * 500).answer == "yes"
    Journal.at(place).close()
    return place


@pytest.fixture
def foreign(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "foreign.db"))


def change(place: Path, sql: str) -> None:
    with closing(sqlite3.connect(place)) as connection:
        connection.executescript(sql)


USES: dict[str, Callable[[Journal], object]] = {
    "runs": lambda journal: journal.runs(),
    "run": lambda journal: journal.run("last"),
    "timeline": lambda journal: journal.timeline("last"),
    "turns": lambda journal: journal.turns("trip"),
    "write": lambda journal: plait.Agent("react", model=plait.Scripted([final("x")]), journal=journal.place).run(
        "Why?"
    ),
}


@pytest.mark.parametrize("case", ALTERED)
def test_a_journal_with_other_than_its_own_tables_is_refused(case: str, foreign: Path) -> None:
    change(foreign, ALTERED[case])
    for name, use in USES.items():
        with pytest.raises(JournalError, match="is damaged") as caught:
            use(Journal(foreign))
            pytest.fail(name)
        assert "\n" not in caught.value.message


@pytest.mark.parametrize("sql", ["ANALYZE", "VACUUM", "PRAGMA journal_mode = DELETE"])
def test_what_people_do_to_their_own_journal_is_allowed(sql: str, foreign: Path) -> None:
    change(foreign, sql)
    assert Journal(foreign).run("last").status == "answered"


BOMB = zlib.compress(bytes(160 << 20), 1)


@pytest.mark.parametrize(
    "coded",
    [
        bodies.Coded(None, None, 1, BOMB),
        bodies.Coded(10, 10, 1, BOMB),
        bodies.Coded(40 << 20, 40 << 20, None, b"x"),
    ],
    ids=["whole", "between", "head and tail"],
)
def test_few_bytes_do_not_unpack_to_many(coded: bodies.Coded) -> None:
    base = bytes(40 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(bodies.Unrestorable, match="longer than 64 MiB"):
            bodies.decode(coded, base)
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()


def test_a_body_that_was_cut_is_no_body() -> None:
    with pytest.raises(bodies.Unrestorable, match="cut short"):
        bodies.decode(bodies.Coded(None, None, 1, zlib.compress(b"x" * 5000)[:-6]))


def test_a_record_whose_bodies_are_too_long_together_is_refused(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("plait.journal.sqlite.store.KEEP_AT_MOST", 1000)
    for read in (Journal(foreign).timeline, Journal(foreign).rows):
        with pytest.raises(JournalError, match="the bodies up to it are longer than"):
            read("last")
    assert Journal(foreign).timeline("last", bodies=False).model_calls  # one after another needs no memory


def test_runs_in_a_circle_do_not_end_a_command(foreign: Path, tmp_path: Path) -> None:
    change(foreign, "UPDATE runs SET caller = id, parent = id, session = 'trip'")
    journal = Journal(foreign)
    (id,) = [row.head.run for row in journal.runs(children=True)]
    assert journal.children(id) == [] and journal.turns("trip", before=id) == []
    shell = Shell(tmp_path)
    for words in (["show", id, "--tree"], ["costs", id], ["show", id], ["runs"], ["export", id]):
        done = shell(*words, "--journal", "foreign.db")
        assert "Traceback" not in done.err


def test_deep_json_is_an_error(foreign: Path) -> None:
    for column in ("head", "outcome", "totals"):
        change(foreign, f"UPDATE runs SET {column} = replace(hex(zeroblob(100000)), '00', '[')")
        with pytest.raises(JournalError):
            Journal(foreign).runs()


def test_a_file_of_records_does_not_unpack_to_more_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_UNPACKED", 1 << 20)
    packed = tmp_path / "dev.jsonl.gz"
    packed.write_bytes(gzip.compress(b" " * (2 << 20)))
    with pytest.raises(ConfigError, match="unpacks to more than 1 MiB"):
        records.read_records(packed)


@pytest.mark.parametrize(
    "kept",
    [
        ("rating", "'x'", "'[]'"),
        ("rating", "1e999", '\'{"good":true,"evil":1}\''),
        ("rating", "1", "x'ff00'"),
        ("comparison", "'x'", '\'{"started":"now","head":[]}\''),
        ("comparison", "1", "'" + "[" * 50_000 + "'"),
    ],
)
def test_what_a_journal_from_elsewhere_keeps_about_runs_is_no_defect_of_plait(
    foreign: Path, tmp_path: Path, kept: tuple[str, ...]
) -> None:
    kind, at, data = kept
    change(foreign, f"INSERT INTO kept (kind, key, run, at, data) VALUES ('{kind}', 'k', 'r', {at}, {data})")
    shell = Shell(tmp_path)
    for words in (["rate", "list"], ["results", "list"], ["results", "show", "k"]):
        done = shell(*words, "--journal", "foreign.db")
        assert "Traceback" not in done.err and "defect" not in done.err, done.err


@pytest.mark.parametrize("mark", ["'x'", "x'ff'", "'1e999'", "-1"])
def test_a_mark_of_a_restore_may_be_anything(foreign: Path, tmp_path: Path, mark: str) -> None:
    change(foreign, f"INSERT INTO marks (name, value) VALUES ('restored', {mark})")
    done = Shell(tmp_path)("journal", "info", "--journal", "foreign.db")
    assert "Traceback" not in done.err and "defect" not in done.err, done.err


def test_times_that_are_none_are_shown_as_the_beginning(foreign: Path, tmp_path: Path) -> None:
    for time in ("1e999", "-1e12", "'then'", "1e15"):
        change(foreign, f"UPDATE runs SET started = {time}, updated = {time}, session = 'trip'")
        shell = Shell(tmp_path)
        for words in (["runs"], ["show", "last"], ["runs", "--json"]):
            done = shell(*words, "--journal", "foreign.db")
            assert "Traceback" not in done.err and "defect" not in done.err, done.err
        assert Journal(foreign).runs()[0].started == 0.0
