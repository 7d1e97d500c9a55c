"""What every sandbox must do, asked of each backend."""

from __future__ import annotations

import asyncio
import datetime
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from conftest import for_each
from patience import patience
from plait.core.artifacts import ArtifactHandle
from plait.core.code import CodeLimits
from plait.core.errors import ConfigError
from plait.sandbox import OutCall, Result, SandboxSession, Settings, sandbox
from sandbox_support import BACKENDS, NOW, backend, opened, whole

Open = Callable[..., Awaitable[SandboxSession]]
TOOLS = frozenset({"tool", "other", "get", "take", "stop"})


@pytest.fixture(params=BACKENDS)
def name(request: pytest.FixtureRequest) -> str:
    backend(request.param)
    return str(request.param)


@pytest_asyncio.fixture
async def open_(name: str) -> AsyncIterator[Open]:
    """Opens sessions, and closes them when the test is over."""
    sessions: list[SandboxSession] = []

    async def make(functions: frozenset[str] = TOOLS, seed: int = 0, **limits: Any) -> SandboxSession:
        sessions.append(await opened(name, Settings(functions, CodeLimits(**limits), seed)))
        return sessions[-1]

    yield make
    for session in sessions:
        await session.close()


@pytest_asyncio.fixture
async def session(open_: Open) -> SandboxSession:
    return await open_()


# a namespace


async def test_names_are_kept_from_piece_to_piece(session: SandboxSession) -> None:
    assert (await whole(session, "x = 2\ndef twice(n):\n    return 2 * n")).turns[0].error is None
    assert (await whole(session, "print(twice(x))\nprint('end')")).output == "4\nend\n"


async def test_the_value_of_a_last_expression_is_not_printed(session: SandboxSession) -> None:
    assert (await whole(session, "1 + 1")).output == ""


async def test_the_names_of_the_prelude_are_there(session: SandboxSession) -> None:
    code = (
        "print(math.floor(2.5), json.dumps([1]), bool(re.match('a+', 'aa')))\n"
        "print(date(2024, 2, 29) + timedelta(days=1), datetime(2024, 1, 2, 3, 4).isoformat(), time(5, 6))\n"
        "print(asyncio.gather is not None)"
    )
    assert (await whole(session, code)).output == "2 [1] True\n2024-03-01 2024-01-02T03:04:00 05:06:00\nTrue\n"


async def test_stderr_is_output_too(session: SandboxSession) -> None:
    assert (await whole(session, "import sys\nprint('one')\nprint('two', file=sys.stderr)")).output == "one\ntwo\n"


async def test_names_made_before_an_error_are_kept(session: SandboxSession) -> None:
    assert (await whole(session, "a = 1\n1 / 0\nb = 2")).error is not None
    assert (await whole(session, "print(a)")).output == "1\n"
    assert (await whole(session, "print(b)")).error is not None


# calls


async def test_a_plain_call_comes_out_and_goes_on_with_what_it_gave(session: SandboxSession) -> None:
    turn = await session.run("print('before')\nx = tool(3, unit='m')\nprint(x + 1)", NOW)
    assert (turn.output, turn.calls, turn.error) == ("before\n", (OutCall("tool", (3,), {"unit": "m"}),), None)
    turn = await session.go_on([Result(41)])
    assert (turn.output, turn.calls, turn.error) == ("42\n", (), None)


async def test_plain_calls_come_out_one_at_a_time(session: SandboxSession) -> None:
    told = await whole(session, "print(tool(1) + tool(2))\nprint([tool(i) for i in range(2)])", {"tool": lambda n: n})
    assert [len(calls) for calls in told.calls] == [1, 1, 1, 1]
    assert told.output == "3\n[0, 1]\n"


async def test_calls_inside_functions_of_the_code(session: SandboxSession) -> None:
    await whole(session, "def ask(n):\n    return tool(n) * 10")
    assert (await whole(session, "print(ask(2) + ask(3))", {"tool": lambda n: n})).output == "50\n"


VALUES: list[Any] = [
    None,
    True,
    -7,
    10**40,
    2.5,
    "Zürich \N{GRINNING FACE}",
    b"\x00\xff",
    [1, [2, "x"]],
    (1, (2,)),
    {"a": [1], 2: None},
    {1, 2, 3},
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30, 1, 5),
    datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    datetime.timedelta(days=2, seconds=3),
]


@for_each("value", VALUES)
async def test_a_value_goes_in_and_comes_out_as_it_was(session: SandboxSession, value: Any) -> None:
    await session.run("x = get()\ntake(x, [x], k={'in': x})", NOW)
    turn = await session.go_on([Result(value)])
    assert turn.calls == (OutCall("take", (value, [value]), {"k": {"in": value}}),)
    assert type(turn.calls[0].args[0]) is type(value)


async def test_what_a_call_raises_can_be_caught(session: SandboxSession) -> None:
    code = "try:\n    tool()\nexcept ValueError as e:\n    print('caught', e)\ntool()\nprint('never')"
    await session.run(code, NOW)
    turn = await session.go_on([Result(error="ValueError", message="no such city")])
    assert turn.output == "caught no such city\n"
    turn = await session.go_on([Result(error="ValueError", message="again")])
    assert turn.error is not None
    assert (turn.error.type, turn.error.message, turn.error.line) == ("ValueError", "again", 5)
    assert (turn.error.source.strip(), turn.output, turn.calls) == ("tool()", "", ())


async def test_an_exception_that_the_sandbox_does_not_know_is_raised_all_the_same(session: SandboxSession) -> None:
    code = "try:\n    tool()\nexcept Exception as e:\n    print(e)"
    await session.run(code, NOW)
    turn = await session.go_on([Result(error="SlackError", message="no such channel")])
    assert "no such channel" in turn.output and turn.error is None


async def test_a_call_of_a_name_that_is_not_defined_comes_out_too(session: SandboxSession) -> None:
    told = await whole(session, "x = wetter('Oslo')")
    assert told.calls == [[OutCall("wetter", ("Oslo",))]]
    assert told.error is not None and told.error.type == "NameError" and "wetter" in told.error.message


async def test_a_name_that_is_read_and_not_defined_is_a_name_error_with_its_line(session: SandboxSession) -> None:
    told = await whole(session, "x = 1\nprint(x + wetter)")
    assert told.calls == []
    assert told.error is not None
    assert (told.error.type, told.error.line, told.error.source) == ("NameError", 2, "print(x + wetter)")
    assert "wetter" in told.error.message


async def test_a_tool_may_have_another_name_and_be_passed_about(session: SandboxSession) -> None:
    code = "f = tool\nfs = {'a': tool}\ndef use(g, n):\n    return g(n)\nprint(f(1), fs['a'](2), use(tool, 3))"
    told = await whole(session, code, {"tool": lambda n: n * 10})
    assert told.output == "10 20 30\n"
    assert [calls[0].name for calls in told.calls] == ["tool"] * 3


async def test_a_name_of_the_codes_own_goes_before_a_tool(session: SandboxSession) -> None:
    told = await whole(session, "def tool(n):\n    return -n\nprint(tool(4))")
    assert (told.output, told.calls) == ("-4\n", [])


@pytest.mark.parametrize("what", ["lambda: 1", "Own()", "len", "json", "{'deep': [Own()]}"])
async def test_what_can_not_go_out_is_an_error_in_the_code(session: SandboxSession, what: str) -> None:
    code = f"class Own:\n    pass\ntry:\n    tool({what})\nexcept TypeError as e:\n    print('caught', e)"
    told = await whole(session, code, {"tool": lambda n: n})
    assert told.calls == []
    assert told.output.startswith("caught ") and told.error is None


# awaiting


async def test_an_awaited_call(session: SandboxSession) -> None:
    told = await whole(session, "x = await tool(3)\nprint(x)", {"tool": lambda n: n + 1})
    assert (told.output, told.calls) == ("4\n", [[OutCall("tool", (3,))]])


GATHERED = {
    "in place": "print(await asyncio.gather(tool(1), other(2), tool(3)))",
    "from a list": "jobs = [tool(1), other(2), tool(3)]\nprint(await asyncio.gather(*jobs))",
    "from names": "a = tool(1)\nb = other(2)\nc = tool(3)\nprint(list(await asyncio.gather(a, b, c)))",
    "appended": "jobs = []\njobs.append(tool(1))\njobs.append(other(2))\njobs += [tool(3)]\n"
    "print(await asyncio.gather(*jobs))",
    "in async functions": "async def one(f, n):\n    return await f(n)\n"
    "print(await asyncio.gather(one(tool, 1), one(other, 2), one(tool, 3)))",
    "made by a function": "def make(n):\n    return tool(n)\nprint(await asyncio.gather(make(1), other(2), make(3)))",
    "in an async main": "async def main():\n    r = await asyncio.gather(tool(1), other(2), tool(3))\n    print(r)\n"
    "await main()",
}


@pytest.mark.parametrize("code", GATHERED.values(), ids=GATHERED.keys())
async def test_calls_awaited_together_come_out_together(session: SandboxSession, code: str) -> None:
    told = await whole(session, code, {"tool": lambda n: n, "other": lambda n: n * 10})
    assert told.output == "[1, 20, 3]\n", told.error
    assert told.calls == [[OutCall("tool", (1,)), OutCall("other", (2,)), OutCall("tool", (3,))]]


async def test_gathering_a_comprehension(session: SandboxSession) -> None:
    code = "tasks = [tool(x) for x in range(4)]\nprint(await asyncio.gather(*tasks))"
    told = await whole(session, code, {"tool": lambda n: n * n})
    assert (told.output, [len(calls) for calls in told.calls]) == ("[0, 1, 4, 9]\n", [4])


async def test_awaiting_one_by_one_what_was_begun_before(session: SandboxSession) -> None:
    code = "a = tool(1)\nb = tool(2)\nprint(await a)\nprint(await b)"
    assert (await whole(session, code, {"tool": lambda n: n})).output == "1\n2\n"


async def test_one_of_several_that_fails_is_raised(session: SandboxSession) -> None:
    code = "try:\n    await asyncio.gather(tool(1), tool(2))\nexcept ValueError as e:\n    print('caught', e)"
    await session.run(code, NOW)
    turn = await session.go_on([Result(1), Result(error="ValueError", message="two")])
    assert (turn.output, turn.error) == ("caught two\n", None)


async def test_plain_and_awaited_calls_in_one_piece(session: SandboxSession) -> None:
    code = "n = tool(1)\nrows = await asyncio.gather(*[tool(n + i) for i in range(2)])\nprint(tool(sum(rows)))"
    told = await whole(session, code, {"tool": lambda n: n})
    assert (told.output, [len(calls) for calls in told.calls]) == ("3\n", [1, 2, 1])


# things


IMAGE = ArtifactHandle("image-1", "<Image 640x480 JPEG>")
OTHER = ArtifactHandle("image-2", "<Image 10x10 PNG>")


async def test_a_handle_is_a_value_with_a_short_repr_and_comes_back_as_itself(session: SandboxSession) -> None:
    code = "i = get()\nprint(i)\nprint([i], {'a': i}, f'{i}')\nstore = {'a': [i]}"
    assert (await session.run(code, NOW)).calls == (OutCall("get"),)
    turn = await session.go_on([Result(IMAGE)])
    assert turn.output == f"{IMAGE.about}\n[{IMAGE.about}] {{'a': {IMAGE.about}}} {IMAGE.about}\n"
    turn = await session.run("take(store['a'][0], [i])", NOW)
    assert turn.calls == (OutCall("take", (IMAGE, [IMAGE])),)


async def test_handles_nested_in_a_result(session: SandboxSession) -> None:
    await session.run("r = get()\ntake(r['images'][1], r['images'][0])", NOW)
    turn = await session.go_on([Result({"images": [IMAGE, OTHER]})])
    assert turn.calls == (OutCall("take", (OTHER, IMAGE)),)


async def test_a_handle_in_a_text_is_its_words(session: SandboxSession) -> None:
    await session.run("i = get()\ntake(f'see {i}!')", NOW)
    assert (await session.go_on([Result(IMAGE)])).calls[0].args == (f"see {IMAGE.about}!",)


@pytest.mark.parametrize("use", ["i.width", "i.resize(2)", "i['width']", "len(i)", "i + 1"])
async def test_a_handle_has_nothing_inside(session: SandboxSession, use: str) -> None:
    await session.run(f"i = get()\n{use}", NOW)
    turn = await session.go_on([Result(IMAGE)])
    assert turn.error is not None and turn.calls == ()
    assert turn.error.type in ("AttributeError", "TypeError") and turn.error.line == 2
    assert turn.error.type == ("AttributeError" if "." in use else "TypeError")


TAMPER = (
    "i.id = 'image-2'",
    "i.about = 'image-2'",
    "i._id = 'image-2'",
    "setattr(i, 'id', 'image-2')",
    "i.__dict__['id'] = 'image-2'",
    "object.__setattr__(i, 'id', 'image-2')",
    "i.__class__ = dict",
    "i = type(i)('image-2', 'x')",
    "i = {'$thing': 'image-2', 'is': 'x'}",
)


@pytest.mark.parametrize("tamper", TAMPER)
async def test_no_handle_can_be_made_or_turned_into_another(session: SandboxSession, tamper: str) -> None:
    """The other thing is there, and its id is known: what comes out is the first, or no handle at all."""
    await session.run("i = get()\no = get()", NOW)
    await session.go_on([Result(IMAGE)])
    await session.go_on([Result(OTHER)])
    told = await whole(session, f"try:\n    {tamper}\nexcept BaseException as e:\n    print(type(e))")
    assert not told.lost
    turn = await session.run("take(i)", NOW)
    if turn.calls:
        (given,) = turn.calls[0].args
        assert given == IMAGE or not isinstance(given, ArtifactHandle)
    else:
        assert turn.error is not None


# errors


async def test_an_error_names_type_message_line_and_source(session: SandboxSession) -> None:
    told = await whole(session, "d = {}\nprint('here')\nx = d['key']\nprint('never')")
    assert told.output == "here\n"
    error = told.error
    assert error is not None
    assert (error.type, error.line, error.source, error.limit) == ("KeyError", 3, "x = d['key']", "")
    assert "key" in error.message


async def test_an_error_inside_a_function_of_an_earlier_piece_has_the_line_of_the_call(session: SandboxSession) -> None:
    await whole(session, "def f(n):\n    y = 1\n    return n / 0")
    error = (await whole(session, "a = 1\nf(a)")).error
    assert error is not None and (error.type, error.line, error.source) == ("ZeroDivisionError", 2, "f(a)")


async def test_a_syntax_error_has_its_line_and_runs_nothing(session: SandboxSession) -> None:
    told = await whole(session, "print('one')\nx = = 2")
    error = told.error
    assert told.output == "" and error is not None
    assert (error.type, error.line, error.source) == ("SyntaxError", 2, "x = = 2")


async def test_a_module_that_is_not_there(session: SandboxSession) -> None:
    error = (await whole(session, "import no_such_module_at_all")).error
    assert error is not None and error.type in ("ModuleNotFoundError", "ImportError")
    assert "no_such_module_at_all" in error.message


async def test_the_session_goes_on_after_errors(session: SandboxSession) -> None:
    for code in ("1 / 0", "x = (", "nope", "raise ValueError('x')", "assert False", "raise SystemExit(3)"):
        told = await whole(session, code)
        assert told.error is not None and not told.lost, code
    assert (await whole(session, "print(1 + 1)")).output == "2\n"


async def test_a_message_of_any_length_is_cut(session: SandboxSession) -> None:
    error = (await whole(session, "raise ValueError('x' * 1000000)")).error
    assert error is not None and error.type == "ValueError"
    assert error.message.startswith("xxx") and len(error.message) < 10_000


# limits


async def test_running_too_long_ends_at_the_time_limit(open_: Open) -> None:
    session = await open_(seconds=0.4)
    began = time.monotonic()
    told = await whole(session, "kept = 1\nprint('on')\nwhile True:\n    pass")
    assert told.error is not None
    assert (told.error.type, told.error.limit, told.output) == ("TimeoutError", "time", "on\n")
    assert time.monotonic() - began < patience(30)
    assert (await whole(session, "print(1 + 1)")).output == "2\n"


SWALLOW = (
    "while True:\n    try:\n        while True:\n            pass\n    except:\n        pass",
    "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "def f():\n    try:\n        while True:\n            pass\n    finally:\n        f()\nf()",
    "try:\n    while True:\n        pass\nfinally:\n    while True:\n        pass",
    "try:\n    while True:\n        pass\nexcept BaseException:\n    print('outlived')",
)


@pytest.mark.parametrize("code", SWALLOW)
async def test_no_except_and_no_finally_outlives_the_time_limit(open_: Open, code: str) -> None:
    session = await open_(seconds=0.3)
    told = await whole(session, code)
    assert told.error is not None and told.error.limit == "time"
    assert "outlived" not in told.output
    assert (await whole(session, "print(1 + 1)")).output == "2\n"


async def test_waiting_for_a_call_is_not_its_own_running(open_: Open) -> None:
    session = await open_(seconds=2)
    await session.run("x = tool()\nprint(x)", NOW)
    await asyncio.sleep(2.5)
    turn = await session.go_on([Result(1)])
    assert (turn.output, turn.error) == ("1\n", None)
    assert 0 <= turn.seconds < 2


async def test_the_time_limit_is_for_the_whole_piece_calls_between(open_: Open) -> None:
    session = await open_(seconds=0.4)
    told = await whole(session, "n = 0\nwhile True:\n    n += 1\n    if n % 50000 == 0:\n        tool()", {"tool": int})
    assert told.error is not None and told.error.limit in ("time", "tool_calls")


async def test_sleeping_takes_no_time_and_counts(open_: Open) -> None:
    session = await open_(seconds=5)
    began = time.monotonic()
    told = await whole(session, "from time import sleep\nsleep(3)\nawait asyncio.sleep(1)\nprint('awake')")
    assert (told.output, told.error) == ("awake\n", None)
    told = await whole(session, "from time import sleep\nsleep(300)\nprint('awake')")
    assert told.error is not None and (told.error.limit, told.output) == ("time", "")
    assert time.monotonic() - began < patience(30)


async def test_the_memory_limit(open_: Open) -> None:
    session = await open_(memory_mb=64, seconds=10)
    told = await whole(session, "x = []\nwhile True:\n    x.append('y' * 1000000 + str(len(x)))")
    assert told.error is not None
    assert (told.error.type, told.error.limit) == ("MemoryError", "memory")
    assert (await whole(session, "print(1 + 1)")).output == "2\n"


async def test_the_recursion_limit(open_: Open) -> None:
    session = await open_(recursion=50)
    await whole(session, "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)")
    assert (await whole(session, "print(f(30))")).output == "30\n"
    told = await whole(session, "f(80)")
    assert told.error is not None
    assert (told.error.type, told.error.limit, told.lost) == ("RecursionError", "recursion", False)


async def test_output_beyond_its_limit_is_cut_with_a_note(open_: Open) -> None:
    session = await open_(output_chars=1000)
    told = await whole(session, "print('x' * 1500)\nprint('end')")
    assert told.error is None
    assert told.output.startswith("x" * 1000) and "end" not in told.output
    assert "505" in told.output and len(told.output) < 1200
    assert (await whole(session, "print('short')")).output == "short\n"


async def test_a_flood_of_output_ends_the_piece(open_: Open) -> None:
    session = await open_(output_chars=1000, seconds=5)
    told = await whole(session, "while True:\n    print('y' * 1000)")
    assert told.error is not None and told.error.limit in ("output", "time")
    assert told.output.startswith("y" * 999) and len(told.output) < 1300


async def test_the_limit_of_calls(open_: Open) -> None:
    session = await open_(tool_calls=3)
    code = "before = 1\nwhile True:\n    try:\n        tool()\n    except:\n        pass"
    told = await whole(session, code, {"tool": int})
    assert len(told.calls) == 3
    assert told.error is not None and (told.error.limit, told.error.line) == ("tool_calls", 4)
    assert (await whole(session, "tool()\nprint('again')", {"tool": int})).output == "again\n"


async def test_the_limit_of_calls_holds_for_those_made_together(open_: Open) -> None:
    session = await open_(tool_calls=3)
    told = await whole(session, "await asyncio.gather(*[tool(i) for i in range(5)])", {"tool": int})
    assert sum(len(calls) for calls in told.calls) <= 3
    assert told.error is not None and told.error.limit == "tool_calls"


# giving up


async def test_a_call_that_is_never_answered_lets_nothing_more_run(session: SandboxSession) -> None:
    code = "try:\n    stop()\nexcept BaseException:\n    print('swallowed')\nfinally:\n    tool('finally')\nprint('on')"
    turn = await session.run(code, NOW)
    assert turn.calls == (OutCall("stop"),)
    told = await whole(session, "print('next')")
    assert (told.output, told.calls) == ("next\n", [])


async def test_a_piece_given_up_leaves_the_names_of_earlier_pieces(session: SandboxSession) -> None:
    await whole(session, "a = 1")
    await session.run("b = 2\ntool()\nc = 3", NOW)
    assert (await whole(session, "print(a, b)")).output == "1 2\n"
    assert (await whole(session, "print(c)")).error is not None


async def test_a_piece_given_up_while_several_are_awaited(session: SandboxSession) -> None:
    await whole(session, "a = 1")
    code = "try:\n    await asyncio.gather(tool(1), tool(2))\nexcept BaseException:\n    pass\nprint('on')"
    turn = await session.run(code, NOW)
    assert len(turn.calls) == 2
    assert (await whole(session, "print(a)")).output == "1\n"


async def test_handles_outlive_a_piece_that_is_given_up(session: SandboxSession) -> None:
    await session.run("i = get()", NOW)
    await session.go_on([Result(IMAGE)])
    await session.run("try:\n    tool()\nexcept BaseException:\n    pass", NOW)
    assert (await whole(session, "print(i)")).output == IMAGE.about + "\n"
    assert (await session.run("take(i)", NOW)).calls == (OutCall("take", (IMAGE,)),)


async def test_going_on_with_nothing_that_waits_is_an_error_of_use(session: SandboxSession) -> None:
    with pytest.raises(ConfigError):
        await session.go_on([Result(1)])
    await session.run("tool()", NOW)
    with pytest.raises(ConfigError):
        await session.go_on([])


# determinism


async def test_the_clock_says_now_all_the_while(session: SandboxSession) -> None:
    code = "import time as t\nprint(datetime.now() == get(), date.today(), t.time())\nprint(datetime.now().timestamp())"
    local = datetime.datetime.fromtimestamp(NOW)
    told = await whole(session, code, {"get": lambda: local})
    assert told.output == f"True {local.date()} {NOW}\n{NOW}\n"
    zone = await whole(session, "from datetime import timezone\nprint(datetime.now(timezone.utc).isoformat())")
    assert zone.output == datetime.datetime.fromtimestamp(NOW, datetime.UTC).isoformat() + "\n"


async def test_each_piece_has_its_own_now(session: SandboxSession) -> None:
    for now in (0.0, 86400.0 * 365, 1_700_000_000.0):
        told = await whole(session, "import time as t\nprint(t.time())", now=now)
        assert told.output == f"{now}\n"


async def test_random_numbers_follow_the_seed(open_: Open) -> None:
    code = "import random\nprint(random.random(), random.randint(1, 10**9), random.sample(range(1000), 5))"
    same = [(await whole(await open_(seed=7), code)).output for _ in range(2)]
    other = (await whole(await open_(seed=8), code)).output
    assert same[0] == same[1] != other


async def test_the_same_pieces_and_results_do_the_same(open_: Open) -> None:
    pieces = (
        "import random\ns = {'b', 'a', 'c'}\nprint(sorted(s), hash('a') == hash('a'), random.random())",
        "x = tool(random.randint(0, 99))\nprint(x, list(s), datetime.now())",
    )
    runs = []
    for _ in range(2):
        session = await open_(seed=3)
        told = [await whole(session, piece, {"tool": lambda n: n}) for piece in pieces]
        runs.append([(piece.output, piece.calls) for piece in told])
    assert runs[0] == runs[1]


# nothing of the machine


async def test_no_environment_no_files(session: SandboxSession, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CANARY", "coal mine")
    secret = tmp_path / "secret"
    secret.write_text("coal mine")
    for code in (
        f"print(open({str(secret)!r}).read())",
        "import os\nprint(os.environ)",
        "import os\nprint(os.getenv('PLAIT_CANARY'))",
        f"open({str(tmp_path / 'new')!r}, 'w').write('x')",
        f"from pathlib import Path\nprint(Path({str(secret)!r}).read_text())",
    ):
        assert "coal mine" not in (await whole(session, code)).output
    assert not (tmp_path / "new").exists()


# its life


async def test_closing_twice_and_while_a_piece_waits(open_: Open) -> None:
    session = await open_()
    await session.run("tool()", NOW)
    await session.close()
    await session.close()


async def test_closing_while_it_runs_ends_it(open_: Open) -> None:
    session = await open_(seconds=600)
    running = asyncio.ensure_future(session.run("while True:\n    pass", NOW))
    await asyncio.sleep(0.3)
    await asyncio.wait_for(session.close(), 30)
    turn = await asyncio.wait_for(running, 30)
    assert turn.error is not None and turn.lost


async def test_cancelling_a_run_ends_the_piece_and_the_session_goes_on_or_says_it_is_lost(open_: Open) -> None:
    session = await open_(seconds=600)
    await whole(session, "a = 1")
    running = asyncio.ensure_future(session.run("while True:\n    pass", NOW))
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    told = await whole(session, "print('on')")
    assert told.output == "on\n" or told.lost


async def test_sessions_know_nothing_of_each_other(open_: Open) -> None:
    one, two = await open_(), await open_()
    await whole(one, "secret = 1")
    assert (await whole(two, "print(secret)")).error is not None
    await one.close()
    three = await open_()
    assert (await whole(three, "print(secret)")).error is not None


async def test_many_sessions_at_once(open_: Open) -> None:
    sessions = await asyncio.gather(*(open_() for _ in range(12)))
    tools = {"tool": lambda n: n}
    told = await asyncio.gather(*(whole(s, f"x = tool({n})\nprint(x)", tools) for n, s in enumerate(sessions)))
    assert [one.output for one in told] == [f"{n}\n" for n in range(12)]


def test_sessions_in_several_event_loops_and_threads(name: str) -> None:
    said: list[str] = []

    async def one() -> None:
        session = await opened(name, Settings(TOOLS))
        said.append((await whole(session, "print(tool(2))", {"tool": lambda n: n})).output)
        await session.close()

    asyncio.run(one())
    asyncio.run(one())
    threads = [threading.Thread(target=lambda: asyncio.run(one())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said == ["2\n"] * 5


def test_an_unknown_sandbox_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"auto, process, monty"):
        sandbox("docker")


def test_names_are_as_they_are_chosen(name: str) -> None:
    assert backend(name).name == name
