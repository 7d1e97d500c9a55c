"""Long runs fit into the model's context: old results are folded, then old turns are summarized."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest

import plait
from conftest import some_of
from fork_server import run_forked
from long_run_support import (
    LOOPS,
    QUESTION,
    ROOM,
    TEXT,
    agent_of,
    count_tokens,
    files_of,
    in_wire,
    look,
    model_of,
    read_book,
    texts_of,
)
from media_servers import SEES, png
from plait.core import LoopContext, Message, Reply, Stopped, Think, Usage
from plait.core.errors import ConfigError, ContextOverflow
from plait.core.events import Noted, Observed
from plait.core.tools import Call
from plait.journal.store import Journal
from plait.loops import splitter_of
from plait.loops.compaction import COMPACT, View, measure_prompt
from plait.models.config import ModelConfig
from plait.models.resolve import resolve
from plait.models.wires.wire import WIRES
from plait.runtime.phase_models import Phases
from plait.runtime.run import Run
from plait.runtime.templates.prompts import PromptBook


@cache
def read_hundred_pages(loop: str) -> tuple[Run, list[Think]]:
    return read_book(loop, 100)


def notes_of(run: Run, kind: str = "compacted") -> list[str]:
    return [event.text for event in run.events if isinstance(event, Noted) and event.kind == kind]


@pytest.mark.parametrize("loop", some_of(LOOPS, 2))
def test_a_run_of_200_steps_ends_answered_and_its_tokens_grow_linearly(loop: str) -> None:
    short, _ = read_hundred_pages(loop)
    long, asked = read_book(loop, 200)
    assert sum(isinstance(event, Observed) for event in long.events) == 200
    assert long.usage.input_tokens < 2.3 * short.usage.input_tokens
    assert max(map(count_tokens, asked)) <= ROOM


@pytest.mark.parametrize("loop", LOOPS)
def test_between_compactions_a_prompt_only_grows_at_its_end(loop: str) -> None:
    run, asked = read_hundred_pages(loop)
    turns = [think for think in asked if think.phase != COMPACT]
    changed = sum(after.messages[: len(before.messages)] != before.messages for before, after in pairwise(turns))
    assert 5 < changed <= len(notes_of(run)) < len(turns) / 3


@pytest.mark.parametrize("loop", LOOPS)
def test_each_prompt_has_the_task_and_the_last_two_results(loop: str) -> None:
    _, asked = read_hundred_pages(loop)
    assert any(think.phase == COMPACT for think in asked)
    for think in asked:
        text = "\n".join(texts_of(think))
        assert QUESTION in text
        seen = [int(number) for number in re.findall(r"\[page (\d+)\]", text)]
        assert think.phase == COMPACT or len(seen) >= min(2, max(seen, default=0))


def test_the_first_thought_of_phased_stays() -> None:
    _, asked = read_book("phased", 60)
    assert all("Page number 1 has" in "\n".join(texts_of(think)) for think in asked[1:] if think.phase != COMPACT)


def test_the_steps_of_codeact_stay() -> None:
    @plait.tool(read_only=True)
    def method_search(description: str) -> str:
        """Find a function."""
        return "look(page: int): Read one page of the book."

    asked: list[Think] = []
    agent = agent_of("codeact", 100, model_of(100, asked)).using(tools=[method_search, look])
    assert agent.run(QUESTION).answer == "Oranges."
    assert any(think.phase == COMPACT for think in asked)
    assert all("Read all pages" in "\n".join(texts_of(think)) for think in asked[1:] if think.phase != COMPACT)


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_and_its_result_stay_together_on_each_wire(wire: str) -> None:
    _, asked = read_hundred_pages("tool_calling")
    assert any(think.phase == COMPACT for think in asked)
    for think in asked:
        calls, results = in_wire(wire, think)
        assert calls == results and len(set(calls)) == len(calls)


@pytest.mark.parametrize("transcript", ["user", "completion"])
def test_a_transcript_in_one_text_is_compacted(transcript: str) -> None:
    asked: list[Think] = []
    run = agent_of(plait.ReAct(transcript=transcript), 100, model_of(100, asked)).run(QUESTION)  # type: ignore[arg-type]
    assert run.answer == "Oranges." and len(notes_of(run)) > 5
    assert re.search(r"\d\d pages were read[^\0]*\[page 100\]", "\n".join(texts_of(asked[-1])))


def test_a_run_below_the_share_sends_the_same_requests() -> None:
    """Neither the share nor the size of the context is in a request."""
    for loop in LOOPS:
        (_, with_share), (_, without) = read_book(loop, 4), read_book(loop, 4, limits={"compact_at": None}, known=False)
        assert with_share == without


def test_the_summary_is_an_effect_with_its_own_model_and_price() -> None:
    asked: list[Think] = []
    summaries: list[Think] = []
    models = {"compact": model_of(100, summaries)}
    agent = agent_of("react", 100, model_of(100, asked), models=models, journal=None)
    run = agent.run(QUESTION)
    phases = {each.phase: each.calls for each in run.phases}
    assert run.answer == "Oranges." and phases["compact"] == len(summaries) > 0
    assert all(think.phase == "act" for think in asked) and all(think.phase == COMPACT for think in summaries)
    assert run.usage.input_tokens == sum(map(count_tokens, (*asked, *summaries)))
    assert run.calls == len(asked) + len(summaries) and run.steps == len(asked)


@pytest.mark.parametrize("loop", some_of(LOOPS, 2, 1))
def test_a_replay_makes_the_same_requests(loop: str, journal: Path) -> None:
    agent = agent_of(LOOPS[loop](90), 90, model_of(90, []), journal=journal)
    run = agent.run(QUESTION)
    replayed = agent.using(model=model_of(0, [], known=False)).replay(run.id)
    assert replayed.whole and replayed.requests == run.calls


@pytest.mark.parametrize(
    ("loop", "phase"),
    some_of([("react", ""), ("json", COMPACT), ("phased", ""), ("tool_calling", COMPACT), ("codeact", COMPACT)]),
)
def test_a_run_that_was_killed_goes_on_where_it_was(loop: str, phase: str, journal: Path) -> None:
    """It is killed in its 75th model call, or in that of its first summary."""
    pages = 90
    script = f"""
import os, sys
from pathlib import Path
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from long_run_support import *
asked = []
model = model_of({pages}, asked)
send = model.send
async def kill(request, think, on_text=None):
    if think.phase == {phase!r} or (not {phase!r} and len(asked) == 75):
        os._exit(9)
    return await send(request, think, on_text)
model.send = kill
agent_of(LOOPS[{loop!r}]({pages}), {pages}, model, journal={str(journal)!r}).run(QUESTION, now=0)
"""
    assert run_forked(["-c", script]).returncode == 9
    asked: list[Think] = []
    agent = agent_of(LOOPS[loop](pages), pages, model_of(pages, asked), journal=journal)
    (row,) = Journal(journal).runs()
    run = agent.resume(row.head.run)
    whole, expected = read_book(loop, pages)
    assert run.answer == "Oranges." and run.calls == whole.calls
    assert asked == expected[-len(asked) :] and 0 < len(asked) < len(expected)
    assert agent.replay(run.id).requests == run.calls + 1  # the request that was killed is on record, too


@pytest.mark.parametrize("loop", some_of(LOOPS, 2, 1))
def test_an_unknown_context_is_learned_from_the_first_refusal(loop: str) -> None:
    run, asked = read_book(loop, 60, known=False)
    refused = [call for call in run.timeline.model_calls if call.reply is None]
    assert len(refused) == 1 and max(map(count_tokens, asked)) <= ROOM
    assert notes_of(run) and not notes_of(run, "shortened")


def test_without_a_share_only_refused_prompts_are_compacted() -> None:
    run, asked = read_book("tool_calling", 40, limits={"compact_at": None})
    assert len([call for call in run.timeline.model_calls if call.reply is None]) > 2
    assert all(think.phase != COMPACT for think in asked) and max(map(count_tokens, asked)) > 0.9 * ROOM


@pytest.mark.parametrize("summary", ["", ContextOverflow("too long", tokens=2, room=1)])
def test_without_a_summary_the_run_goes_on_with_folded_results(summary: Any) -> None:
    asked: list[Think] = []
    broken = plait.Scripted([lambda think: _raise(summary)] * 99, by_turn=False)
    agent = agent_of("json", 100, model_of(100, asked), models={"compact": broken})
    run = agent.run(QUESTION)
    assert run.answer == "Oranges." and broken.sent > 0
    assert max(map(count_tokens, asked)) <= ROOM


def _raise(what: Any) -> str:
    if isinstance(what, Exception):
        raise what
    return str(what)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_reserved_call_answers_and_writes_no_summary(loop: str) -> None:
    asked: list[Think] = []
    whole = read_hundred_pages(loop)[1]
    at = next(i for i, think in enumerate(whole) if think.phase == COMPACT)
    agent = agent_of(LOOPS[loop](100), 100, model_of(100, asked), limits={"calls": at + 1})
    run = agent.run(QUESTION)
    assert isinstance(run.outcome, Stopped) and run.outcome.limit == "calls" and run.calls == at + 1
    assert all(think.phase != COMPACT for think in asked)


@pytest.mark.parametrize("loop", ["tool_calling", "codeact"])
def test_a_result_that_was_folded_may_be_called_for_again(loop: str) -> None:
    """The loop breaker counts a call anew when the model no longer sees the result."""

    def reply(think: Think) -> Reply:
        if think.phase == COMPACT:
            return Reply("Nothing was found.")
        tokens, n = count_tokens(think), len(sent)
        sent.append(tokens)
        if loop == "codeact":
            code = f"print(look({n % 6}))" if n < 60 else 'stop("Oranges.")'
            return Reply(f"More.\nACTION {n + 1}:\n```python\n{code}\n```", usage=Usage(tokens, 20))
        if n == 60:
            return Reply("Oranges.", usage=Usage(tokens, 1))
        return Reply("", "calls", Usage(tokens, 1), (Call("look", {"page": n % 6}, f"id-{n}"),))

    sent: list[int] = []
    model = plait.Scripted([reply] * 200, by_turn=False, context_tokens=ROOM)
    assert agent_of(loop, 100, model).run(QUESTION).answer == "Oranges."


def test_a_fork_with_another_model_takes_over_the_compacted_steps(journal: Path) -> None:
    agent = agent_of("json", 60, model_of(60, []), journal=journal)
    run = agent.run(QUESTION)
    other = agent.using(model=model_of(60, [], room=64_000)).fork(run.id, 50)
    assert other.answer == "Oranges." and other.steps == run.steps


def test_a_placeholder_names_the_artifacts_of_a_result() -> None:
    handle = '{"$thing": "image-1", "is": "<Image 640x480 JPEG>"}'
    shown = View(8000, folded=1).show_result(LoopContext((), PromptBook("json")), "draw", f'[{handle}, "{TEXT * 3}"]')
    assert shown.startswith("(The result of draw, 7,6") and handle in shown and len(shown) < 300


@pytest.mark.parametrize("loop", some_of(LOOPS, 2))
def test_images_of_folded_results_are_not_sent_again_and_those_of_the_question_are(loop: str) -> None:
    @plait.tool(read_only=True)
    def look(page: int) -> list[str | plait.File]:
        """Read one page of the book."""
        return [f"[page {page}] {TEXT * 3}", plait.File.from_bytes(png(page % 200), f"{page}.png")]

    asked: list[Think] = []
    model = model_of(100, asked, room=16_000)
    model.abilities = SEES
    cover = plait.File.from_bytes(png(250), "cover.png")
    run = agent_of(LOOPS[loop](100), 100, model, tools=[look]).run([QUESTION, cover])
    assert (run.answer, model.sent) == ("Oranges.", len(asked))  # no prompt was refused
    assert any(think.phase == COMPACT for think in asked)
    turns = [files_of(think) for think in asked if think.phase != COMPACT]
    assert all("cover.png" in [file.name for file in files] for files in turns)
    assert 3 <= max(map(len, turns)) < 8
    assert not any(files_of(think) for think in asked if think.phase == COMPACT)


@pytest.mark.parametrize("loop", some_of(LOOPS, 2, 1))
def test_a_compacted_run_gives_a_typed_answer(loop: str) -> None:
    run, asked = read_book(loop, 100, output=Literal["Oranges."], instructions="Speak plainly.")
    assert run.output == "Oranges." and any(think.phase == COMPACT for think in asked)
    last = asked[-1]
    assert "Oranges." in "\n".join(texts_of(last)) and "Speak plainly." in last.messages[0].content


def test_a_run_with_a_typed_answer_gives_messages() -> None:
    agent = plait.Agent("tool_calling", model=plait.Scripted(['{"ships": 3}']), output=dict[str, int], journal=False)
    first = agent.run("How many ships?")
    assert first.messages()[-1] == {"role": "assistant", "content": '{"ships":3}'}
    assert agent.run("And now?", history=first.messages()).history[0].answer == '{"ships":3}'


def test_short_results_are_not_folded() -> None:
    context = LoopContext((), PromptBook("react"))
    view = View(8000, folded=2)
    assert view.of_entry(0).show_result(context, "look", "522250") == "522250"
    assert "7,000 characters" in view.of_entry(1).show_result(context, "look", "x" * 7000)
    assert view.of_entry(2).show_result(context, "look", "x" * 7000) == "x" * 7000


def test_own_templates_replace_the_placeholder_and_the_summary(tmp_path: Path) -> None:
    folder = tmp_path / "react"
    folder.mkdir()
    (folder / "folded.j2").write_text("({{ chars }} signs of {{ tool }} went away)")
    (folder / "summary.j2").write_text("So far, {{ summary }}")
    asked: list[Think] = []
    agent = agent_of("react", 60, model_of(60, asked), prompts=tmp_path)
    assert agent.run(QUESTION).answer == "Oranges."
    texts = ["\n".join(texts_of(think)) for think in asked]
    assert any("signs of look went away" in text for text in texts)
    assert any(re.search(r"So far, \d+ pages were read", text) for text in texts)


def test_a_summary_streams_as_a_thought() -> None:
    pieces = splitter_of(plait.Phased(), "compact").feed("So far.")
    assert [piece.kind for piece in pieces] == ["thought"]


@pytest.mark.parametrize("share", [0, -1, 1.5, True, "0.7"])
def test_an_invalid_share_is_refused(share: Any) -> None:
    with pytest.raises(ConfigError, match="compact_at"):
        plait.Limits(compact_at=share)


def test_the_size_of_the_context_comes_from_the_settings_or_the_table() -> None:
    settings = {"endpoints": {"mine": {"base_url": "http://127.0.0.1:9/v1", "context_tokens": 4096}}}
    config = ModelConfig.from_mapping(settings)
    assert resolve("mine:m", config).context_tokens == 4096  # type: ignore[attr-defined]
    assert resolve("openai:gpt-4o", env={"OPENAI_API_KEY": "k" * 20}).context_tokens == 128_000  # type: ignore[attr-defined]
    assert resolve("local").context_tokens == 8192  # type: ignore[attr-defined]
    settings["endpoints"]["mine"]["context_tokens"] = -1
    with pytest.raises(ConfigError, match="context_tokens"):
        ModelConfig.from_mapping(settings)


def test_a_call_that_is_repeated_at_once_still_ends_the_run() -> None:
    sent: list[int] = []

    def reply(think: Think) -> Reply:
        sent.append(count_tokens(think))
        call = Call("look", {"page": 1}, f"id-{len(sent)}")
        return Reply("", "calls", Usage(sent[-1], 1), (call,))

    model = plait.Scripted([reply] * 99, by_turn=False, context_tokens=2200)  # room for two results
    run = agent_of("tool_calling", 99, model).run(QUESTION)
    assert notes_of(run) and isinstance(run.outcome, Stopped) and run.outcome.limit == "loop"


def test_text_without_an_encoding_and_large_numbers_have_a_length() -> None:
    call = Call("look", {"page": 10**40, "text": "\ud800"})
    think = Think("act", (Message("user", "half \ud800"), Message("assistant", "", (call,))), tools=(look.spec,))
    assert measure_prompt(think)[0] > measure_prompt(Think("act", think.messages))[0] > 60


def test_a_summary_is_written_by_the_model_for_it_or_by_the_agents() -> None:
    first, other = model_of(1, []), model_of(1, [])
    assert Phases({"act": first, "compact": other}).of("react.compact") is other
    assert Phases({"act": first, "": other}).of("compact") is other
    assert Phases({"act": first}).of("compact") is first
