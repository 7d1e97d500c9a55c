"""Which calls of a piece of code are awaited, told from the code alone."""

from __future__ import annotations

from conftest import for_each
from plait.sandbox.awaited import awaited_calls

CODES = {
    # the names that begin with a are awaited, those that begin with p are plain
    "an await": "x = await a1(p1(2))",
    "a plain call": "x = p1(1)\ny = p2(x)\nprint(p3(y))",
    "gathered in place": "r = await asyncio.gather(a1(1), a2(p1(2)))",
    "gathered from a list": "ts = [a1(x) for x in p1(3)]\nr = await asyncio.gather(*ts)",
    "gathered from names": "one = a1(1)\ntwo = a2(2)\nprint(await asyncio.gather(one, two))",
    "awaited by name": "one = a1(1)\ntwo = a2(2)\nprint(await one, await two)",
    "appended": "ts = []\nfor x in xs:\n    ts.append(a1(x))\nts += [a2(1)]\nr = await asyncio.gather(*ts)",
    "a dict": "d = {k: a1(k) for k in ks}\nd['x'] = a2(1)\nawait asyncio.gather(*d.values())",
    "a loop over a dict": "d = {k: a1(k) for k in ks}\nfor k, t in d.items():\n    print(k, await t)",
    "awaited in a comprehension": "ts = [a1(x) for x in xs]\nr = [await t for t in ts]",
    "a task": "t = asyncio.create_task(a1(1))\nprint(p1(2))\nawait t",
    "a group": "async with asyncio.TaskGroup() as tg:\n    t = tg.create_task(a1(1))\nprint(t.result())",
    "a time limit": "n = p1(1)\nawait asyncio.wait_for(a1(2), n)",
    "a name used again": "r = p1(1)\nprint(r)\nr = a1(2)\nprint(await r)",
    "one of two branches": "if x:\n    r = a1(1)\nelse:\n    r = a2(2)\nawait r",
    "a branch that replaces": "r = a1(1)\nif x:\n    r = a2(2)\nawait r",
    "a tuple": "one, two = a1(1), a2(2)\nthree, four = p1(3)\nawait asyncio.gather(one, two)",
    "returned by an async function": "async def f(x):\n    return a1(x)\nprint(await asyncio.gather(f(1), f(2)))",
    "plain in an async function": "async def f(x):\n    v = p1(x)\n    return v['name']\nprint(await f(1))",
    "made by a function": "def make(n):\n    return a1(n)\nprint(await asyncio.gather(make(1), make(2)))",
    "a function's own plain call": "def get(n):\n    return p1(n)\nprint(get(1))",
    "a parameter": "async def use(f, n):\n    return await f(n)\nprint(await asyncio.gather(use(tool, 1)))",
    "after the main that uses it": "async def main():\n    x = p1(1)\n    y = await a1(x)\nasyncio.run(main())",
    "an argument's element": "r = p1(1)\nz = (await asyncio.gather(*[a1(i) for i in r]))[0]",
    "no code": "x = = (",
}


@for_each("code", CODES.values())
def test_a_call_is_awaited_where_its_value_gets_to_an_await(code: str) -> None:
    lines = code.encode().splitlines()
    names = {lines[line - 1][column:].split(b"(")[0].decode() for line, column in awaited_calls(code)}
    written = {name for name in ("a1", "a2") if name + "(" in code}
    assert {name for name in names if name[0] in "ap" and name[1:].isdigit()} == written


def test_columns_are_counted_in_bytes() -> None:
    assert awaited_calls("x = 'äöü'; await tool(1)") == {(1, len("x = 'äöü'; await ".encode()))}
