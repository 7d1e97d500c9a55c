"""Tools that ask: `ask_user` asks the user, `ask_model` a second model."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import structs

from plait.core.effects import Think
from plait.core.errors import ConfigError, ModelError, PlaitError, ToolError
from plait.core.messages import user
from plait.tools.call_context import run_meter
from plait.tools.tool import Tool, tool

if TYPE_CHECKING:
    from plait.models.base import Model

MAX_TOKENS = 1024


@tool(read_only=True)
def _ask_user(question: str) -> str:
    """Asks the user a question, and gives their answer. Only for what no other tool can tell.

    Args:
        question: one question, whole: the user sees nothing else
    """
    raise AssertionError("the runtime asks the person itself")


ask_user: Tool = structs.replace(_ask_user, name="ask_user", person=True)


def ask_model(model: str | Model = "local", *, max_tokens: int = MAX_TOKENS) -> tuple[Tool, ...]:
    """Makes the tool `ask_model`: `model` as for an agent, such as "local" or "openai:gpt-5".

    The model writes at most `max_tokens`. It is asked once a call, without the conversation. Its calls, tokens and
    costs count against the run's limits.
    """
    if isinstance(model, str) and not model.strip():
        raise ConfigError("No model is named.", hint="Write ask-model:openai:gpt-5, or ask-model for the local one.")
    resolved: list[Model] = [] if isinstance(model, str) else [model]

    @tool(name="ask_model", read_only=True)
    async def ask(question: str) -> str:
        """Asks a language model: for general knowledge, for rewording, for a summary of a text that you give.

        Note:
            It knows nothing of this conversation and looks nothing up.

        Args:
            question: All that it needs to answer.
        """
        from plait.models.resolve import resolve

        if not question.strip():
            raise ToolError("The question is empty.", hint="Give the whole question: nothing else is seen.")
        try:
            if not resolved:
                resolved.append(resolve(str(model)))
            text = await _ask(resolved[0], question.strip(), max_tokens)
        except ToolError:
            raise
        except PlaitError as error:
            after = f" Wait {error.after:g} s." if isinstance(error, ModelError) and error.after is not None else ""
            raise ToolError(error.message, hint=f"{error.hint}{after}".strip()) from error
        if not text:
            raise ToolError("The model gave no answer.", hint="Ask in another way.")
        return text

    return (ask,)


async def _ask(model: Model, question: str, max_tokens: int) -> str:
    """Send the question and return the text of the reply. The run's meter counts it."""
    from plait.models.prices import cost_of_reply

    think = Think("ask_model", (user(question),), max_tokens=max_tokens)
    meter = run_meter()
    if meter is not None:
        meter.request(model)
    began = time.monotonic()
    response = await model.send(model.encode(think), think)
    reply = response.reply or model.decode(response, think)
    if meter is not None:
        meter.took(model.spec, reply.usage, cost_of_reply(reply, model.rate, time.monotonic() - began))
    return reply.text.strip()
