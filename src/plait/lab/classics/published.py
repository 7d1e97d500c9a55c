"""The published figures that the classic tables show beside one's own: numbers, names of models, letters of tasks."""

from __future__ import annotations

from msgspec import Struct

from plait.core import Usage
from plait.models.prices import Rate

# Aidan Reese and Osi Ogbuji: "reAct pt. 2", OoriChat.
PHASES_SOURCE = "reAct pt. 2 (OoriChat)"
_DEAR, _GPT4, _CHEAP, _SMALL, _MIDDLE = "gpt-4-turbo", "gpt-4", "gpt-3.5-turbo", "airoboros-7b", "llongorca-13b"
LOCAL_RATE = Rate("per_1k", per_1k_tokens=5e-06)
RATES = {
    _DEAR: Rate("tokens", input=10.0, output=30.0),
    _GPT4: Rate("tokens", input=30.0, output=60.0),
    _CHEAP: Rate("tokens", input=1.0, output=2.0),
    _SMALL: LOCAL_RATE,
    _MIDDLE: LOCAL_RATE,
}
"""The prices at which one set of token counts gives all published costs."""
TOKENS = {"reason and react": Usage(14_860, 1_840), "reply": Usage(14_800, 1_120)}
"""These token counts. They are inferred from the costs: the account does not publish any."""


class PublishedRow(Struct, frozen=True):
    """A row of the published table: the model of each phase, seconds and USD."""

    models: dict[str, str]
    seconds: int
    usd: float


PHASE_ROWS = tuple(
    PublishedRow({"reason": first, "react": first, "reply": last}, seconds, usd)
    for first, last, seconds, usd in (
        (_DEAR, _DEAR, 49, 0.38540),
        (_GPT4, _GPT4, 65, 1.06740),
        (_CHEAP, _DEAR, 43, 0.20014),
        (_CHEAP, _CHEAP, 22, 0.03558),
        (_SMALL, _DEAR, 21, 0.18168),
        (_SMALL, _CHEAP, 17, 0.01712),
        (_SMALL, _MIDDLE, 7, 0.00016),
    )
)
RATE_NOTE = (
    "The account prints 0.00000005 USD per 1,000 tokens for its local models. At this rate, 3 rows do not have the "
    "printed costs: 0.18160 instead of 0.18168, 0.01704 instead of 0.01712, 0.00000 instead of 0.00016. At 0.000005 "
    "USD, every row has its printed cost."
)

TOKENS_SOURCE = "ReWOO: Reasoning WithOut Observation, a deeper look"
LOOP_TOKENS = {"react": 3_265, "rewoo": 2_661}
"""Tokens by loop, on one question."""

TASKS_SOURCE = "ReAct REPL Agent"
TASK_MODELS = ("gpt-3.5-turbo", "text-davinci-003", "gpt-4")
_DONE, _FLAW, _NOT = "done", "flaw", "not done"
TASK_CELLS = {
    "A": ((_DONE, 4), (_DONE, 3), (_DONE, 4)),
    "B": ((_DONE, 5), (_DONE, 7), (_DONE, 7)),
    "C": ((_NOT, 9), (_FLAW, 5), (_DONE, 11)),
    "D": ((_FLAW, 9), (_DONE, 7), (_DONE, 11)),
    "E": ((_NOT, 10), (_DONE, 11), (_DONE, 10)),
    "F": ((_NOT, 12), (_NOT, 12), (_DONE, 15)),
}
"""The mark and the steps of each task with each of `TASK_MODELS`."""

WIRE_SOURCE = "How ReAct Prompting Works in Detail"
REQUEST_TOKENS = ((313, 56), (464, 40), (520, 40), (580, 20))
"""Tokens in and out of each request, with gpt-3.5-turbo."""
