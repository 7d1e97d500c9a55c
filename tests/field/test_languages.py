"""Prompts, results and names in other languages than English. README.md names the thread of each test."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from endpoint_runs import FINAL, WARM, run_agent, run_plait

import plait
from conftest import some_of
from models_server import delta, event, whole_stream
from plait.search.keywords import KeywordIndex
from window_server import asked, serving

DONE = event(b"[DONE]")
POISON = "…\ud83d… 𝐭𝐡𝐢𝐬 \ud835 \u2028 ends\x00"
"""What scraped pages and cut texts hold: halves of characters, a line separator, a NUL."""


def call(tool: str, given: str = "{}") -> bytes:
    function = {"name": tool, "arguments": given}
    return delta(tool_calls=[{"index": 0, "id": "a", "function": function}], finish="tool_calls") + DONE


@plait.tool(read_only=True)
def read_page() -> str:
    """A page."""
    return POISON


REACT = whole_stream('Thought: x\nAction:\n```json\n{"action": "read_page", "action_input": null}\n```')
JSON = (
    whole_stream('{"thought": "x", "tool": "read_page", "tool_input": null}'),
    whole_stream('{"thought": "x", "tool": "final_answer", "tool_input": "21 degrees."}'),
)
CODE = (
    whole_stream(" so.\nACTION 1:\n```python\nprint(read_page())\n```"),
    whole_stream(' so.\nACTION 2:\n```python\nstop("21 degrees.")\n```'),
)


HALVES = [("tool_calling", (call("read_page"), WARM)), ("react", (REACT, FINAL)), ("json", JSON), ("codeact", CODE)]


@pytest.mark.parametrize("loop, replies", some_of(HALVES, 2))
def test_half_a_character_in_a_result_does_not_end_the_run_or_the_session(
    loop: str, replies: tuple[bytes, ...], journal: Path
) -> None:
    made = run_agent([], [read_page], *replies, loop=loop, journal=journal)
    assert (made.status, made.answer) == ("answered", "21 degrees.") and made.replays()
    assert "𝐭𝐡𝐢𝐬" in json.dumps(made.bodies[1], ensure_ascii=False)
    for body in made.bodies:
        json.dumps(body, ensure_ascii=False).encode()  # no half is sent
    shown = run_plait("show", made.run.id, "--journal", str(journal))
    assert "𝐭𝐡𝐢𝐬" in shown


def test_the_next_turn_of_a_session_with_half_a_character_goes_on(journal: Path) -> None:
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "half \\ud83d here"}, "finish_reason": "stop"}]}\n\n'
    more = {"session": "s", "journal": journal}
    assert run_agent([], [read_page], call("read_page"), half + DONE, **more).answer == "half \ufffd here"
    assert run_agent([], [read_page], WARM, **more).answer == "21 degrees."


LENIENT = '{"text": "cheers \\ud83c\\udf78", }'
"""With a comma too many, so that the strict reader does not read it."""


@pytest.mark.parametrize(
    "loop, reply, end",
    [
        ("react", f'Thought: x\nAction:\n```json\n{{"action": "say", "action_input": {LENIENT}}}\n```', FINAL),
        ("json", f'{{"thought": "x", "tool": "say", "tool_input": {LENIENT}}}', JSON[1]),
        ("tool_calling", "", WARM),
    ],
)
def test_an_escaped_emoji_in_lenient_json_is_one_character(loop: str, reply: str, end: bytes) -> None:
    said: list[str] = []

    @plait.tool(read_only=True)
    def say(text: str) -> str:
        """Says it."""
        said.append(text)
        return "said"

    made = run_agent([], [say], whole_stream(reply) if reply else call("say", LENIENT), end, loop=loop)
    assert (made.status, said) == ("answered", ["cheers 🍸"])


def test_half_a_character_that_a_browser_sends_is_replaced() -> None:
    agent = plait.Agent("react", model=plait.Scripted(["Thought: k\nFinal Answer: hi"] * 2))
    with serving(agent) as server:
        for path, more in (("/v1/chat/completions", asked("hi \ud83d there", stream=True)), ("/v1/runs", None)):
            body = more or {"question": "hi \ud83d there", "agent": "plait"}
            raw = json.dumps(body).encode()
            status, _, reply = server.ask("POST", path, raw, {"content-type": "application/json"})
            assert status in (200, 202), reply
        _, _, listed = server.ask("GET", "/api/runs")
        assert str(listed).count("hi ? there") == 2, listed
        broken = b'{"model": "plait", "messages": [{"role": "user", "content": "\\ud83d"'
        status, _, reply = server.ask("POST", "/v1/chat/completions", broken, {"content-type": "application/json"})
        assert status == 400 and "not JSON" in str(reply)


def test_a_line_separator_in_an_answer_does_not_end_an_event_of_the_stream() -> None:
    text = "one\u2028two\u2029three\x85four"
    agent = plait.Agent("react", model=plait.Scripted([f"Thought: k\nFinal Answer: {text}"]))
    with serving(agent) as server:
        _, _, reply = server.ask("POST", "/v1/chat/completions", asked("?", stream=True))
    lines = [line.removeprefix("data: ") for line in reply.split("\n") if line.startswith("data: {")]
    deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
    assert "".join(each.get("content") or "" for each in deltas) == text


LOOPS = ["react", "json", "phased", "rewoo", "compiler", "codeact", "tool_calling"]


@pytest.mark.parametrize("loop", some_of(LOOPS))
def test_tools_and_questions_in_chinese_are_sent_as_written_in_each_loop(loop: str) -> None:
    @plait.tool(read_only=True)
    def lookup(name: str) -> dict[str, str]:
        """查询城市的天气。"""
        return {"城市": name}

    made = run_agent([], [lookup], *[whole_stream("不知道")] * 12, loop=loop, question="里昂的天气怎么样？")
    sent = b"".join(asked.raw for asked in made.requests).decode()
    assert "查询城市的天气" in sent and "里昂的天气怎么样？" in sent and "\\u" not in sent


@pytest.mark.parametrize(
    "reply",
    [
        "Thought：我知道了。\nFinal Answer：21 度",
        "思考：我知道了。\nFinal Answer： 21 度",
        "Thought: 我知道了。\n**Final Answer：** 21 度",
    ],
)
def test_a_full_width_colon_ends_a_label(reply: str) -> None:
    made = plait.Agent("react", model=plait.Scripted([reply])).run("?")
    assert (made.status, made.answer, made.steps) == ("answered", "21 度", 1)


@pytest.mark.parametrize(
    "form", ["Action：say\nAction Input：{}", 'Action：\n```json\n{{"action": "say", "action_input": {}}}\n```']
)
def test_a_full_width_colon_before_an_action_is_read(form: str) -> None:
    said: list[str] = []

    @plait.tool(read_only=True)
    def say(text: str) -> str:
        """Says it."""
        said.append(text)
        return "said"

    first = "Thought：好的。\n" + form.format('{"text": "你好"}')
    made = plait.Agent("react", model=plait.Scripted([first, "Thought: k\nFinal Answer: ok"]), tools=[say]).run("?")
    assert (made.status, said) == ("answered", ["你好"])


@pytest.mark.parametrize(
    "query, text",
    [
        ("imza", "İmza doğrulama"),
        ("İMZA", "imza doğrulama"),
        ("isik", "ışık ölçümü"),
        ("bildgrosse", "Bildgröße ändern"),
        ("nen tep", "Nén tệp"),
        ("ünlü", "ÜNLÜ uyumu"),
    ],
)
def test_a_search_finds_words_whatever_their_case_and_accents(query: str, text: str) -> None:
    index = KeywordIndex(["nothing of it", text])
    assert set(index.score(query)) == {1}


def test_chinese_and_arabic_are_found_among_the_runs() -> None:
    questions = ("里昂的天气怎么样？", "كيف حال الطقس في ليون؟")
    agent = plait.Agent("react", model=plait.Scripted(["Thought: k\nFinal Answer: ok"] * 2))
    for question in questions:
        agent.run(question)
    with serving(agent) as server:
        for question, word in zip(questions, ("天气", "الطقس"), strict=True):
            _, _, listed = server.ask("GET", f"/api/runs?words={quote(word)}")
            assert [row["question"] for row in listed["runs"]] == [question]
