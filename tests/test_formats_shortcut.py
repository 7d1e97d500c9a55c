"""The short cut for canonical blobs gives what the lenient reader gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plait.core import Call, ToolSpec
from plait.loops.format import Turn
from plait.loops.react.format import Blob, _read_canonical
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
    quick = _read_canonical(text, TOOLS)
    assert quick is None or quick == read_turn(text, 1, TOOLS, Blob.dialect)


def test_the_short_cut_is_taken_for_what_it_is_made_for() -> None:
    assert _read_canonical(Blob().write(Turn("I look", Call("look", "a b")), 1), TOOLS) is not None
