"""A tool has the parameters that its call really takes: behind decorators, in partials, with pydantic's defaults."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, TypeVar

import pydantic
import pytest
from pydantic import Field

import plait
from conftest import for_each
from plait.core.events import Observed
from plait.tools.docstrings import read_docstring

P = ParamSpec("P")
R = TypeVar("R")
SECRET = "sk-bound-4711"


def call(given: Any, input: Any, deps: Any = None) -> str:
    """Call a tool once in a run, and return what the model reads."""
    each = given if isinstance(given, plait.Tool) else plait.tool(name="tried")(given)
    script = [
        f'Thought: x\nAction:\n```\n{{"action": "{each.name}", "action_input": {json.dumps(input)}}}\n```',
        "Final Answer: x",
    ]
    agent = plait.Agent("react", model=plait.Scripted(script), tools=[each], deps=deps and type(deps), journal=False)
    (seen,) = (event.observation for event in agent.run("q", deps=deps).events if isinstance(event, Observed))
    return seen.text


def send(text: str, loud: bool = False, times: int = 1) -> str:
    """Send a text."""
    return repr((text, loud, times))


def passing(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return inner


def fixed(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def inner(text: str) -> str:
        return function(text, True, 3)

    return inner


def adding(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def inner(*args: Any, retries: int, **kwargs: Any) -> str:
        return f"{retries} {function(*args, **kwargs)}"

    return inner


def with_context(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def inner(ctx: plait.Context[str], *args: Any, **kwargs: Any) -> str:
        return f"{ctx.deps} {function(*args, **kwargs)}"

    return inner


def only_in_order(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def inner(*args: Any) -> str:
        return function(*args)

    return inner


def only_by_name(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def inner(**kwargs: Any) -> str:
        return function(**kwargs)

    return inner


def shown(function: Callable[..., str]) -> Callable[..., str]:
    """A decorator that says itself what it takes."""

    def inner(**kwargs: Any) -> str:
        return function(text="shown", **kwargs)

    python = inspect.signature(function)
    inner.__signature__ = python.replace(parameters=list(python.parameters.values())[1:])  # type: ignore[attr-defined]
    return inner


def awaited(function: Callable[..., str]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        async def later() -> str:
            await asyncio.sleep(0)
            return function(*args, **kwargs)

        return later()

    return inner


@contextlib.contextmanager
def surrounding() -> Any:
    yield


class Sender:
    """Sends texts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, text: str, times: int = 1) -> str:
        return repr((self.name, text, times))

    @passing
    def method(self, text: str, times: int = 1) -> str:
        """Send."""
        return repr((self.name, text, times))

    twice = functools.partialmethod(method, times=2)

    @staticmethod
    @passing
    def still(text: str) -> str:
        return text

    @classmethod
    def of_class(cls, text: str) -> str:
        return cls.__name__ + text


async def asynchronous(text: str, times: int = 1) -> str:
    return repr((text, times))


def in_order(text: str, /, *rest: int, loud: bool = False) -> str:
    return repr((text, rest, loud))


DECORATED: dict[str, tuple[Any, list[str], Any, str]] = {
    "passing": (passing(send), ["text", "loud", "times"], {"text": "a", "times": "2"}, "('a', False, 2)"),
    "passing twice": (passing(passing(send)), ["text", "loud", "times"], {"text": "a"}, "('a', False, 1)"),
    "fewer": (fixed(send), ["text"], {"text": "a"}, "('a', True, 3)"),
    "passing fewer": (passing(fixed(send)), ["text"], {"text": "a"}, "('a', True, 3)"),
    "one more": (
        adding(send),
        ["text", "loud", "times", "retries"],
        {"text": "a", "retries": "4"},
        "4 ('a', False, 1)",
    ),
    "in order": (only_in_order(send), ["text", "loud", "times"], {"text": "a", "times": 2}, "('a', False, 2)"),
    "by name": (only_by_name(send), ["text", "loud", "times"], {"text": "a", "times": 2}, "('a', False, 2)"),
    "__signature__": (shown(send), ["loud", "times"], {"times": 2}, "('shown', False, 2)"),
    "awaitable": (awaited(send), ["text", "loud", "times"], {"text": "a"}, "('a', False, 1)"),
    "ContextDecorator": (surrounding()(send), ["text", "loud", "times"], {"text": "a"}, "('a', False, 1)"),
    "lru_cache": (functools.lru_cache(send), ["text", "loud", "times"], {"text": "a"}, "('a', False, 1)"),
    "singledispatch": (functools.singledispatch(send), ["text", "loud", "times"], {"text": "a"}, "('a', False, 1)"),
    "validate_call": (pydantic.validate_call(send), ["text", "loud", "times"], {"text": "a"}, "('a', False, 1)"),
    "object": (Sender("S"), ["text", "times"], {"text": "a"}, "('S', 'a', 1)"),
    "method": (Sender("S").method, ["text", "times"], {"text": "a"}, "('S', 'a', 1)"),
    "partialmethod": (Sender("S").twice, ["text"], {"text": "a"}, "('S', 'a', 2)"),
    "static": (Sender("S").still, ["text"], {"text": "a"}, "a"),
    "class method": (Sender.of_class, ["text"], {"text": "a"}, "Sendera"),
    "partial, by name": (functools.partial(send, loud=True), ["text", "times"], {"text": "a"}, "('a', True, 1)"),
    "partial, in order": (functools.partial(send, "b"), ["loud", "times"], {"loud": "yes"}, "('b', True, 1)"),
    "partial of a partial": (
        functools.partial(functools.partial(send, times=2), "b"),
        ["loud"],
        {"loud": True},
        "('b', True, 2)",
    ),
    "partial of a decorator": (functools.partial(passing(send), loud=True), ["text", "times"], "a", "('a', True, 1)"),
    "decorated partial": (passing(functools.partial(send, loud=True)), ["text", "times"], "a", "('a', True, 1)"),
    "partial of an object": (functools.partial(Sender("S"), times=3), ["text"], "a", "('S', 'a', 3)"),
    "partial of a tool": (functools.partial(plait.tool(send), loud=True), ["text", "times"], "a", "('a', True, 1)"),
    "partial, async": (functools.partial(asynchronous, times=3), ["text"], "a", "('a', 3)"),
    "partial with * names": (
        functools.partial(in_order, "b", loud=True),
        ["rest"],
        {"rest": [1, 2]},
        "('b', (1, 2), True)",
    ),
    "* names": (
        passing(in_order),
        ["text", "rest", "loud"],
        {"text": "a", "rest": [1]},
        "('a', (1,), False)",
    ),
}


@for_each("case", DECORATED)
def test_the_model_sees_the_parameters_that_the_call_takes(case: str) -> None:
    function, names, given, result = DECORATED[case]
    each = plait.tool(name="tried", read_only=True)(function)
    assert list(each.spec.parameters["properties"]) == names
    assert call(each, given) == result
    assert "there is no parameter" in call(each, {"text": "a", "loud": True, "times": 2, "retries": 1, "user": "eve"})


def test_a_decorator_may_take_the_context_before_the_functions_own_parameters() -> None:
    each = plait.tool(name="tried")(with_context(send))
    assert list(each.spec.parameters["properties"]) == ["text", "loud", "times"]
    assert call(each, {"text": "a"}, deps="Ann") == "Ann ('a', False, 1)"


def test_types_come_from_the_decorator_where_it_has_its_own_parameter() -> None:
    properties = plait.tool(adding(send)).spec.parameters["properties"]
    assert properties["retries"] == {"type": "integer"} and properties["times"] == {"type": "integer", "default": 1}


def tenant(status: str, user: int = 0, token: str = "", **more: str) -> str:
    """Orders of a user.

    Args:
        status: Which orders.
        token: The key of the user.
    """
    return f"{status} {user} {len(token)} {sorted(more)}"


@for_each("loop", ["react", "json", "tool_calling", "codeact", "rewoo", "phased", "compiler"])
def test_a_bound_secret_is_nowhere_in_what_the_model_reads(loop: str) -> None:
    bound = functools.partial(tenant, user=7, token=SECRET)
    agent = plait.Agent(loop, model=plait.Scripted(["no"] * 9, by_turn=False), tools=[bound], journal=False)
    run = agent.run("q")
    sent = b"".join(each.request for each in run.timeline.model_calls)
    assert b"tenant" in sent and SECRET.encode() not in sent and b"The key of the user" not in sent
    checked = agent.using(output=plait.OutputType(str, checks=[functools.partial(send, SECRET)]))
    assert SECRET not in f"{agent!r} {agent.specs} {plait.tool(bound)!r} {run!r} {checked!r}"


@pytest.mark.parametrize("name", ["user", "token"])
def test_a_bound_value_cannot_be_given_even_to_a_function_that_takes_other_names(name: str) -> None:
    bound = functools.partial(tenant, user=7, token=SECRET)
    assert call(bound, {"status": "open", "page": "2"}) == "open 7 13 ['page']"
    refused = call(bound, {"status": "open", name: "8"})
    assert refused.startswith(f"tried: there is no parameter '{name}'.") and SECRET not in refused


def test_a_partial_that_cannot_be_called_is_refused_without_its_values() -> None:
    with pytest.raises(plait.ConfigError, match="arguments that it does not take") as caught:
        _ = plait.tool(functools.partial(send, 1, 2, 3, SECRET)).spec
    assert SECRET not in str(caught.value)
    for bad in (
        lambda: plait.Agent("react", tools=functools.partial(send, SECRET)),
        lambda: plait.OutputType(str, checks=[functools.partial(asynchronous, SECRET)]),
    ):
        with pytest.raises(plait.ConfigError, match=r"partial\(<function|'asynchronous'") as refused:
            bad()
        assert SECRET not in str(refused.value)


class Fancy(pydantic.BaseModel):
    tags: list[str] = Field(default_factory=lambda: ["new"])


def defaults(
    q: str,
    note: str = Field("none", description="A note."),
    flag: bool = Field(False),
    tags: list[str] = Field(default_factory=list),  # noqa: B008
    count: Annotated[int, Field(ge=1)] = 3,
    kept: Annotated[int, Field(default=5)] = 7,
    size: Annotated[int, Field(default=9, ge=1)] = Field(default=2),
    longer: str = Field(default_factory=lambda others: others["q"] * 2),
    fancy: Fancy = Field(default_factory=Fancy),  # noqa: B008
) -> str:
    return repr((q, note, flag, tags, count, kept, size, longer, fancy.tags))


def annotated(q: str, n: Annotated[int, Field(default=5)], m: Annotated[list[int], Field(default_factory=list)]) -> str:
    return repr((q, n, m))


def needed(q: str = Field(min_length=2), other: int = Field(...)) -> str:
    return repr((q, other))


@pytest.mark.filterwarnings("ignore:A 'default_factory'")
@pytest.mark.parametrize("wrap", [plait.tool(name="tried"), passing, functools.partial, only_in_order], ids="abcd")
def test_a_default_in_pydantics_field_reaches_the_function_as_its_value(wrap: Callable[..., Any]) -> None:
    assert call(wrap(defaults), {"q": "x"}) == "('x', 'none', False, [], 3, 7, 2, 'xx', ['new'])"
    assert call(wrap(annotated), {"q": "x"}) == "('x', 5, [])"
    assert "q, other are missing" in call(wrap(needed), {})


def test_a_factory_is_called_for_each_call_and_its_value_is_not_shown() -> None:
    numbers = iter(range(100))

    def stamp(text: str, id: int = Field(default_factory=lambda: next(numbers))) -> str:
        return f"{text} {id}"

    each = plait.tool(stamp)
    assert each.spec.parameters["properties"]["id"] == {"type": "integer"}
    assert [call(each, "a") for _ in range(2)] == ["a 0", "a 1"]
    assert plait.tool(defaults).spec.parameters["properties"]["note"] == {
        "type": "string",
        "description": "A note.",
        "default": "none",
    }


def test_code_calls_with_fields_defaults_and_star_names() -> None:
    def join(*parts: int, sep: str = Field(",")) -> str:
        """Join."""
        return sep.join(map(str, parts))

    code = "print(join(1, 2), join(1, 2, sep='-'), join(sep='-'), join(parts=[3, 4], sep='/'), join(5))"
    replies = [f" x.\nACTION 1:\n```python\n{code}\n```", " x.\nACTION 2:\n```python\nstop('x')\n```"]
    run = plait.Agent("codeact", model=plait.Scripted(replies), tools=[join], journal=False).run("q")
    assert [observation.text for _, observation in run.timeline.results] == ["1,2", "1-2", "", "3/4", "5"]


def test_names_and_descriptions_of_objects_and_partials() -> None:
    named = functools.partial(send, loud=True)
    named.__name__, named.__doc__ = "shout", "Shout a text."  # type: ignore[attr-defined]
    found = [plait.tool(each).spec for each in (Sender("S"), functools.partial(send), named, passing(send))]
    assert [(each.name, each.description) for each in found] == [
        ("Sender", "Sends texts."),
        ("send", "Send a text."),
        ("shout", "Shout a text."),
        ("send", "Send a text."),
    ]


EPYDOC = "Adds.\n\n@param a: One\n    more.\n@type a: int\n@param b: Two.\n@return: The sum."
MIXED_CASE = "Adds.\n\nargs:\n    a: One more.\n    b: Two.\n\nreturns:\n    int: The sum."
BULLETS = "Adds.\n\nParameters\n----------\na, b : int\n    Both.\n\nOther Parameters\n----------------\n*c\n    More."


def test_docstrings_of_other_styles() -> None:
    for text in (EPYDOC, MIXED_CASE):
        read = read_docstring(text)
        assert (read.summary, read.parameters, read.returns) == ("Adds.", {"a": "One more.", "b": "Two."}, "The sum.")
    assert read_docstring(BULLETS).parameters == {"a": "Both.", "b": "Both.", "c": "More."}


@for_each(
    "text",
    [
        "Sends @everyone a text: now.",
        "Sends :smile: to all.",
        "Sends.\nArgs:\n  a\n  b (int\nReturns:",
        "Sends.\n\n:param",
        "@decorated text that is no field.",
        "\x00:param: :raises",
        "Sends.\n\nParameters\n----------",
    ],
)
def test_a_docstring_that_cannot_be_parsed_costs_nothing(text: str) -> None:
    first = text.split("\n")[0].strip("\x00")
    assert first.split(".")[0].split(":")[0] in read_docstring(text).summary or text.startswith("\x00")
