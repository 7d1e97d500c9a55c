"""What the tests of typed output share: a type, answers of it, and agents of every loop that give these answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

import plait

QUESTION = "Plan a trip to Lyon."


class Trip(BaseModel):
    city: str
    days: int = Field(ge=1)
    note: str = ""


GOOD = '{"city": "Lyon", "days": 3}'
BAD = '{"city": "Lyon"}'
PLANS = {
    "rewoo": ["Plan: So.\n#E1 = LLM[So?]", "Evidence."],
    "compiler": ["Thought: So.\n1. join()"],
    "phased": ["So."],
}


def write_answer(loop: str, answer: str) -> str:
    """A reply in which a loop gives this answer."""
    match loop:
        case "react":
            return f"Thought: So.\nFinal Answer: {answer}"
        case "json":
            return f'{{"thought": "so", "tool": "final_answer", "tool_input": {answer}}}'
        case "codeact":
            return f"THOUGHT 1:\nSo.\nACTION 1:\n```python\nstop({answer})\n```"
        case "compiler":
            return f"Thought: So.\nFinish: {answer}"
    return answer


def script(loop: str, *answers: str) -> list[str]:
    return [*PLANS.get(loop, ()), *(write_answer(loop, each) for each in answers)]


def agent(loop: str, output: Any, *answers: str, journal: Any = False, **fields: Any) -> plait.Agent[Any]:
    model = plait.Scripted(script(loop, *answers), by_turn=False)
    return plait.Agent(loop, model=model, journal=journal, output=output, can_ask=False, **fields)


LOOPS = ["react", "json", "tool_calling", "rewoo", "compiler", "phased", "codeact"]
