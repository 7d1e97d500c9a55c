"""Installed packages in the sandbox `process`: what code gets of them, what it still may not do, and who names them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import plait
from plait.core.code import CodeLimits
from plait.core.errors import ConfigError
from plait.journal.store import Journal
from plait.loops.codeact.hints import MODULES
from plait.runtime.calls.artifacts import read_artifacts
from plait.sandbox import Settings, modules_of, sandbox
from plait.sandbox.packages import find_packages
from plait.sandbox.process import ProcessSession
from plait.trust import risks
from sandbox_support import NOW, opened, whole

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox needs Linux")

TABLES = ("numpy", "pandas")
HAS_TABLES = all(map(importlib.util.find_spec, TABLES))
HAS_CHARTS = HAS_TABLES and importlib.util.find_spec("matplotlib") is not None
with_tables = pytest.mark.skipif(not HAS_TABLES, reason="numpy or pandas is not installed")
with_charts = pytest.mark.skipif(not HAS_CHARTS, reason="matplotlib is not installed")
ALL = "process:" + ",".join((*TABLES, "matplotlib") if HAS_CHARTS else TABLES)
SETTINGS = Settings(frozenset({"tool", "stop"}), CodeLimits(seconds=20.0, memory_mb=512))


def install(folder: Path, name: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> None:
    """Write a package as pip installs it."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    needed = "".join(f"Requires-Dist: {each}\n" for each in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needed}")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package, what it needs, and a stranger beside them."""
    site = tmp_path / "site"
    maker = "import random, time\nluck, made_at = random.random(), time.time()\nfrom helper_of_maker import help\n"
    files = {"maker/__init__.py": maker, "maker/below/__init__.py": "", "maker/below/late.py": "late = 1\n"}
    data = {"maker/words.txt": "a word", "maker/broken.py": "import nothing_like_it\n", "maker/tests/x.py": "1 / 0\n"}
    install(site, "maker-of-things", files | data, ("Helper_of.Maker>=1", 'absent; extra == "more"', "never-installed"))
    install(site, "helper-of-maker", {"helper_of_maker.py": "def help(): return 'helped'\n"})
    install(site, "stranger", {"stranger.py": ""})
    monkeypatch.syspath_prepend(str(site))
    find_packages.cache_clear()
    return site


async def test_a_package_is_there_whole_with_what_it_needs_and_nothing_beside_it(site: Path) -> None:
    found = find_packages(("maker-of-things",))
    assert (found.modules, found.loaded) == (("maker",), ("maker", "helper_of_maker"))
    assert modules_of("process:maker") == ("maker",)  # a module's name will do
    session = await opened("process:maker-of-things", SETTINGS)
    try:
        code = "import maker, maker.below.late\nprint(maker.help(), maker.below.late.late, maker.__file__)"
        assert (await whole(session, code)).output == "helped 1 /python/site-packages/maker/__init__.py\n"
        words = await whole(session, f"print(open('{site}/maker/words.txt').read())")
        assert words.output == "a word\n"
        for name in ("stranger", "maker.tests.x", "maker.broken"):
            told = await whole(session, f"import {name}")
            assert told.error is not None and "load no files" in told.error.message
        error = (await whole(session, f"open('{site}/maker/words.txt', 'w')")).error
        assert error is not None and error.type == "PermissionError"
        error = (await whole(session, f"open('{site}/stranger.py')")).error
        assert error is not None and error.type == "PermissionError"
    finally:
        await session.close()
    assert (site / "maker" / "words.txt").read_text() == "a word"


async def test_what_a_package_draws_while_it_loads_follows_the_seed(site: Path) -> None:
    seen = []
    for seed in (1, 1, 2):
        session = await opened("process:maker", Settings(seed=seed))
        seen.append((await whole(session, "import maker\nprint(maker.luck, maker.made_at)")).output)
        await session.close()
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("process:pandsa", r"'pandsa' of the sandbox is not installed.*pip install pandsa"),
        ("process:../x", r"not the name of a package"),
        ("process:pandas==2", r"not the name of a package"),
        ("process:numpy,", r"not the name of a package"),
        ("monty:numpy", r"There is no sandbox 'monty:numpy'"),
    ],
)
def test_a_package_that_is_not_there_is_said_when_the_agent_is_made(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        plait.Agent("codeact", model=plait.Scripted([]), sandbox=name)
    assert __import__("re").search(words, str(refusal.value), 16), str(refusal.value)
    with pytest.raises(ConfigError, match="one text"):
        plait.Process(packages="numpy")


async def test_a_package_that_can_not_be_imported_is_said_by_name(site: Path) -> None:
    install(site, "fails-at-once", {"fails_at_once.py": "raise ImportError('no luck here')\n"})
    with pytest.raises(ConfigError, match="no luck here"):
        await sandbox("process:fails-at-once").open(SETTINGS)


# what code still may not do: each ends with an error in the code, and the session goes on


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tables() -> AsyncIterator[ProcessSession]:
    session = await opened(ALL, SETTINGS)
    await whole(session, "import os, numpy as np, pandas as pd\nkept = pd.DataFrame({'a': [1, 2]})")
    assert isinstance(session, ProcessSession)
    yield session
    await session.close()


ATTACKS = {
    "read a file with pandas": "pd.read_csv('/etc/passwd')",
    "read a file with numpy": "np.fromfile('/etc/passwd', dtype='u1')",
    "map a file": "np.memmap('/etc/passwd')",
    "load a pickle": "np.load('/etc/passwd', allow_pickle=True)",
    "read its memory": "open('/proc/self/mem', 'rb')",
    "read its maps": "np.loadtxt('/proc/self/maps', dtype=str)",
    "write a file with pandas": "kept.to_csv('/tmp/plait-break-out.csv')",
    "write a file with numpy": "kept.a.to_numpy().tofile('/tmp/plait-break-out.bin')",
    "write up the folders": "kept.to_csv('../plait-break-out.csv')",
    "write over a package": "open(np.__file__, 'w')",
    "open an address": "pd.read_csv('http://127.0.0.1:9/x.csv')",
    "open a database": "pd.read_sql('select 1', 'sqlite:///x')",
    "start a process": "import subprocess\nsubprocess.run(['/bin/true'])",
    "start a thread": "import threading\nthreading.Thread(target=print).start()",
    "load a library": "np.ctypeslib.load_library('libc.so.6', '/lib/x86_64-linux-gnu')",
    "load another library": "np.ctypeslib.ctypes.CDLL('/usr/lib/x86_64-linux-gnu/libz.so.1')",
    "memory that runs": "import mmap\nmmap.mmap(-1, 4096, prot=7)",
    "all the memory": "np.ones(1 << 31)",
    "all the memory, in parts": "x = [np.ones(1 << 20) for _ in range(1 << 20)]",
    "a socket by number": "libc = np.ctypeslib.ctypes.CDLL(None)\nassert libc.syscall(41, 2, 1, 0) >= 0",
    "a file by number": "libc = np.ctypeslib.ctypes.CDLL(None)\nassert libc.syscall(257, -100, b'/etc/passwd', 0) >= 0",
    "a process by number": "libc = np.ctypeslib.ctypes.CDLL(None)\nassert libc.fork() >= 0",
}


@with_tables
@pytest.mark.asyncio(loop_scope="module")
async def test_packages_open_no_way_out(tables: ProcessSession) -> None:
    wrong = {}
    for what, code in ATTACKS.items():
        told = await whole(tables, code)
        if told.error is None or told.lost or told.error.type == "NameError":
            wrong[what] = told.error
    assert not wrong
    assert not list(Path("/tmp").glob("plait-break-out*"))
    assert (await whole(tables, "print(len(kept), os.environ)")).output.startswith("2 ")


@with_tables
@pytest.mark.asyncio(loop_scope="module")
async def test_the_clock_of_packages_is_that_of_the_piece(tables: ProcessSession) -> None:
    code = "print(pd.Timestamp.now() == datetime.now(), datetime.now().timestamp() == " + f"{NOW})"
    assert (await whole(tables, code)).output == "True True\n"


@with_tables
@pytest.mark.asyncio(loop_scope="module")
async def test_numbers_arrays_and_tables_pass_as_plain_values(tables: ProcessSession) -> None:
    given = "np.int64(3), np.array([[1.5]]), kept, kept.a, {'x': np.bool_(True)}, pd.Timestamp(0)"
    turn = await tables.run(f"tool({given})", NOW)
    assert turn.calls[0].args[:5] == (3, [[1.5]], [{"a": 1}, {"a": 2}], [1, 2], {"x": True})


@with_tables
@pytest.mark.asyncio(loop_scope="module")
async def test_a_table_and_written_files_leave_as_files_and_each_once(tables: ProcessSession) -> None:
    turn = await tables.run("kept.to_csv('t.csv', index=False)\nprint(pd.read_csv('t.csv').a.sum())\nkept", NOW)
    assert turn.output.startswith("3\n") and [name for name, _ in turn.files] == ["t.csv", "table-1.csv"]
    assert turn.files[0][1] == b"a\n1\n2\n"
    assert (await tables.run("print(os.path.exists('t.csv'))", NOW)).files == ()
    turn = await tables.run("open('x.txt', 'w').write('now')\ntool()", NOW)  # before a call, which may be stop()
    assert turn.calls and turn.files == (("x.txt", b"now"),)
    turn = await tables.run("open('big.bin', 'wb').write(bytes(9_000_000))", NOW)
    assert turn.files == () and "too much to keep it" in turn.output and not turn.lost


@with_charts
@pytest.mark.asyncio(loop_scope="module")
async def test_charts_leave_as_files_also_in_the_words_of_a_notebook(tables: ProcessSession) -> None:
    start = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1, 2])\nax.set_title('$x^2$')\n"
    turn = await tables.run(start + "plt.savefig('a.png')\nplt.savefig('a.svg')\nplt.savefig('a.pdf')\nplt.show()", NOW)
    assert turn.error is None
    found = dict(turn.files)
    assert list(found) == ["a.png", "a.svg", "a.pdf", "chart-1.png"] and found["a.png"].startswith(b"\x89PNG")
    turn = await tables.run(start + "fig", NOW)
    assert [name for name, _ in turn.files] == ["chart-2.png"]
    fonts = await whole(
        tables, "import matplotlib.font_manager as m\nprint({'mpl-data' in f.fname for f in m.fontManager.ttflist})"
    )
    assert fonts.output == "{True}\n"


@with_tables
async def test_a_session_made_again_draws_the_same_numbers() -> None:
    code = "import numpy as np\nprint(np.random.default_rng().random(), np.random.rand(), np.random.randint(99))"
    seen = []
    for _ in range(2):
        session = await opened("process:numpy", SETTINGS)
        seen.append((await whole(session, code)).output)
        await session.close()
    assert seen[0] == seen[1] and len(seen[0]) > 20


LIES = ("{'error': None, 'files': 7}", "{'error': None, 'files': [['x', '?']]}", "{'files': []}")


async def test_false_messages_about_files_cost_the_session_only(site: Path) -> None:
    find = (
        "import os, sys, json\n"
        "main = next(f for f in sys._current_frames().values() if f.f_code.co_name == '_until_back').f_back.f_back\n"
        "fd, request = main.f_locals['fd'], main.f_locals['request']\n"
        "def say(message):\n    data = json.dumps(message).encode()\n"
        "    os.write(fd, len(data).to_bytes(4, 'big') + request['number'].to_bytes(8, 'big') + data)\n"
    )
    session = await opened("process", Settings(limits=CodeLimits(seconds=3)))
    try:
        for lie in LIES:
            turn = await session.run(f"{find}say({lie})\nwhile True: pass", NOW)
            assert turn.lost and turn.files == (), lie
        turn = await session.run(
            find + "say({'error': None, 'files': [['../../.x\\n/y', 'YQ==']]})\nwhile 1: pass", NOW
        )
        assert turn.files == (("_.._.x__y", b"a"),)
    finally:
        await session.close()


# in a run


def agent(tmp_path: Path, *codes: str, **more: Any) -> plait.Agent:
    replies = [f" so.\nACTION {n}:\n```python\n{code}\n```" for n, code in enumerate(codes, 1)]
    return plait.Agent("codeact", model=plait.Scripted(replies), journal=tmp_path / "journal.db", **more)


def test_a_run_keeps_the_files_of_its_code_and_the_model_is_told(tmp_path: Path, site: Path) -> None:
    codes = (
        "import maker\nopen('r.csv', 'w').write('a\\n1\\n')",
        "open('p.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n')\nstop(1)",
    )
    one = agent(tmp_path, *codes, sandbox=plait.Process(packages=["maker"]))
    run = one.run("q")
    assert run.status == "answered", run.reason
    timeline = run.timeline
    kept = read_artifacts(timeline)
    assert {name: data.partition(b"\n")[2] for name, (_, data) in kept.items()} == {
        "file-1": b"a\n1\n",
        "file-2": b"\x89PNG\r\n\x1a\n",
    }
    asked = timeline.model_calls[1].request or b""
    assert b"file-1: <File r.csv, text/csv, 4 bytes>" in asked and b"these packages: maker." in asked
    assert timeline.code[-1].ran.attachments[0].media_type == "image/png"
    assert one.replay(run).whole
    assert agent(tmp_path, *codes).run("q").steps > 0  # without packages the import is refused, and nothing opens


def test_files_of_code_reach_a_tool_by_object_name_id_and_as_bytes_and_the_question_is_short(
    tmp_path: Path, site: Path
) -> None:
    got: list[Any] = []

    @plait.tool
    def publish(chart: plait.File | None, title: str) -> str:
        """Publish a chart."""
        got.append((chart.name if chart else None, chart.data if chart else None, title))
        return "done"

    @plait.tool
    def upload(data: bytes) -> str:
        """Upload bytes."""
        got.append(data)
        return "done"

    png = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
    codes = (
        "import maker\nf = open('p.png', 'wb')\nf.write(bytes.fromhex('89504e470d0a1a0a') + bytes(range(256)) * 20)\n"
        "print(publish(f, 'p.png'))",  # the title stays a text
        "publish('p.png', 'name')\npublish('file-1', 'id')\npublish(None, 'none')",
        "upload('p.png')\nupload(open('p.png', 'rb'))\nupload(open('p.png', 'rb').read())\nupload(b'plain')",
        "open('p.png', 'wb').write(b'new')\npublish('p.png', 'last')\npublish('x.png', 'none')",
        "stop('end')",
    )
    asked: list[str] = []
    limits = plait.Limits(code=CodeLimits(seconds=9))
    options: dict[str, Any] = {"tools": [publish, upload], "approve": "effects", "limits": limits}
    one = agent(tmp_path, *codes, sandbox=plait.Process(packages=["maker"]), **options)
    waiting = one.run("q")
    while waiting.status == "waiting":  # each piece runs again in a session that is made anew
        asked.append(waiting.reason or "")
        waiting = one.resume(waiting, "yes")
    assert waiting.answer == "end", waiting.reason
    files = [("p.png", png, title) for title in ("p.png", "name", "id")] + [(None, None, "none")]
    assert got == [*files, png, png, png, b"plain", ("p.png", b"new", "last")]
    assert all(len(each) < 200 for each in asked)
    assert asked[4:7] == ['May \'upload\' be called with {"data":"<5,128 bytes (image/png)>"}?'] * 3
    assert asked[7] == 'May \'upload\' be called with {"data":"plain"}?'
    (error,) = (each.ran.error for each in waiting.timeline.code if each.ran.error is not None)
    assert "such as file-1 or null, and the run has none with the id or name 'x.png'" in error.message
    exact = [call.call.input["data"] for call in waiting.timeline.tool_calls if call.call.tool == "upload"]
    assert exact[0] == exact[2] == png.decode("utf-8", "backslashreplace")  # the record has all of it
    assert one.replay(waiting).whole


def test_a_figure_reaches_a_tool_as_a_file_and_as_bytes(tmp_path: Path, site: Path) -> None:
    got: list[bytes] = []

    @plait.tool
    def publish(chart: plait.File, data: bytes) -> str:
        """Publish a chart."""
        got.extend((chart.data, data))
        return chart.name

    figure = "class Figure:\n    def savefig(self, out, format):\n        out.write(b'\\x89PNG\\r\\n\\x1a\\n drawn')\n"
    install(site, "matplotlib", {"matplotlib/__init__.py": "", "matplotlib/figure.py": figure})
    find_packages.cache_clear()
    code = "from matplotlib.figure import Figure\nstop(publish(Figure(), Figure()))"
    run = agent(tmp_path, code, tools=[publish], sandbox=plait.Process(packages=["matplotlib"])).run("q")
    assert run.answer == "chart-1.png" and got == [b"\x89PNG\r\n\x1a\n drawn"] * 2


SLOW = "y = 2\nx.append(1)\nprint(tool_time())\nwhile True:\n    pass"
UNDO = ("x = [0]", "x.append(tool_time())", SLOW, "stop([x, 'y' in globals()])")


@pytest.mark.parametrize("name", ["process", "monty"])
def test_a_piece_that_exceeds_its_time_is_undone_in_the_run_and_when_it_is_resumed(tmp_path: Path, name: str) -> None:
    made = []

    @plait.tool
    def tool_time() -> int:
        """A number."""
        made.append(1)
        return len(made)

    @plait.tool
    def send(text: str) -> str:
        """Send."""
        return "sent"

    limits = plait.Limits(code=CodeLimits(seconds=1.0))
    codes = [code if name == "process" else code.replace(", 'y' in globals()", ", False") for code in UNDO]
    codes = [*codes[:3], "x.append(send('a'))", codes[3]]
    options: dict[str, Any] = {"tools": [tool_time, send], "limits": limits, "sandbox": name, "approve": "effects"}
    waiting = agent(tmp_path, *codes, **options).run("q")
    while waiting.status == "waiting":
        waiting = agent(tmp_path, *codes, **options).resume(waiting, "yes")
    assert (waiting.status, waiting.answer) == ("answered", '[[0, 1, "sent"], false]'), waiting.reason
    assert len(made) == 2  # no tool was called again
    ended = next(each.ran for each in waiting.timeline.code if each.ran.error is not None)
    assert (ended.lost, ended.undone) == (False, name == "process")


def test_a_session_that_does_not_come_back_as_it_was_is_lost_and_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plait.runtime.performers.run_code import RunCode

    async def differs(*_: Any) -> bool:
        return False

    monkeypatch.setattr(RunCode, "_runs_alike", differs)
    limits = plait.Limits(code=CodeLimits(seconds=0.5))
    run = agent(tmp_path, "x = 1", "while True: pass", "stop('x' in globals())", limits=limits, sandbox="process").run(
        "q"
    )
    assert run.answer == "false"
    assert [each.ran.lost for each in run.timeline.code] == [False, True, False]
    assert b"all variables are gone" in (run.timeline.model_calls[2].request or b"")


# who may name packages


def test_only_an_agent_that_names_the_packages_goes_on_with_them(tmp_path: Path, site: Path) -> None:
    @plait.tool
    def send(text: str) -> None:
        """Send."""

    codes = ("import maker\nsend('a')", "stop(maker.help())")
    options: dict[str, Any] = {"tools": [send], "approve": "effects"}
    named = agent(tmp_path, *codes, sandbox="process:maker", **options)
    waiting = named.run("q")
    assert waiting.status == "waiting"
    for less in ("auto", "process", "monty"):
        with pytest.raises(ConfigError, match="packages that this agent does not name: maker"):
            agent(tmp_path, *codes, sandbox=less, **options).resume(waiting, "yes")
    assert named.resume(waiting, "yes").answer == "helped"


def test_a_foreign_configuration_names_no_packages(tmp_path: Path) -> None:
    foreign = {"run": {"sandbox": "process:pandas"}, "agents": {"a": {"sandbox": "process:numpy"}}}
    assert sorted(risks(foreign, {}, tmp_path)) == [
        "import the packages numpy for code (agents.a)",
        "import the packages pandas for code (run)",
    ]
    assert not list(risks({"run": {"sandbox": "process"}}, {}, tmp_path))


def test_a_foreign_journal_names_no_packages(tmp_path: Path, site: Path) -> None:
    from plait.runtime.agents.agent_description import fields_in

    run = agent(tmp_path, "stop(1)", sandbox="process:maker").run("q")
    head = Journal.at(tmp_path / "journal.db").run(run.id).head
    assert head.settings["sandbox"] == "process:maker" and list(head.settings["modules"]) == ["maker"]
    assert fields_in(head, load_code=False)["sandbox"] == "auto"
    assert fields_in(head)["sandbox"] == "process:maker"  # from the user's own journal, as its tools


# time zones, and the list of docs/sandbox.md


@pytest.mark.parametrize("key", ["Europe/Paris", "America/New_York", "UTC"])
async def test_time_zones_are_there_without_files(key: str) -> None:
    session = await opened("process", SETTINGS)
    try:
        code = f"from zoneinfo import ZoneInfo\nprint(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('{key}')).isoformat())"
        offset = {"Europe/Paris": "+02:00", "America/New_York": "-04:00", "UTC": "+00:00"}[key]
        assert (await whole(session, code)).output == f"2024-07-01T12:00:00{offset}\n"
        error = (await whole(session, "ZoneInfo('../../etc/passwd')")).error
        assert error is not None and error.type in ("ZoneInfoNotFoundError", "ValueError")
    finally:
        await session.close()


@pytest.mark.parametrize("name", ["process", "monty"])
async def test_the_documented_modules_are_those_that_can_be_imported(name: str) -> None:
    page = (Path(__file__).parent.parent / "docs" / "sandbox.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| imports in `{name}` |"))
    listed = set(row.split("|")[2].replace("`", "").replace(",", " ").split())
    session = await opened(name, SETTINGS)
    able = set()
    for module in sorted(MODULES - {"__future__"}):
        if (await whole(session, f"import {module}")).error is None:
            able.add(module)
    await session.close()
    assert listed == able
