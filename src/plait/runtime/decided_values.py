"""How the journal holds what guards decide about values: the changes they make, and what a decision is about."""

from __future__ import annotations

import copy
from typing import Any

from msgspec import Struct, convert, to_builtins

from plait.core import Call, Outcome, Think
from plait.runtime.guard import Attempt, StartChild


def digested(value: Any) -> Any:
    """Return the part of a value that an answer or a decision is about: of a call its input, in JSON's terms."""
    if isinstance(value, Call):
        return [value.tool, value.input]
    if isinstance(value, Attempt):
        return [value.model.spec, value.max_tokens, value.body.decode("utf-8", "replace")]
    if isinstance(value, StartChild):
        return value.run  # it follows from the question
    return to_builtins(value, enc_hook=repr)


def write_change(before: Any, after: Any) -> Any:
    """Return what is recorded of a changed value: of an object the fields that differ, of messages only the changed
    ones by their place, if there are as many as before."""
    if not isinstance(after, Struct) or type(after) is not type(before):
        return to_builtins(after, enc_hook=repr)
    fields = {
        name: to_builtins(new, enc_hook=repr)
        for name in after.__struct_fields__
        if (new := getattr(after, name)) != getattr(before, name)
    }
    if isinstance(before, Think) and isinstance(after, Think):
        pairs = enumerate(zip(before.messages, after.messages, strict=False))
        if "messages" in fields and len(before.messages) == len(after.messages):
            fields["messages"] = {str(k): to_builtins(new) for k, (old, new) in pairs if old != new}
    return fields


def read_change(before: Any, change: Any) -> Any:
    """Return the changed value, of the value before and what is recorded of the change."""
    if isinstance(change, Attempt):
        return change
    if not isinstance(before, Struct):
        return convert(change, type(before)) if isinstance(before, tuple) else copy.deepcopy(change)
    if isinstance(before, Outcome) and "type" in change:
        return convert(change, Outcome)
    fields = dict(change)
    if isinstance(before, Think) and isinstance(messages := fields.get("messages"), dict):
        fields["messages"] = [messages.get(str(k), to_builtins(old)) for k, old in enumerate(before.messages)]
    return convert({**to_builtins(before, enc_hook=repr), **fields}, type(before))
