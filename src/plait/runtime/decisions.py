"""What guards decide, and what the user answers, as the journal holds it.

The key of a decision names its entry, its guard and what it is about: the input before the entry ("?"), the result
after it ("!"). So a decision counts for that very value. An open question is one without a result."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, MsgspecError, Struct, UnsetType, convert, structs, to_builtins

from plait.core import Call, Outcome, Think
from plait.core.errors import ConfigError
from plait.core.notebook import repr_short
from plait.journal.keys import read_key
from plait.journal.records import Asking, Decision, IntentRecord, ResponseRecord, ResultRecord
from plait.runtime.calls.bound_calls import REBINDS
from plait.runtime.guard import (
    AskApproval,
    Attempt,
    Entry,
    Guard,
    RecordEnds,
    Refuse,
    StartChild,
    Suspend,
    make_open_question,
)
from plait.runtime.run_journal import RunJournal

if TYPE_CHECKING:
    from plait.runtime.performers.base import BasePerformer


class Decisions:
    """The decisions of one run."""

    def __init__(self, journal: RunJournal) -> None:
        self.journal = journal

    def name(self, entry: Entry, guard: Guard, mark: Literal["?", "!"], value: Any, asked: str = "") -> str:
        """Return the key of a guard's decision about a value. `asked` is the text of a further question about it."""
        about = digested(value)
        return f"{entry.key}{mark}{guard.name}@{self.journal.digest([about, asked] if asked else about)}"

    async def find(self, entry: Entry, key: str) -> Decision | None:
        """Return a decision on record; None if there is none. Raises `Suspend` if the user has not answered yet."""
        found = self.journal.find(key)
        if found.value is not UNSET:
            decision: Decision = found.value
            entry.decided[read_key(key).guard] = decision
            return decision
        if not found.is_open:
            return None
        if self.journal.replay:
            raise RecordEnds
        at = read_key(key)
        if self.journal.decided[at.owner + at.mark][at.guard] != key:  # a later question closed it: it opens again
            await self.journal.write(IntentRecord(key, entry.step, "decision", found.asked))
        raise Suspend(make_open_question(entry.run, key, entry.step, found.asked))

    async def record(
        self, entry: Entry, performer: BasePerformer, guard: Guard, key: str, made: Any, result: Any | UnsetType = UNSET
    ) -> Decision:
        """Record what a guard decided about an effect, or about its result. Raises `Suspend` for a question."""
        if isinstance(made, AskApproval):
            asking = structs.replace(performer.ask(entry, made.text, result), reasons=made.reasons)
            await self.journal.write(IntentRecord(key, entry.step, "decision", asking))
            raise Suspend(make_open_question(entry.run, key, entry.step, asking))
        if isinstance(made, Refuse):
            decision = Decision("refuse", text=made.reason)
        else:
            value = entry.effect if result is UNSET else result
            _require_fit(guard, value, made)
            change = made if isinstance(made, Attempt) else write_change(value, made)
            try:
                read_change(value, change)
            except (TypeError, ValueError, MsgspecError) as why:
                said = f"The guard '{guard.name}' returned a {type(value).__name__} that cannot be recorded: {why}."
                raise ConfigError(said, hint="Give its fields values of their types.") from why
            decision = Decision("change", change)
        entry.decided[guard.name] = decision
        if not isinstance(entry.effect, Attempt):  # the attempt's own intent has the change
            self.journal.buffer(ResultRecord(key, entry.step, "decision", decision))
        return decision

    def question(self, key: str) -> Asking:
        """Return the question that the user has answered."""
        asked: Asking = self.journal.find(key).asked
        return asked

    async def ask_again(self, entry: Entry, key: str, why: str) -> None:
        """Open a question again whose answer cannot be taken. Raises `Suspend`."""
        asking = self.question(key)
        said = f"The edited input does not fit. {why}\n"
        asking = structs.replace(asking, text=said + asking.text.rpartition(said)[2])
        await self.journal.write(IntentRecord(key, entry.step, "decision", asking))
        raise Suspend(make_open_question(entry.run, key, entry.step, asking))

    def follow_before(self, entry: Entry) -> Decision | None:
        """Change an entry's effect as the guards did on record. Return the refusal if it ended so; None if it did not.
        After a change all guards may have decided again, so each may have decided several times."""
        guards = self.journal.decided.get(f"{entry.key}?", {})
        for _ in range(1 + REBINDS if guards else 0):
            digest = self.journal.digest(digested(entry.effect))
            found = [self.journal.find(f"{entry.key}?{name}@{digest}").value for name in guards]
            decision = next((each for each in found if each is not UNSET and each.action in ("change", "refuse")), None)
            if decision is None or decision.action == "refuse":
                return decision
            entry.effect = read_change(entry.effect, decision.value)
        return None

    def follow_after(
        self, entry: Entry, result: Any, apply: Callable[[Any, Decision], Any]
    ) -> tuple[Any, dict[str, Decision]]:
        """Return what the guards made of a result on record, and their decisions. A decision counts only for the value
        that it was about. Each guard has decided once about the result that the loop got: its newest decision."""
        left, decided = dict(self.journal.decided.get(f"{entry.key}!", {})), dict[str, Decision]()
        while left:
            digest = f"@{self.journal.digest(digested(result))}"
            name = next((each for each in reversed(left) if left[each].endswith(digest)), None)
            if name is None:
                break
            if (decision := self.journal.find(left.pop(name)).value) is not UNSET:
                decided[name] = decision
                result = apply(result, decision)
        return result, decided

    def note(self, entry: Entry, mark: Literal["?", "!"]) -> None:
        """Tell an entry the decisions on record."""
        for name, key in self.journal.decided.get(entry.key + mark, {}).items():
            if (value := self.journal.find(key).value) is not UNSET:
                entry.decided[name] = value


def _require_fit(guard: Guard, value: Any, made: Any) -> None:
    """Raise `ConfigError` if what a guard returned cannot stand in the place of a value."""
    wrong, wanted = f"returned {repr_short(made)}", f"the {type(value).__name__}, perhaps changed"
    match value, made:
        case Call(), Call():
            fits = (made.tool, made.by_code) == (value.tool, value.by_code)
            wanted = "the same call with another input"
        case Think(), Think():
            fits, wanted = made.phase == value.phase, "a request of the same phase"
        case Attempt(), Attempt():
            limit, most = made.max_tokens, value.max_tokens
            is_less = type(limit) is int and limit > 0 and (most is None or limit <= most)
            fits = is_less and dataclasses.replace(made, max_tokens=most) == value
            wanted = "the same attempt with a smaller max_tokens"
        case StartChild(), StartChild():
            fits = made.run == value.run and made.agent is value.agent
            wanted = "the same child run with another question"
        case ResponseRecord(), _:
            fits, wrong, wanted = False, "changed the response of an attempt", "it as it is, and change the reply"
        case _:
            fits = type(made) is type(value) or (isinstance(value, Outcome) and isinstance(made, Outcome))
    if not fits:
        hint = f"Return {wanted}, plait.Refuse(...) or plait.AskApproval(...)."
        raise ConfigError(f"The guard '{guard.name}' {wrong}.", hint=hint)


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
    types = {field.name: field.type for field in structs.fields(before)}
    return structs.replace(before, **{name: convert(value, types[name]) for name, value in fields.items()})
