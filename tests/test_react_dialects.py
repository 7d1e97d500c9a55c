"""A dialect of ReAct is one value and one prompt: with other labels it reads, streams, escapes and runs alike."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait import loops
from plait.core import Call, ToolSpec, events
from plait.core.errors import ConfigError
from plait.loops.format import Turn, Unreadable
from plait.loops.label_scan import LabelWords
from plait.loops.react.dialects import DIALECTS, Dialect, DialectName
from plait.loops.react.format import ReActCodec, react_format

WORDS = LabelWords("Reflection", "Do", "With", "Result", "Done")
OWN = [
    Dialect("own_blob", "blob", WORDS),
    Dialect("own_lines", "lines", WORDS),
    Dialect("own_bracket", "bracket", WORDS),
    Dialect("own_numbered", "lines", WORDS, numbered=True),
    Dialect("own_finish", "bracket", WORDS, numbered=True, finish="Stop"),
]
TOOLS = [ToolSpec("lookup", "Finds an entry.")]
by_name = pytest.mark.parametrize("dialect", OWN, ids=lambda dialect: dialect.name)


@plait.tool(read_only=True)
def lookup(city: str) -> str:
    """Finds the number of people.

    Args:
        city: A city.
    """
    return f"{city}\nResult: 1\nDone: 2\nDo: 3"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """The prompt of each dialect."""
    (tmp_path / "react").mkdir()
    for dialect in OWN:
        form = ReActCodec(dialect)
        shown = form.write(Turn("I need ...", Call("lookup", "...")), 1)
        (tmp_path / "react" / f"format_{dialect.name}.j2").write_text(
            f"Write:\n\n{shown}\n{form.observation('...', 1)}"
        )
    return tmp_path


@by_name
@pytest.mark.parametrize("chunk", [0, 1, 5])
@pytest.mark.parametrize("transcript", ["chat", "user", "completion"])
def test_an_own_dialect_runs_whole_and_streamed(dialect: Dialect, chunk: int, transcript: Any, prompts: Path) -> None:
    form = ReActCodec(dialect)
    label = dialect.label("observation", 1)
    replies = [
        f"{form.write(Turn('I look it up.', Call('lookup', 'Lyon')), 1)}\n{label} 9\nDone: 9",
        form.write(Turn("That is all.", answer="522,250 people", answered=True), 2),
    ]
    agent = plait.Agent(
        plait.ReAct(dialect=dialect, transcript=transcript),
        model=plait.Scripted(replies, chunk=chunk, by_turn=False),
        tools=[lookup],
        prompts=prompts,
    )
    seen: list[plait.Event] = []
    run = asyncio.run(agent.arun("How many people live in Lyon?", on_event=seen.append))
    assert run.status == "answered" and run.answer == "522,250 people"
    bodies = [json.loads(call.request) for call in run.timeline.model_calls]
    assert [body["stop"] for body in bodies] == [[f"\n{dialect.label('observation', n)}"] for n in (1, 2)]
    sent = json.dumps(bodies[1], ensure_ascii=False)
    assert f"{label} Lyon\\nResult\\\\: 1\\nDone\\\\: 2\\nDo\\\\: 3" in sent
    if transcript != "chat":
        text = bodies[1].get("prompt") or bodies[1]["messages"][-1]["content"]
        assert text.endswith(dialect.label("thought", 2))
    said = "".join(event.text for event in seen if isinstance(event, events.Thought))
    assert "I look it up." in said and "That is all." in said and "Result" not in said
    assert agent.replay(run.id).requests == 2
    recorded = json.loads(json.dumps(loops.options_of(agent.loop)))
    assert loops.make("react", recorded) == agent.loop


@by_name
@given(
    text=st.lists(
        st.sampled_from(
            ["Done:", "Do: lookup", "Result 1:", "With:", "Reflection:", "Stop[", "]", "\n", " ", "x", "\\:"]
        )
    ).map("".join)
)
def test_what_is_written_is_read_again_and_split_alike(dialect: Dialect, text: str) -> None:
    form = ReActCodec(dialect)
    turns = [Turn(text.strip(), Call("lookup", text or None)), Turn("x", answer=text.strip() or "y", answered=True)]
    for turn in turns:
        written = form.write(turn, 1)
        read = form.read(written, 1, TOOLS)
        assert (read.thought, read.call, read.answer, read.remarks) == (turn.thought, turn.call, turn.answer, ())
    assert form.escape(form.escape(text)) == form.escape(text)
    assert WORDS.pattern.search(form.escape(text)) is None and WORDS.find_action_inside(form.escape(text)) is None
    for size in (1, 2, 7):
        whole, parts = form.stream(), form.stream()
        pieces = [piece for at in range(0, len(written), size) for piece in parts.feed(written[at : at + size])]
        assert _joined([*pieces, *parts.close()]) == _joined([*whole.feed(written), *whole.close()])


def _joined(pieces: list[Any]) -> dict[str, str]:
    made: dict[str, str] = {}
    for piece in pieces:
        made[piece.kind] = made.get(piece.kind, "") + piece.text
    return made


def test_the_usual_labels_are_read_with_a_remark_and_do_not_split() -> None:
    form = ReActCodec(OWN[1])
    turn = form.read("Thought: I look.\nAction: lookup\nAction Input: Lyon", 1, TOOLS)
    assert turn.call == Call("lookup", "Lyon") and turn.thought == "I look."
    assert [remark.text for remark in turn.remarks] == ["the labels were written in another way"]
    assert form.grammar(TOOLS, 1) == react_format("lines").grammar(TOOLS, 1).replace("Thought", "Reflection").replace(  # type: ignore[union-attr]
        "Action Input", "With"
    ).replace("Action", "Do").replace("Final Answer", "Done")
    with pytest.raises(Unreadable, match=r"either\nDo: <tool name>\nWith: <input>\nor `Done:`"):
        form.read("Do:", 1, TOOLS)


@pytest.mark.parametrize("reply", ["Reflection: hello there", "Done:", "**Do**: hm"])
def test_a_first_reply_with_an_own_label_is_no_plain_answer(reply: str, prompts: Path) -> None:
    model = plait.Scripted([reply, "Done: 12"], by_turn=False)
    run = plait.Agent(plait.ReAct(dialect=OWN[1]), model=model, tools=[lookup], prompts=prompts).run("?")
    assert run.answer == "12"


def test_an_unknown_dialect_names_the_known_ones() -> None:
    with pytest.raises(ConfigError) as wrong:
        plait.ReAct(dialect="prose")
    assert "blob or lines or numbered or original" in str(wrong.value.hint)
    assert get_args(DialectName) == tuple(DIALECTS) == tuple(each.name for each in DIALECTS.values())
