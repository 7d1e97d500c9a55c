"""A model that reads a book page by page, has a small context and refuses longer prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import plait
from plait.core import Answered, Attachment, Reply, Think, Usage
from plait.core.errors import ContextOverflow
from plait.core.replies import Finish
from plait.core.tools import Call
from plait.models.chat import ChatModel
from plait.runtime.run import Run

ROOM = 6_000
"""Tokens of the context of the model of these tests."""
TEXT = "The ships left the harbour at dawn and came back with salt and oranges. " * 35
"""About 2.5 kB."""
QUESTION = "What is on the last page?"


@plait.tool(read_only=True)
def look(page: int) -> str:
    """Read one page of the book."""
    return f"[page {page}] {TEXT}"


def texts_of(think: Think) -> list[str]:
    """Return the texts of a prompt: its messages with their calls, or the raw prompt."""
    calls = (each.calls for each in think.messages)
    return [think.prompt] + [f"{m.content}{made or ''}" for m, made in zip(think.messages, calls, strict=True)]


def count_tokens(think: Think) -> int:
    """Return the tokens of a prompt, as the model of these tests counts them."""
    schemas = sum(len(json.dumps(tool.parameters)) + len(tool.description) for tool in think.tools)
    return (sum(map(len, texts_of(think))) + schemas) // 4 + sum(file.tokens for file in files_of(think))


def files_of(think: Think) -> list[Attachment]:
    """Return the images and PDF files in a prompt."""
    return [file for message in think.messages for file in message.attachments]


def next_reply(think: Think, page: int, pages: int) -> str | Reply:
    """Return what a model that reads page after page says."""
    done = page > pages
    match think.phase.rpartition(".")[2]:
        case "compact":
            return f"{page - 1} pages were read. They tell of ships."
        case "decompose":
            return "1. Read all pages of the book."
        case "reason":
            return "DONE" if done else f"Page number {page} has to be read."
        case "reply":
            return "Oranges."
        case "react":
            return json.dumps([] if done else [{"ACTION": "look", "ARGUMENTS": [page], "EXPLANATION": "next"}])
    if think.tools:
        calls = () if done else (Call("look", {"page": page}, f"id-{page}"),)
        return Reply("Oranges." if done else "More.", calls=calls)
    if think.stop and "OBSERVATION" in think.stop[0]:
        code = 'stop("Oranges.")' if done else f"print(look({page}))"
        return f"More.\nACTION {page}:\n```python\n{code}\n```"
    if "tool_input" in "".join(texts_of(think)):
        name, given = ("final_answer", "Oranges.") if done else ("look", page)
        return json.dumps({"thought": "more", "tool": name, "tool_input": given})
    if done:
        return "Thought: enough.\nFinal Answer: Oranges."
    return f'Thought: more.\nAction:\n```json\n{{"action": "look", "action_input": {page}}}\n```'


def model_of(pages: int, asked: list[Think], room: int = ROOM, known: bool = True) -> plait.Scripted:
    """Return a model that reads one page a turn, has a context of `room` tokens and refuses longer prompts."""

    def reply(think: Think) -> Reply:
        tokens = count_tokens(think)
        if tokens > room:
            raise ContextOverflow("the prompt is too long", tokens=tokens, room=room)
        asked.append(think)
        found = re.findall(r"\[page (\d+)\]|(\d+) pages were", "\n".join(texts_of(think)))
        seen = [int(number) for pair in found for number in pair if number]
        said = next_reply(think, max(seen, default=0) + 1, pages)
        made = said if isinstance(said, Reply) else Reply(said)
        finish: Finish = "calls" if made.calls else "stop"
        return Reply(made.text, finish, Usage(tokens, 20), made.calls)

    return plait.Scripted([reply] * 3000, by_turn=False, context_tokens=room if known else 0)


LOOPS: dict[str, Callable[[int], Any]] = {
    "react": lambda pages: plait.ReAct(),
    "json": lambda pages: plait.JsonReAct(),
    "tool_calling": lambda pages: plait.ToolCalling(),
    "phased": lambda pages: plait.Phased(rounds=pages + 1),
    "codeact": lambda pages: plait.CodeAct(),
}


def agent_of(loop: Any, pages: int, model: Any, **options: Any) -> plait.Agent[Any]:
    limits = plait.Limits(steps=3 * pages, **options.pop("limits", {}))
    return plait.Agent(loop, model=model, limits=limits, **{"tools": [look], "journal": False, **options})


def read_book(loop: str, pages: int, **options: Any) -> tuple[Run, list[Think]]:
    """Return the run of a loop that reads this many pages, and what its model was asked."""
    asked: list[Think] = []
    of_model = {name: options.pop(name) for name in ("room", "known") if name in options}
    run = agent_of(LOOPS[loop](pages), pages, model_of(pages, asked, **of_model), **options).run(QUESTION)
    assert run.outcome == Answered("Oranges.")
    return run, asked


def in_wire(wire: str, think: Think) -> tuple[list[Any], list[Any]]:
    """Return the ids of the calls and of the results (gemini: their turns) in a request, in order."""
    model = ChatModel(spec="x:m", name="m", endpoint="http://127.0.0.1/v1", wire=wire)
    body = json.loads(model.encode(think).body)
    match wire:
        case "chat":
            messages = body["messages"]
            calls = [call["id"] for each in messages for call in each.get("tool_calls") or ()]
            return calls, [each["tool_call_id"] for each in messages if each["role"] == "tool"]
        case "anthropic":
            parts = [part for each in body["messages"] if isinstance(each["content"], list) for part in each["content"]]
            calls = [part["id"] for part in parts if part["type"] == "tool_use"]
            return calls, [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
        case "responses":
            calls = [each["call_id"] for each in body["input"] if each.get("type") == "function_call"]
            return calls, [each["call_id"] for each in body["input"] if each.get("type") == "function_call_output"]
        case _:
            kinds = [[next(iter(part)) for part in each["parts"]] for each in body["contents"]]
            calls = [i for i, parts in enumerate(kinds) for kind in parts if kind == "functionCall"]
            return calls, [i - 1 for i, parts in enumerate(kinds) for kind in parts if kind == "functionResponse"]
