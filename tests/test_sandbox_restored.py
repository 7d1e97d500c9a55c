"""A session that is restored does the same again, and shows nothing of the machine that it runs on."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

import plait
from plait.core import Answered, Call, LoopContext, LoopRun, OneKind, Ran, Splitter, Task, act, execute, go_on
from plait.runtime.performers.run_code import _without_addresses
from plait.sandbox import SandboxSession, Settings, sandbox
from sandbox_support import whole

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox needs Linux")


@pytest_asyncio.fixture
async def session() -> AsyncIterator[SandboxSession]:
    session = await sandbox("process").open(Settings(frozenset({"tool"})))
    yield session
    await session.close()


@dataclass(frozen=True)
class Pieces:
    """Runs its pieces of code one after the other; the answer is what they printed."""

    pieces: tuple[str, ...] = ()
    name: ClassVar[str] = "pieces"
    phases: ClassVar[tuple[str, ...]] = ()

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        said: list[str] = []
        for code in self.pieces:
            ran = yield from execute(code)
            said.append(ran.output)
            while not ran.done:
                ran = yield from go_on(*(yield from act(*ran.calls)))
                said.append(ran.output)
            if ran.error is not None:
                said.append(f"[{ran.error.type}: {ran.error.message}]\n")
        return Answered("".join(said))


SEES_ADDRESSES = """
import os, threading
class Thing: pass
things = [Thing(), Thing()]
send([id(things[0]), id([]), repr(things[1]), str(lambda: 1), os.getpid(), time.__name__])
print(len({*things, Thing, send}))
"""


def test_code_that_passes_addresses_to_a_tool_is_restored_after_a_crash(tmp_path: Path) -> None:
    sent: list[Any] = []

    def send(values: list[Any]) -> None:
        """Sends."""
        sent.append(values)

    def agent(approve: Any) -> plait.Agent:
        pieces = Pieces((SEES_ADDRESSES, "send([id(things[0]), repr(things[0])])\nprint('done')"))
        return plait.Agent(
            pieces,
            model=plait.Scripted([]),
            tools=[send],
            journal=tmp_path / "journal.db",
            sandbox="process",
            approve=approve,
        )

    waiting = agent("always").run("q")
    for _ in range(2):  # each answer is taken by a process that has to make the session again
        assert waiting.status == "waiting", waiting.reason
        waiting = agent("always").resume(waiting, "yes")
    assert (waiting.status, waiting.answer) == ("answered", "4\ndone\n")
    assert len(sent) == 2 and sent[0][0] == sent[1][0]


def test_a_call_with_a_default_repr_is_the_same_call_at_another_address() -> None:
    here, there = (Ran(calls=(Call("f", {"a": [f"<A object at 0x7f{n}>", 1]}),)) for n in ("00a1", "ffb2"))
    other = Ran(calls=(Call("f", {"a": ["<B object at 0x7f00a1>", 1]}),))
    assert _without_addresses(here) == _without_addresses(there) != _without_addresses(other)


async def test_two_sessions_give_the_same_ids_addresses_and_orders() -> None:
    code = (
        "class A: pass\na = [A() for _ in range(9)]\n"
        "print([id(x) for x in a], a, set(a), {A, int, str, len}, hash(A()))"
    )
    seen = set()
    for _ in range(2):
        session = await sandbox("process").open(Settings())
        seen.add((await whole(session, code)).output)
        await session.close()
    if len(seen) > 1:  # a machine that lays out memory anew each time: then only the numbers of `id` are the same
        assert len({one.partition("]")[0] for one in seen}) == 1


async def test_id_tells_objects_apart_as_in_python(session: SandboxSession) -> None:
    code = (
        "a, b = [1], [1]\nc = a\nprint(id(a) == id(c), id(a) == id(b), id(None) == id(None), id(a) == id(a))\n"
        "seen = {id(x) for x in [a, b, c, 'text', 3.5]}\nprint(len(seen), type(id(a)) is int)\n"
        "first = id(a)\nkept = [[i] for i in range(3000)]\nnumbers = [id(x) for x in kept]\n"
        "print(len(set(numbers)), numbers == [id(x) for x in kept], id(a) == first)\n"
        "class A: pass\nprint(len({id(A()) for _ in range(50_000)}))\n"
        "for _ in range(60): id([0] * 1_000_000)\nprint('memory is free again')"
    )
    told = await whole(session, code)
    assert told.error is None
    assert told.output == ("True False True True\n4 True\n3000 True True\n50000\nmemory is free again\n")


LOOK = """
import gc, os, sys
marks = MARKS
found = set()
todo = [*gc.get_objects(), *sys.modules.values(), *vars(sys).values()]
seen = {id(one) for one in todo}
while todo:
    one = todo.pop()
    for part in (one, *gc.get_referents(one)):
        if isinstance(part, (str, bytes)):
            text = part if isinstance(part, str) else part.decode("latin1")
            if part is not marks and any(mark in text for mark in marks) and text not in marks:
                found.add(text[:200])
        elif type(part).__name__ in ("code", "tuple", "list", "dict", "frozenset") and id(part) not in seen:
            seen.add(id(part))
            todo.append(part)
print([text for text in found if "marks =" not in text])
"""


async def test_no_path_of_the_host_is_anywhere_in_the_interpreter(session: SandboxSession) -> None:
    import plait.sandbox

    marks = tuple({os.path.dirname(os.__file__), os.path.dirname(plait.sandbox.__file__), sys.prefix, sys.base_prefix})
    assert all(len(mark) > 4 for mark in marks)
    told = await whole(session, LOOK.replace("MARKS", repr(marks)))
    assert (told.output, told.error) == ("[]\n", None)


async def test_what_python_says_of_itself_is_neutral(session: SandboxSession) -> None:
    code = (
        "import sys, os, json, traceback\nprint(sys.orig_argv, sys.argv, repr(sys.executable), sys.path, sys.prefix)\n"
        "print(json.__file__, json.decoder.__spec__.origin, os.getpid())\n"
        "try:\n    json.loads('{')\nexcept ValueError:\n    print(traceback.format_exc())"
    )
    told = await whole(session, code)
    assert told.output.startswith(
        "[''] [''] '' [] /python\n/python/json/__init__.py /python/json/decoder.py 1\nTraceback"
    )
    assert 'File "/python/json/decoder.py", line' in told.output


async def test_classes_of_the_code_can_be_pickled_and_annotated(session: SandboxSession) -> None:
    code = (
        "import pickle, typing\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int'\n"
        "print(pickle.loads(pickle.dumps(P(3))), typing.get_type_hints(P))"
    )
    assert (await whole(session, code)).output == "P(x=3) {'x': <class 'int'>}\n"
