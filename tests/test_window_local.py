"""The official client against a server whose agent asks the embedded model: nothing scripted anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import plait
from conftest import CAMPAIGN
from lazily import Lazy
from plait.models.fetch import model_file
from window_server import Here, serving

openai = Lazy("openai")
MODEL = "qwen2.5-coder-0.5b" if CAMPAIGN else "smollm2-135m"
MESSAGES: list[Any] = [{"role": "user", "content": "What is 17 plus 25? Answer with the number."}]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    model_file(MODEL)  # fetched once a machine
    agent = plait.Agent(
        "react",
        model=f"local:{MODEL}",
        limits=plait.Limits(steps=2),
        journal=tmp_path_factory.mktemp("served") / "runs.db",
    )
    with serving(agent) as server:
        yield server


def test_an_answer_of_the_embedded_model_whole_and_streamed(here: Here) -> None:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", timeout=500, max_retries=0) as api:
        whole = api.chat.completions.create(model="plait", messages=MESSAGES)
        content, finish = whole.choices[0].message.content, whole.choices[0].finish_reason
        assert content and finish in ("stop", "length")
        assert whole.usage is not None and whole.usage.prompt_tokens > 50 and whole.usage.completion_tokens > 0
        chunks = list(api.chat.completions.create(model="plait", messages=MESSAGES, stream=True))
    told = [chunk.choices[0] for chunk in chunks]
    assert ("".join(each.delta.content or "" for each in told), told[-1].finish_reason) == (content, finish)
    thoughts = [part for each in told if (part := (each.delta.model_extra or {}).get("reasoning_content"))]
    assert len(thoughts) > 3, "it is told as it is written"
    assert [run.outcome["answer"] for run in here.manager.journal.runs()] == [content, content]  # type: ignore[index]
    for run in here.manager.journal.runs():
        assert here.manager.agent_for(run.head).replay(run.head.run).whole


def test_a_stream_that_is_left_frees_the_embedded_model(here: Here) -> None:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", timeout=500, max_retries=0) as api:
        stream = api.chat.completions.create(model="plait", messages=MESSAGES, stream=True)
        next(iter(stream))
        stream.close()
        again = api.chat.completions.create(model="plait", messages=MESSAGES)
    assert again.choices[0].message.content
