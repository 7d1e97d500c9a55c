"""The short cuts for canonical replies give what the lenient readers give."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from plait.core import Call, ToolSpec
from plait.loops.format import Turn
from plait.loops.json.format import BUILT_INS, JsonTurn
from plait.loops.json.format import _canonical as canonical_json
from plait.loops.react.blob import _DIALECT, Blob, _canonical
from plait.loops.react.reader import read_turn

TOOLS = (ToolSpec("look", "Look."), ToolSpec("add up", "Add."))
WORDS = st.text(st.characters(codec="utf-8") | st.sampled_from("`:\\\n{}[]\"'"), max_size=30)
INPUTS = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.just("Observation: 3") | st.just("Thought: x"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


@given(WORDS, st.sampled_from(TOOLS), INPUTS, st.sampled_from(["", "\n", " \n```", "\nThought: more"]))
def test_the_short_cut_reads_as_the_reader_does(thought: str, tool: ToolSpec, value: object, after: str) -> None:
    text = Blob().write(Turn(thought, Call(tool.name, value)), 1) + after
    quick = _canonical(text, TOOLS)
    assert quick is None or quick == read_turn(text, 1, TOOLS, _DIALECT)


def test_the_short_cut_is_taken_for_what_it_is_made_for() -> None:
    assert _canonical(Blob().write(Turn("I look", Call("look", "a b")), 1), TOOLS) is not None


CALLS = st.sampled_from([{"name": "look", "arguments": {}}, {"tool": "look"}, 'look({"n": 1})', '{"tool": "look"}'])


@given(
    WORDS | CALLS.map(str),
    st.sampled_from([*TOOLS, *BUILT_INS, "nothing"]).map(lambda tool: getattr(tool, "name", tool)),
    INPUTS | CALLS,
    st.sampled_from(
        [("", ""), ("\n ", "\n"), ("```json\n", "\n```"), ("", "}"), ("", " and more"), ("", '{"tool": 1}')]
    ),
    st.sampled_from([("", ""), ('"tool"', '"tool": "look", "tool"'), ("thought", "Thought")]),
)
def test_the_short_cut_of_json_reads_as_the_reader_does(thought, name, value, around, changed) -> None:
    written = json.dumps({"thought": thought, "tool": name, "tool_input": value}, ensure_ascii=False)
    text = f"{around[0]}{written}{around[1]}".replace(*changed) if changed[0] else f"{around[0]}{written}{around[1]}"
    quick = canonical_json(text, TOOLS)
    assert quick is None or quick == JsonTurn()._read_with_repairs(text, 1, TOOLS)


def test_the_short_cut_of_json_is_taken_for_what_it_is_made_for() -> None:
    assert canonical_json(JsonTurn().write(Turn("I look", Call("look", {"n": "a b"})), 1), TOOLS) is not None
