"""The tool calls of a reply that is still arriving, in all forms that endpoints send. Pure.

Public reports (GitHub, as of November 2026) of what this module reads:

- A call without the wrapper `function`, or the older `function_call`: QwenLM/qwen-code #6240.
- All calls with index 0, so that a whole input ends a call: ollama/ollama #15457, mcowger/plexus #691.
- The name in every piece: NousResearch/hermes-agent #8259. An id for each piece: poolsideai/pool #9.
- The same call once more, at another index or in a whole message: mudler/LocalAI #9722, ENTERPILOT/GoModel #1068.
- `{}` before the input: BerriAI/litellm #4537, openai/openai-agents-js #712. The input twice: vllm-project/vllm #51697.
- Each piece with all pieces before it: NousResearch/hermes-agent #35592, vercel/ai #12052.

No public report was found of the other names in `_INPUTS`, a fence or tags around an input, a call of nothing beside
a text, and the inputs "undefined" and "[object Object]", which JavaScript writes by mistake. Only the tests send them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from plait.core import Call
from plait.core.arguments import is_no_input
from plait.models.wires.odd_json import mend, read_values
from plait.models.wires.repetition import LONG, CircleCut
from plait.models.wires.reply_text import FirstObject

CALL_TYPES = ("tool_use", "tool_call", "function_call", "function")
"""The types of parts, blocks and items that are calls."""
OLDER = -1
_WRAPPERS = ("function", "functionCall", "function_call", "custom")
_INPUTS = ("arguments", "args", "input", "parameters", "params", "kwargs", "parsed_arguments")
_MARKUP = re.compile(r"\s*(?:```\w*|<[/|]?\w[\w:|.-]{0,40}>)\s*")
"""A line of a fence or tag that a server left around an input."""


def read_call(given: Mapping[str, Any]) -> tuple[str, str, Any]:
    """Return the id, the name and the input of a call in any form: with or without a wrapper, with any known name."""
    inner = next((given[key] for key in _WRAPPERS if isinstance(given.get(key), Mapping)), given)
    inputs = [part[key] for part in (inner, given) for key in _INPUTS if part.get(key) is not None]
    name = inner.get("name") or given.get("name") or (given.get("function") if inner is given else "")
    id = given.get("call_id") or given.get("id") or inner.get("id")
    return str(id or ""), str(name or ""), next(filter(None, inputs), inputs[0] if inputs else None)


class PendingCall:
    """A tool call whose arguments are still arriving. `value` is its input if it came as JSON, not as text. `group` is
    the number of the whole message that states the call; 0 if it came in pieces, `OLDER` if in their older form."""

    def __init__(self, index: Any, group: int) -> None:
        self.index, self.group = index, group
        self.id = self.name = ""
        self.arguments: list[str] = []
        self.cut = CircleCut((LONG,), may_be_data=True)
        self.seen = 0
        self.value: Any = None
        self.call, self.is_damaged = Call(""), False
        self._object, self._scanned = FirstObject(), 0

    @property
    def is_empty(self) -> bool:
        """Return whether no input has come."""
        return self.value in (None, {}, "") and not self.arguments

    def has_whole_input(self) -> bool:
        """Return whether a JSON object has come that is complete and not empty."""
        for piece in self.arguments[self._scanned :]:
            self._object.end_in(piece)
        self._scanned = len(self.arguments)
        if not self._object.open or (self.value and not isinstance(self.value, str)):
            return True
        came = self.arguments
        return len(came) > 1 and came[-1].startswith(came[0]) and any(read_values(came[-1])[0])  # snapshots

    def is_other(self, index: Any, id: str, name: str, given: Any) -> bool:
        """Return whether a piece with this name begins another call, although it has the same place."""
        if id and self.id and id != self.id:  # each piece may have its own id
            is_more = isinstance(given, str) and given.strip() and (self.is_empty or not given.lstrip().startswith("{"))
            return not (is_more and index is not None and name == self.name) or self.has_whole_input()
        return bool(self.name) and (
            name != self.name or self.has_whole_input() or (index is None and not self.arguments)
        )

    def read(self) -> None:
        """Set `call`, and `is_damaged` if a part of its input cannot be read."""
        pieces = self.arguments or ([self.value] if isinstance(self.value, str) else [])
        text, is_damaged = mend("".join(pieces))
        given = read_input(text, pieces) if text.strip() else None
        value, is_odd = mend(given if given or isinstance(self.value, str) or self.value is None else self.value)
        is_none = value == {} or (isinstance(value, str) and (is_no_input(value) or value.strip() == "undefined"))
        self.call = Call(mend(self.name)[0], None if is_none else value, mend(self.id)[0])
        self.is_damaged = is_damaged or is_odd or value is False or value == "[object Object]"


def merge_calls(pending: Sequence[PendingCall]) -> list[PendingCall]:
    """Return the calls, each once.

    The same id, name and input is a repetition, and so is a name without an input at the place of its call. What a
    whole message states again is a repetition as well, also without an id, and replaces a call of the same tool whose
    pieces are incomplete. All other calls are made.
    """
    for each in pending:
        each.read()
    # A call of nothing may stand beside a text.
    pending = [each for each in pending if each.name.strip() or each.call.input is not None or each.is_damaged]
    if len(pending) < 2:
        return pending
    made: list[PendingCall] = []
    ids: set[tuple[str, ...]] = set()
    came: Counter[tuple[Any, ...]] = Counter()
    added: Counter[tuple[Any, ...]] = Counter()
    for each in pending:
        call, group = each.call, each.group
        same = (call.tool, json.dumps(call.input, sort_keys=True))
        place = "" if each.index is None else f"at {each.index}"
        if (call.id and (call.id, *same) in ids) or (each.is_empty and (call.id or place, call.tool) in ids):
            continue
        ids |= {(call.id, *same), *((mark, call.tool) for mark in (call.id, place) if mark)}
        came[group, same] += 1
        if came[group, same] > added[same]:
            added[same] += 1
            made.append(each)
    stated = Counter(each.call.tool for each in made if each.group > 0)
    whole: list[PendingCall] = []
    for each in made:
        is_half = each.is_damaged or not isinstance(each.call.input, dict)
        if each.group <= 0 and is_half and stated[each.call.tool]:
            stated[each.call.tool] -= 1
        else:
            whole.append(each)
    return whole


def read_input(text: str, pieces: Sequence[str]) -> Any:
    """Return the input in a text, or the text as the model wrote it: the reader of the call reports the error. `{}` may
    stand before the input. The input may come twice, or each piece with all pieces before it."""
    values, rest = read_values(text)
    if rest and all(map(_MARKUP.fullmatch, rest.split("\n"))):
        rest = ""
    given = [each for each in values if each != {}] or values
    if not rest and (len(values) == 1 or all(isinstance(each, dict) and each == given[0] for each in given)):
        return given[0]
    if all(later.startswith(earlier) for earlier, later in pairwise(pieces)):
        values, rest = read_values(pieces[-1])
        if not rest and len(values) == 1 and isinstance(values[0], dict):
            return values[0]
    return text
