"""Binds calls: names, types and defaults, once, before any guard sees the call.

Guards are hooks, grounding, taint, the loop breaker and approvals. They and the tool get one and the same input. The
journal has its JSON form. A call that goes on in another process has the Python values again, or it is not made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, structs

from plait.core import JSON, Call
from plait.core.call_check import place_arguments
from plait.core.errors import BadInput
from plait.core.text import escape_hidden
from plait.journal import codec
from plait.runtime.calls.artifacts import ArtifactStore
from plait.tools import Toolset
from plait.tools.end_run import EndRun
from plait.tools.input_json import NoJsonForm, to_json
from plait.tools.render import describe_bytes

SHOWN_BYTES = 100  # that are no text, in a question about a call
REBINDS = 4
"""How often the input of one call may be changed or edited."""


class BoundCall(Struct, frozen=True):
    """A call as guards see it and as its tool gets it.

    `call.input` is an object by parameter name, without the `Context`. `values` are the same in Python, and `filled`
    names those that are defaults. `error` says why the call cannot be bound, and the call is as it was given. `words`
    has the JSON that the user or a hook gave for a parameter, where `call.input` has another one.
    """

    call: Call
    values: dict[str, Any] = {}
    filled: frozenset[str] = frozenset()
    error: str = ""
    words: dict[str, JSON] = {}

    @property
    def written(self) -> Call:
        """The call without the defaults."""
        if not self.filled:
            return self.call
        return structs.replace(self.call, input={k: v for k, v in self.call.input.items() if k not in self.filled})


class CallBinder:
    """Binds the calls of one run. `scrub` removes secrets, as the journal does."""

    def __init__(self, tools: Toolset, artifacts: ArtifactStore, scrub: Callable[[bytes], bytes] = bytes) -> None:
        self._tools, self._artifacts, self._scrub = tools, artifacts, scrub

    def bind(self, call: Call) -> BoundCall:
        """Bind a call of the loop, or say in `error` why that is impossible."""
        try:
            return self._bind(call, exact=call.by_code)
        except BadInput as why:
            return BoundCall(call, error=str(why))

    def bind_changed(
        self, call: Call, before: BoundCall, is_same: Callable[[Any, Any], bool] | None = None
    ) -> BoundCall:
        """Bind the input that a hook gave a bound call. What it left is not converted again. Raises `BadInput`."""
        is_same = is_same or _same
        known = before.call.input
        given = call.input.items() if isinstance(call.input, dict) else ()
        kept = {n: before.values[n] for n, each in given if n in before.values and is_same(known[n], each)}
        bound = self._bind(call, kept)
        bound = structs.replace(bound, filled=bound.filled | (before.filled & kept.keys()))
        words = {name: each for name, each in before.words.items() if name in kept}
        return self._add_words(bound, self._place(call, by_name=True) | words)

    def restore(self, given: Call, recorded: Call, words: Mapping[str, JSON] | None = None) -> BoundCall:
        """Return a bound call of the record, with the Python values of the call as it was given. What differs in the
        record is bound from `words`, or else from the record.

        Raises `BadInput` if the tool would get another input than the guards have seen.
        """
        bound = before = BoundCall(given)
        for changed in (None, *([recorded.input | words] if words else ()), recorded.input):
            with suppress(BadInput):
                if changed is None:
                    bound = before = self._bind(given, exact=given.by_code)
                    if not given.by_code:
                        bound = before = self._add_words(bound, self._place(given))
                else:
                    bound = self.bind_changed(structs.replace(recorded, input=changed), before, self.is_recorded)
                if self.is_recorded(bound.call.input, recorded.input):
                    return structs.replace(bound, call=structs.replace(bound.call, by_code=recorded.by_code))
        raise BadInput(
            f"{given.tool}: the tool no longer takes this input as it was when the call was decided.",
            hint="Make the call again.",
        )

    def is_recorded(self, value: Any, recorded: Any) -> bool:
        """Return whether `recorded` is the stored form of a JSON value, in which secrets are replaced."""
        return _same(value, recorded) or self._scrub(codec.encode(value)) == codec.encode(recorded)

    def _bind(self, call: Call, kept: Mapping[str, Any] | None = None, *, exact: bool = False) -> BoundCall:
        """Bind a call. `kept`: as in `Tool.bind_values`. `exact`: its input is that of code. Raises `BadInput`."""
        tool = self._tools.get(call.tool)
        if tool is None:
            raise BadInput(f"There is no tool named {call.tool!r}.")
        given = copy.deepcopy(call.input)  # nobody else holds what the tool gets
        values = tool.bind_values(self._artifacts.fill_input(given, tool, exact), kept)
        keep = self._artifacts.put_away
        try:
            try:
                shown = {name: to_json(value, keep) for name, value in values.items()}
            except NoJsonForm:
                placed = self._place(call, by_name=kept is not None, exact=exact)
                shown = {name: to_json(value, keep, placed[name]) for name, value in values.items()}
        except (RecursionError, ValueError, NoJsonForm) as why:
            said = "the input is nested too deeply" if isinstance(why, RecursionError) else str(why)
            raise BadInput(f"{tool.name}: {said}.") from None
        defaults: dict[str, Any] = {}
        for name, make in tool.signature.defaults.items():
            if name not in values:
                with suppress(Exception, SystemExit, EndRun):  # a default that JSON cannot hold stays Python's own
                    value = make(values | defaults)
                    shown[name] = to_json(value, None)
                    defaults[name] = value
        order = [*tool.signature.schema["properties"], *values]
        shown = {name: shown[name] for name in order if name in shown}
        return BoundCall(structs.replace(call, input=shown), values | defaults, frozenset(defaults))

    def _place(self, call: Call, *, by_name: bool = False, exact: bool = False) -> dict[str, Any]:
        """Return the JSON from which the value of each parameter is made."""
        if (tool := self._tools.get(call.tool)) is None:
            return {}
        given = copy.deepcopy(self._artifacts.fill_exact_input(call.input) if exact else call.input)
        return place_arguments(tool.signature.schema, given, tool.signature.spread, by_name=by_name)[0]

    def _add_words(self, bound: BoundCall, words: Mapping[str, JSON]) -> BoundCall:
        seen = bound.call.input
        return structs.replace(bound, words={n: each for n, each in words.items() if not _same(each, seen[n])})


def replace_input(call: Call) -> Call:
    """Return the call with a copy of its input, for code of the user's."""
    return structs.replace(call, input=copy.deepcopy(call.input))


def input_of(call: Call, bound: BoundCall | None = None) -> str:
    """Return the input of a call as JSON, for people and models, with escapes for hidden characters. With the `bound`
    call, long bytes that are no text are described."""
    values = bound.values.items() if bound is not None else ()
    binary = {n: each for n, each in values if isinstance(each, bytes) and len(each) > SHOWN_BYTES}
    known = {n: f"<{text}>" for n, each in binary.items() if not (text := describe_bytes(each)).endswith("(text)")}
    return escape_hidden(msgspec.json.encode(call.input | known if known else call.input).decode())


def _same(one: Any, other: Any) -> bool:
    return codec.encode(one) == codec.encode(other)
