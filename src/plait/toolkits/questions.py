"""Tools that ask: `ask_user` asks the user, `ask_model` a second model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from plait.core.errors import ConfigError
from plait.runtime.calls.context import Context
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

    @tool(name="ask_model", read_only=True)
    async def ask(ctx: Context[object], question: str) -> str:
        """Asks a language model: for general knowledge, for rewording, for a summary of a text that you give.

        Note:
            It knows nothing of this conversation and looks nothing up.

        Args:
            question: All that it needs to answer.
        """
        return await ctx.aask_model(question.strip(), model=model, max_tokens=max_tokens)

    return (ask,)
