"""Claims about texts for an embedder: they pass the hooks on model calls, as prompts do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from plait.core import Call, Reply, Think
from plait.core.errors import PlaitError
from plait.runtime.conversations.guarded_embedder import EMBED, guard_embedder

MAIL = "ada@example.com"


class Embedder:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> Any:
        self.texts += texts
        return [[1.0, float(len(text) % 7)] for text in texts]


def many() -> list[Any]:
    """More tools than are shown."""

    def make(number: int) -> Any:
        def look(q: str = "") -> str:
            return q

        return plait.tool(name=f"look_{number}", description=f"Asks {MAIL} about {number}.", read_only=True)(look)

    return [make(number) for number in range(30)]


class AsyncMask(plait.Hook):
    async def before_model(self, context: Any, request: Think) -> Think:
        return structs.replace(
            request,
            messages=tuple(structs.replace(m, content=m.content.replace(MAIL, "***")) for m in request.messages),
        )


class Refusing(plait.Hook):
    def before_model(self, context: Any, request: Think) -> Any:
        return plait.Refuse("not sent") if request.phase == EMBED else None


class Failing(plait.Hook):
    def before_model(self, context: Any, request: Think) -> Any:
        return context.deps.tenant if request.phase == EMBED else None


@pytest.mark.parametrize("hook", [plait.hooks.RedactPersonalData(), AsyncMask()], ids=["redact", "async"])
def test_questions_tools_and_searches_reach_an_embedder_only_through_the_hooks(
    hook: plait.Hook, tmp_path: Path
) -> None:
    embedder = Embedder()
    search = Reply("", calls=(Call("method_search", {"description": f"mail to {MAIL}"}, "1"),))
    history = Reply("", calls=(Call("chat_history", {"query": f"what of {MAIL}"}, "2"),))
    agent = plait.Agent(
        "tool_calling",
        model=plait.Scripted([Reply("hello"), search, history, Reply("done")], by_turn=False),
        tools=many(),
        hooks=[hook],
        history=plait.History(share=0, embedder=embedder),
        limits=plait.Limits(tools=4),
        journal=tmp_path / "runs.db",
    )
    agent.run(f"I am {MAIL}", session="s")
    run = agent.run(f"Write to {MAIL}", session="s")
    assert run.answer == "done", run.reason
    assert len(embedder.texts) > 30 and not any(MAIL in text for text in embedder.texts)
    assert sum("mail to" in text or "what of" in text or "I am" in text for text in embedder.texts) >= 3


def test_a_hook_that_refuses_or_fails_sends_nothing(tmp_path: Path) -> None:
    for hook, said in ((Refusing(), "does not let texts go"), (Failing(), "failed on texts")):
        embedder = Embedder()
        agent = plait.Agent(
            "react",
            model=plait.Scripted(["Final Answer: x"]),
            tools=many(),
            hooks=[hook],
            history=plait.History(embedder=embedder),
            limits=plait.Limits(tools=4),
            journal=False,
        )
        with pytest.raises(PlaitError, match=said):
            agent.run(f"Write to {MAIL}")
        assert not embedder.texts


def test_without_such_hooks_and_for_the_local_embedder_nothing_is_between() -> None:
    embedder = Embedder()
    assert guard_embedder(embedder, [plait.hooks.AllowHosts("a.example")]) is embedder
    assert guard_embedder("local", [plait.hooks.RedactPersonalData()]) == "local"


def test_vectors_of_redacted_texts_are_stored_under_another_name() -> None:
    class Named(Embedder):
        name, dim = "named", 2

        def embed(self, texts: Any) -> Any:
            import numpy

            return numpy.zeros((len(texts), 2), dtype=numpy.float32)

    guarded: Any = guard_embedder(Named(), [plait.hooks.RedactPersonalData()])
    assert guarded.name.startswith("named redact") and guarded.embed([MAIL]).shape == (1, 2) and guarded.dim == 2
