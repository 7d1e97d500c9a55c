"""The shape of a timeline's items: the JSON that `timeline.py` makes and `page/braid.js` draws.

A text is [text, number of characters left out]; `/api/runs/ID/text` returns the rest.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

Text: TypeAlias = list[Any]
ItemKind: TypeAlias = Literal["model", "call", "code", "output", "note", "wait"]


class FailedAttempt(TypedDict, total=False):
    """A failed attempt at a model call. `lost` is what the endpoint turned out not to take, `then` what followed."""

    attempt: int
    status: int | None
    text: Text
    lost: str
    then: str


TokenCounts = TypedDict(
    "TokenCounts", {"in": int, "out": int, "cached": int, "cache_writes": int, "reasoning_tokens": int}, total=False
)


class ItemFields(TokenCounts, total=False):
    """The fields of an item besides its `id`, `kind` and `step`, and `at`, when it began in seconds since 1970.

    - `model`, a request and its reply: `phase`, `model`, `state` (asking, failed, done), `errors`, `wire` (the `seq` of
      its requests), `seconds`. With a reply: `parts` (the names of further fields with its texts: `thought1`,
      `action2`, `answer3`; `hosted0`: a call that the provider made; `sources0`: what the text cites), `reply` (a text
      without parts), `reasoning`, `finish`, `cost`, `estimated` and its tokens: `in`, `out`, `cached`, `cache_writes`,
      `reasoning_tokens`.
    - `call`: `tool`, `input`, `state` (asked, running, done), `seconds`. When done: `text` (the observation), `trouble`
      ("" for none), `note` (what was added for the model), `files` (what the result shows, in words, by id),
      `edited` (the user gave this fork another result). `children` are the child runs that it started, with how they
      ended ("" while they go on).
    - `code` has its `code`; it and `output` (of code that goes on): `output`, `error`, `line` (of the error), `lost`
      (the session is gone), `files`, `seconds`.
    - `note`: `word` (its kind), `sort` (its mark: see `SORTS`), `text`.
    - `wait`, a question to the user: `ask` (its kind), `text`, `call` (the key of the call that it is about, or ""),
      `server` (the MCP server that asks, if one does), `tool` and `given` (the call's input), `why` (the text without
      the call itself), `told` (the answer, None while it is open). It and its call have what the user answered:
      `approved` (None: no approval), `by` (the user's name, "" if that is not known), `answered` (when), `changed` (the
      input that the user gave the call instead).
    """

    phase: str
    model: str
    state: Literal["asking", "failed", "asked", "running", "done"]
    errors: list[FailedAttempt]
    wire: list[int]
    seconds: float
    parts: list[str]
    reply: Text
    reasoning: Text
    finish: str
    cost: float | None
    estimated: bool
    tool: str
    input: Text
    text: Text
    trouble: str
    note: Text
    files: dict[str, str]
    children: dict[str, str]
    edited: bool
    code: Text
    output: Text
    error: Text
    line: int | None
    lost: bool | str
    word: str
    sort: str
    ask: str
    server: str
    call: str
    given: str
    why: Text
    changed: str
    answered: float
    by: str
    told: Text | None
    approved: bool | None
