"""What all tests share: one thread for models, a journal for each test, the data beside the checkout."""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import pytest_asyncio
from _pytest.mark.structures import ParameterSet
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from browser import Browser

os.environ.setdefault("PLAIT_THREADS", "1")

# A job that a script starts in the background ignores Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Thousands of journals are written and deleted. In memory that takes half the time, where there is enough of it.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# `make test` tries the same few random examples each time. The campaign tries many others (see CONTRIBUTING.md).
settings.register_profile("plait", max_examples=10, deadline=None, derandomize=True, database=None)
settings.register_profile("campaign", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("campaign" if os.environ.get("PLAIT_CAMPAIGN") else "plait")

CAMPAIGN = bool(os.environ.get("PLAIT_CAMPAIGN"))
"""Whether tests that can try more examples do so."""

T = TypeVar("T")
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_xdist_auto_num_workers() -> int:
    """Twice the cores: many tests wait for a process, a server or a browser."""
    return 2 * (os.cpu_count() or 1)


SLOW = (
    "window_pages",
    "lab_page",
    "sandbox",
    "lab_workers",
    "docs",
    "local_model",
    "responses",
    "long_runs",
    "mcp_client",
    "workers",
    "faults_cancel",
    "window_attackers",
    "sandbox_packages",
    "sandbox_process",
    "agent_on_profiles",
    "postgres",
    "service",
    "search_embedder",
    "window_local",
    "ag_ui",
    "run_as_test",
    "mcp_server",
    "tenants",
    "page_attacks",
    "spend_limits",
    "local_fetch",
    "regression",
    "cli_cancel",
    "formats_properties",
    "stores",
    "profiles",
    "window_process",
    "faults_endpoint",
    "toolkits_shell",
    "runtime_concurrency",
    "killed_after_each_row",
    "postgres_attacks",
    "lab_compare",
    "window_clients",
    "chat_page",
    "improve_pages",
    "deploy",
    "sandbox_values",
    "telemetry_otlp",
    "injections",
    "agent_settings",
    "cli_run",
    "window_inside",
    "codecs",
    "sessions",
    "golden_repl",
    "search_index",
    "executing",
    "scripted_turns",
    "hooks",
    "cli_plan",
    "faults_journal",
    "examples",
    "init_and_reload",
    "mcp_asks",
    "installation",
    "mcp_odd",
)
"""The files that take longest, in order."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests run in one process, as they share servers and browsers. So the longest files begin first."""
    order = {f"test_{name}.py": place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(item.path.name, len(SLOW)))


def pytest_collection() -> None:
    """Thousands of collected tests are never garbage: each full collection would look at all of them again."""
    gc.disable()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Let each process of xdist begin with a share of the files, so that they are compiled once, not by each of them.

    In a new checkout that is half of what collecting takes.
    """
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Dir) and collector.path == Path(__file__).parent:
        files = sorted(path.stem for path in collector.path.glob("test_*.py"))
        for name in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
            with suppress(Exception, pytest.skip.Exception):  # collecting it says so
                import_module(name)


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on no collection looks at the tests and modules, and a worker of xdist sends less."""
    gc.freeze()
    gc.enable()
    config = session.config
    if config.option.verbose < 0 and config.option.durations is None:
        for plugin in config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":
                plugin.sendevent = partial(_send_event, plugin.sendevent)


def _send_event(send: Callable[..., None], name: str, **event: Any) -> None:
    """Send what the output needs: the call of a test, and a setup or teardown that failed or was skipped.

    xdist sends six messages for each test, which cost more than most tests do. Two of them are enough.
    """
    if name in ("logstart", "logfinish"):
        return
    if name == "testreport" and event["data"]["outcome"] == "passed":
        if event["data"]["when"] != "call":
            return
        event["data"]["keywords"] = {}
    send(name, **event)


OWN = {"PLAIT_JOURNAL": "journal.db", "XDG_CONFIG_HOME": "own-config", "XDG_STATE_HOME": "own-state"}
"""Variables of the environment that name a file or folder of the test's own."""
UNSET = ("PLAIT_CONFIG", "PLAIT_MODEL", "PLAIT_LOOP", "OPENAI_API_KEY", "OPENAI_BASE_URL")


@pytest.fixture(autouse=True)
def _own_journal(tmp_path: Path) -> Iterator[None]:
    """No test touches the user's journal or configuration, and none leaves a journal open.

    This runs for thousands of tests, so it sets the variables by hand: `monkeypatch` takes longer.
    """
    before = {name: os.environ.pop(name, None) for name in (*OWN, *UNSET)}
    for name, own in OWN.items():
        os.environ[name] = f"{tmp_path}/{own}"
    _forget_configuration()
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _forget_configuration()
    if "plait.journal.sqlite.store" in sys.modules:
        from plait.journal.sqlite.store import SqliteStore
        from plait.journal.store import wait_for

        for path in [path for path in SqliteStore._shared if path.is_relative_to(tmp_path)]:
            wait_for(SqliteStore._shared.pop(path).close())


def _forget_configuration() -> None:
    """Forget which configuration file this process has been told to read."""
    if (config := sys.modules.get("plait.config")) is not None:
        vars(config).update(_named=None, _reads_folder=False)


@pytest_asyncio.fixture(loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A connection to the browser that all tests of this process share; its pages are closed after the test."""
    from browser import Browser

    async with Browser.shared() as connected:
        yield connected


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal file that is not there yet."""
    return tmp_path / "runs.db"


def examples(all_of_them: int) -> int:
    """How many examples a loop tries: one of 200, unless this is the campaign."""
    return all_of_them if CAMPAIGN else all_of_them // 200


def some_of(cases: Iterable[T], step: int = 3, first: int = 0) -> list[T]:
    """Return every `step`th case from the `first`, and all in the campaign. For what is long and tested elsewhere too.

    Tests that share cases begin at different ones, so that each case has some of the tests.
    """
    return list(cases) if CAMPAIGN else list(cases)[first::step]


def for_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Try all cases in one test, with arguments as for `pytest.mark.parametrize`; an error names its case.

    pytest needs 5 ms for each test. This is for many cases that need less, and no folder or other fixture of their own.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = []
    for case in cases:
        name, values = (case.id, case.values) if isinstance(case, ParameterSet) else (None, case)
        assert not (isinstance(case, ParameterSet) and case.marks), "a case cannot have marks of its own"
        values = (values,) if len(wanted) == 1 and values is case else values
        rows.append((name, dict(zip(wanted, values, strict=True))))
    assert rows, "there are no cases"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        def note(failure: BaseException, name: Any, given: dict[str, Any]) -> BaseException:
            failure.add_note(f"The case{f' {name}' if name else ''}: {given!r:.2000}")
            return failure

        def report(failures: list[BaseException]) -> None:
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} cases failed", failures)

        def each(**fixtures: Any) -> None:
            failures = []
            for name, given in rows:
                try:
                    test(**given, **fixtures)
                except (Exception, pytest.fail.Exception) as failure:
                    failures.append(note(failure, name, given))
            report(failures)

        async def each_awaited(**fixtures: Any) -> None:
            failures = []
            for name, given in rows:
                try:
                    await test(**given, **fixtures)
                except (Exception, pytest.fail.Exception) as failure:
                    failures.append(note(failure, name, given))
            report(failures)

        made = wraps(test)(each_awaited if inspect.iscoroutinefunction(test) else each)
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        made.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return made

    return decorate


only_in_campaign = pytest.mark.skipif(not CAMPAIGN, reason="part of `make campaign`")
"""For what takes long and is tested in small elsewhere."""

LOOKS = (
    [(width, dark) for width in (390, 768, 1600) for dark in (False, True)]
    if CAMPAIGN
    else [(1440, False), (390, True)]
)
"""Widths of a page and whether it is dark."""

LONG = 1 << 17 if CAMPAIGN else 1 << 14
"""Characters of a hostile text. A reader that needs quadratic time needs seconds for the shorter one as well."""


def data_file(*parts: str) -> Path:
    """A file of the development data; the test is skipped, loudly, where it is absent."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"NOT CHECKED: the development data {path} is absent")
    return path
