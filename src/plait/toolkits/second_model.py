"""A model that another one may ask."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from plait.core.errors import ModelError, PlaitError, ToolError, UsageError
from plait.tools.call_context import run_meter
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from plait.models.base import Model

MAX_TOKENS = 1024


def ask_model(model: str | Model = "local", *, max_tokens: int = MAX_TOKENS) -> tuple[Tool, ...]:
    """The tool `ask_model`: `model` as for an agent, such as "local" or "openai:gpt-5", asked for `max_tokens` at most.

    It is asked once a call, without the conversation. Its calls, tokens and costs count against the run's limits.
    """
    if isinstance(model, str) and not model.strip():
        raise UsageError("No model is named.", hint="Write ask-model:openai:gpt-5, or ask-model for the local one.")
    known: list[Model] = [] if isinstance(model, str) else [model]

    async def ask(question: str) -> str:
        from plait.core.effects import Think
        from plait.core.messages import user

        if not question.strip():
            raise ToolError("The question is empty.", hint="Give the whole question: nothing else is seen.")
        try:
            if not known:
                from plait.models.resolve import resolve

                known.append(resolve(str(model)))
            think = Think("ask_model", (user(question.strip()),), max_tokens=max_tokens)
            meter = run_meter()
            if meter is not None:
                meter.request(known[0])
            began = time.monotonic()
            response = await known[0].send(known[0].encode(think), think)
            reply = response.reply or known[0].decode(response, think)
            if meter is not None:
                meter.took(known[0].spec, reply.usage, known[0].rate.cost(reply.usage, time.monotonic() - began))
        except ModelError as error:
            after = f" Wait {error.after:g} s." if error.after is not None else ""
            raise ToolError(error.message, hint=f"{error.hint}{after}".strip()) from error
        except ToolError:
            raise
        except PlaitError as error:
            raise ToolError(error.message, hint=error.hint) from error
        text = reply.text.strip()
        if not text:
            raise ToolError("The model gave no answer.", hint="Ask in another way.")
        return text

    @tool(name="ask_model", read_only=True)
    async def asked(question: str) -> str:
        """Asks a language model: for general knowledge, for rewording, for a summary of a text that you give.

        Note:
            It knows nothing of this conversation and looks nothing up.

        Args:
            question: All that it needs to answer.
        """
        return await ask(question)

    return (asked,)
