"""Where the text of a reply stands: reasoning within its text, and answers within its reasoning."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import plait
from conftest import LONG, for_each
from models_server import completion, delta, event, whole_stream
from plait.core import Reply, Think, Usage, user
from plait.core.reasoning import MARKERS, drop_reasoning, split_unopened
from plait.loops.label_scan import read_part
from plait.models.base import Response
from plait.models.chat import ChatModel
from plait.models.scripted import Scripted
from plait.models.wires.reply_text import TextFilter

MODEL = ChatModel(spec="t:m", name="m", endpoint="http://h/v1")
THINK = Think("act", (user("q"),))
FINAL = "<|start|>assistant<|channel|>final<|message|>"
MARKED = {
    "think": "<think>Look first.</think>It rains.",
    "blank lines first": "\n\n \n<think>\nLook first.\n</think>\n\nIt rains.",
    "letter case": "<Think>Look first.</THINK>It rains.",
    "thinking": "<thinking>Look first.</thinking>It rains.",
    "twice": "<think>Look</think>\n<thinking>first.</thinking>\nIt rains.",
    "thought": "<thought>\nLook first.\n</thought>\nIt rains.",
    "reasoning": "<reasoning>Look first.</reasoning>It rains.",
    "Magistral": "[THINK]Look first.[/THINK]It rains.",
    "Seed": "<seed:think>Look first.</seed:think>It rains.",
    "MiniMax M3": "<mm:think>Look first.</mm:think>It rains.",
    "LongCat": "<longcat_think>Look first.</longcat_think>It rains.",
    "Kimi-VL": "◁think▷Look first.◁/think▷It rains.",
    "Apertus": "<|inner_prefix|>Look first.<|inner_suffix|>It rains.",
    "MedGemma": "<unused94>thought\nLook first.<unused95>It rains.",
    "Gemma 4": "<|channel>thought\nLook first.\n<channel|>It rains.",
    "Command": "<|START_THINKING|>Look first.<|END_THINKING|><|START_RESPONSE|>It rains.<|END_RESPONSE|>",
    "OpenThinker": "<|begin_of_thought|>\nLook first.\n<|end_of_thought|>\n\n<|begin_of_solution|>\nIt rains.\n"
    "<|end_of_solution|>",
    "Hunyuan": "<think>\nLook first.\n</think>\n<answer>\nIt rains.\n</answer>\n",
    "ERNIE": "<think>Look first.</think>\n\n<response>\nIt rains.\n</response>\n",
    "gpt-oss": f"<|channel|>analysis<|message|>Look first.<|end|>{FINAL}It rains.<|return|>",
    "gpt-oss, commentary": "<|channel|>analysis<|message|>Look<|end|><|start|>assistant<|channel|>commentary<|message|>"
    f"first.<|end|>{FINAL}It rains.",
    "gpt-oss, no end": f"<|channel|>analysis<|message|>Look first.{FINAL}It rains.",
    "gpt-oss, no starts": "analysis<|message|>Look first.<|end|>final<|message|>It rains.",
    "gpt-oss, constrained": "<|channel|>analysis<|message|>Look first.<|end|><|start|>assistant<|channel|>final "
    "<|constrain|>json<|message|>It rains.",
}
UNOPENED = {
    "lines": "Look first.\n</think>\n\nIt rains.",
    "at the end of a line": "Look first.</think>\nIt rains.",
    "in one line": "Look first.</think>It rains.",
    "nothing before": "</think>\n\nIt rains.",
    "Magistral": "Look first.[/THINK]It rains.",
    "Gemma 4": "Look first.\n<channel|>It rains.",
    "gpt-oss": f"Look first.<|end|>{FINAL}It rains.",
    "gpt-oss, all tokens dropped": "analysisLook first.assistantfinalIt rains.",
}
ABOUT_TAGS = [
    "The closing tag is </think>. It ends the block.",
    "The tags are <think> and </think>.",
    "It ends with `</think>`\nand begins with `<think>`.",
    "It ends with '</think>'\nor with \"[/THINK]\".",
    "Write this:\n```\n<think>\nLook.\n</think>\nIt rains.\n```\nThat is all.",
    'So: {"open": "<think>", "close": "</think>"}',
    '{"text": "It rains.</think>Or snows."}',
    "- [THINK] opens it\n- [/THINK] closes it",
    "<answer>Yes</answer> is what Hunyuan writes.",
    "A list of channels:\n`<|channel|>final<|message|>` and others",
    "The result:\n<thought>It is XML.</thought>\nDone.",
]


def read(text: str, size: int = 0, **options: Any) -> tuple[str, str]:
    """What a filter gives for pieces of that size (0: one piece): the text, and its reasoning."""
    made = TextFilter(**options)
    size = size or len(text)
    found = "".join(made.feed(text[at : at + size]) for at in range(0, len(text), size)) + made.close()
    return found, made.reasoning


@for_each("text", MARKED.values())
def test_marked_reasoning_is_no_part_of_the_text(text: str) -> None:
    bodies = [json.dumps(completion(text)).encode(), whole_stream(text), whole_stream(*text)]
    for body in bodies:
        reply = MODEL.decode(Response(200, body), THINK)
        assert (reply.text.strip(), " ".join(reply.reasoning.split())) == ("It rains.", "Look first.")
    assert read_part(text)[0].strip() == "It rains."
    for prefill in ("Answer:", "Answer: "):
        for said in (f"{prefill}{text}", f" \n{prefill}{text}", text):
            assert read(said, prefill=prefill)[0].strip() == read(said, 1, prefill=prefill)[0].strip() == "It rains."
    assert read(f"<think>a</think>Answer:{text}", prefill="Answer:")[0].strip() == "It rains."


@pytest.mark.parametrize("text", UNOPENED.values(), ids=UNOPENED)
def test_reasoning_that_the_prompt_opened_is_no_part_of_the_answer(text: str, journal: Path) -> None:
    assert split_unopened(text)[1] == read_part(text)[0] == "It rains."
    for loop in ("tool_calling", "phased"):
        assert plait.Agent(loop, model=Scripted([text] * 2, by_turn=False)).run("?").answer == "It rains."


@pytest.mark.parametrize("text", ABOUT_TAGS)
def test_text_about_the_markers_stays(text: str, journal: Path) -> None:
    assert read(text) == read(text, 1) == (text, "")
    assert read_part(text)[0] == split_unopened(text)[1] == text
    assert plait.Agent("tool_calling", model=Scripted([text])).run("?").answer == text
    said = json.dumps({"thought": "", "tool": "final_answer", "tool_input": text})
    assert plait.Agent("json", model=Scripted([said])).run("?").answer == text
    assert plait.Agent("react", model=Scripted([f"Thought: Fine.\nFinal Answer: {text}"])).run("?").answer == text


@for_each("markers", [each for each in MARKERS if not each.is_answer])
def test_reasoning_that_never_ends_is_no_answer(markers: Any) -> None:
    for opens in markers.opens:
        text = f"{opens}\nFinal Answer: 5"
        assert read(text) == read(text, 1) == ("", "Final Answer: 5")
        assert drop_reasoning(text) == ""


PIECES = [each for markers in MARKERS for each in (*markers.opens[:2], *markers.closes)]
TEXT = st.lists(st.sampled_from([*PIECES, "\n", " ", "a", "It rains.", "```", "<", "<|", "[", "Obs"]), max_size=9)
PLACES = st.lists(st.integers(0, 200), max_size=12)


@given(TEXT.map("".join), st.sampled_from(["", "a", "It rains.", "<th"]), st.sampled_from([(), ("\nObs",)]), PLACES)
@example("<think>x</think><answer>a</answer>\nObs", "", ("\nObs",), list(range(60)))
def test_markers_are_read_the_same_in_any_pieces(text: str, prefill: str, stop: tuple[str, ...], cuts: Any) -> None:
    whole, pieces = TextFilter(stop, prefill), TextFilter(stop, prefill)
    expected = whole.feed(text)
    expected += whole.close()
    edges = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    assert "".join(pieces.feed(text[a:b]) for a, b in itertools.pairwise(edges)) + pieces.close() == expected
    assert (pieces.reasoning, pieces.cut) == (whole.reasoning, whole.cut)


@for_each("unit", ["<think>", "<think>a</think>", "\n</think>", "```\n[THINK]", "</think> ", " ", "<|end|>"])
def test_long_texts_of_markers_are_read(unit: str) -> None:
    text = unit * (LONG // len(unit))
    read(text, 97)
    assert len(read_part(text)[0]) <= len(text)


# Answers within the reasoning


LABEL: Any = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def find(query: str) -> str:
    """Find something."""
    raise AssertionError("not to be called")


LOOPS = ("tool_calling", "auto", "react", "json", "codeact", "rewoo", "compiler", "phased")
ONLY_REASONING = {
    "600 characters": Reply("", reasoning="I look. " * 74 + "I looked"),
    "490 tokens": Reply("", usage=Usage(10, 500, reasoning_tokens=490)),
    "cut at its token limit": Reply("", finish="length", reasoning="I look. " * 75),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_that_stands_only_in_the_reasoning_is_the_answer(loop: str, journal: Path) -> None:
    for said in ('{"name": "Ada"}', '```json\n{"name": "Ada"}\n```', 'I look.\n</think>\n\n{"name": "Ada"}'):
        model = Scripted([Reply("", reasoning=said)] * 9, by_turn=False)
        run = plait.Agent(loop, model=model, tools=[find], output=LABEL).run("?")
        assert (run.status, run.answer) == ("answered", {"name": "Ada"}), (said, run.reason)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("size", "reply"), ONLY_REASONING.items(), ids=ONLY_REASONING)
def test_a_run_says_that_only_reasoning_came(loop: str, size: str, reply: Reply, journal: Path) -> None:
    run = plait.Agent(loop, model=Scripted([reply] * 9, by_turn=False), tools=[find]).run("?")
    assert run.answer is None and run.status == ("stopped" if reply.how_cut else "failed")
    assert "Only reasoning came" in run.reason and size in run.reason and "empty" not in run.reason


def test_a_call_in_the_reasoning_is_not_made(journal: Path) -> None:
    said = '{"name": "find", "arguments": {"query": "x"}}'
    for output in (str, LABEL):
        model = Scripted([Reply("", reasoning=said)] * 2 + [ANSWER], by_turn=False)
        run = plait.Agent("tool_calling", model=model, tools=[find], output=output).run("?")
        assert (run.status, run.timeline.tool_calls) == ("answered", [])


CONSTRAINED = Think("act", (user("q"),), schema=LABEL)
ANSWER = '{"name": "Ada"}'
STREAMS = {
    "chat": event({"choices": [{"index": 0, "delta": {"reasoning_content": ANSWER}, "finish_reason": "stop"}]}),
    "chat, reasoning": delta(None, "stop", reasoning=ANSWER),
    "chat, details": delta(None, "stop", reasoning_details=[{"type": "reasoning.text", "text": ANSWER}]),
    "chat, parts": delta(None, "stop", content=[{"type": "thinking", "thinking": [{"type": "text", "text": ANSWER}]}]),
    "anthropic": b"".join(
        event(each)
        for each in (
            {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": ANSWER}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        )
    ),
    "gemini": event(
        {"candidates": [{"content": {"parts": [{"text": ANSWER, "thought": True}]}, "finishReason": "STOP"}]}
    ),
    "responses": b"".join(
        event(each)
        for each in (
            {"type": "response.reasoning_text.delta", "item_id": "r", "output_index": 0, "delta": ANSWER},
            {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},
        )
    ),
}


@for_each("name", STREAMS)
def test_every_wire_says_that_only_reasoning_came(name: str) -> None:
    model = ChatModel(spec="t:m", name="m", endpoint="http://h/v1", wire=name.partition(",")[0])
    reply = model.decode(Response(200, STREAMS[name]), CONSTRAINED)
    assert (reply.text, reply.reasoning) == ("", ANSWER)
    assert reply.only_reasoning == "Only reasoning came (15 characters) and no text."
