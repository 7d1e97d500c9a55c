"""Takes entries through the guards of a run.

Theory of operation. `admit` takes an entry to its guards before it is done, `settle` takes the result through the same
guards, the last first. Both look at the record: what is decided there is not decided again. Between them somebody
carries the entry out (`Engine.carry_out`), or gives it up (`Admitted.release`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, UnsetType, structs

from plait.core.errors import BadInput, ConfigError
from plait.journal.keys import read_key
from plait.journal.records import Asking, Decision, IntentRecord, ResultRecord
from plait.runtime.bound_calls import REBINDS
from plait.runtime.decided_values import digested, read_change, write_change
from plait.runtime.guard import (
    AskApproval,
    Attempt,
    Entry,
    Guard,
    RecordEnds,
    Refuse,
    Suspend,
    open_question,
)
from plait.runtime.run_journal import NOTHING, FoundEntry, RunJournal

if TYPE_CHECKING:
    from plait.runtime.performers.base import BasePerformer


@dataclass
class Admitted:
    """An entry that the guards have let through: it holds what they reserved. `result` is that of an entry that is not
    done: it was refused, or could not be bound; then nothing is held."""

    entry: Entry
    performer: BasePerformer
    guards: Sequence[Guard]
    found: FoundEntry
    result: Any | UnsetType = UNSET

    def release(self) -> None:
        """Give up an entry that has no result in this process."""
        if self.result is UNSET:
            for guard in reversed(self.guards):
                guard.release(self.entry)

    async def tell(self, result: Any, guards: Sequence[Guard] | None = None) -> None:
        """Tell the guards a result that they do not decide about."""
        waiting = list(self.guards if guards is None else guards)
        try:
            while waiting:
                await waiting.pop().after(self.entry, result, False)
        except BaseException:
            for guard in reversed(waiting):
                guard.release(self.entry)
            raise


class Approved(NamedTuple):
    """The user's approval of an effect: the guard that asked, its question, and the answer."""

    guard: str
    asking: Asking
    decision: Decision


def _ignore(*_: object, **__: object) -> None:
    """Note nothing."""


class Chain:
    """The guards of one run, in their order. `remark` notes something about a new entry: kind, text, step and key."""

    def __init__(self, guards: Iterable[Guard], journal: RunJournal, remark: Callable[..., None] = _ignore) -> None:
        self.guards = sorted(guards, key=lambda guard: guard.order)
        self.journal, self._remark = journal, remark
        names = [guard.name for guard in self.guards]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ConfigError(f"Two guards are named {twice!r}.", hint="Leave one out, or give it another name.")
        # By the type of an effect: who sees it, who sees its result, and both.
        self._before: dict[type, tuple[Guard, ...]] = {}
        self._after: dict[type, tuple[Guard, ...]] = {}
        self._either: dict[type, tuple[Guard, ...]] = {}

    def at(self, effect: Any, *, after: bool = False) -> tuple[Guard, ...]:
        """Return the guards that see an effect, or its result."""
        kind = type(effect)
        if kind not in self._either:
            self._before[kind] = tuple(guard for guard in self.guards if kind in guard.points)
            self._after[kind] = tuple(
                guard
                for guard in self.guards
                if kind in (guard.points if guard.points_after is None else guard.points_after)
            )
            wanted = {*self._before[kind], *self._after[kind]}
            self._either[kind] = tuple(guard for guard in self.guards if guard in wanted)
        return (self._after if after else self._before)[kind]

    def holds_text(self, *effects: type) -> bool:
        """Return whether the text of such results must not be shown before the guards have seen the whole."""
        return any(
            kind in (guard.points if guard.points_after is None else guard.points_after)
            for guard in self.guards
            if guard.holds_text
            for kind in effects
        )

    def _guards_of(self, entry: Entry) -> tuple[Guard, ...]:
        """Return the guards of an entry: also one that no longer acts there, if it has a decision on record."""
        found = self._either.get(type(entry.effect))
        if found is None:
            self.at(entry.effect)
            found = self._either[type(entry.effect)]
        if decided := self.journal.decided.get(f"{entry.key}?", {}):
            return tuple(guard for guard in self.guards if guard in found or guard.name in decided)
        return found

    # -- before

    async def admit(self, entry: Entry, performer: BasePerformer) -> Admitted:
        """Restore an entry that is on record, or take a new one through its guards.

        Raises `Suspend` at the first question, and signals: then nothing is reserved for the entry. Raises `RecordEnds`
        where a replay comes to new work.
        """
        journal, found = self.journal, self.journal.find(entry.key)
        entry.remark = partial(self._remark, step=entry.step, key=entry.key)  # one that is on record is not made again
        if found is not NOTHING:
            entry.recorded = found.value is not UNSET
            entry.begun = entry.recorded or found.is_open
            guards = self._guards_of(entry)
            try:
                performer.restore(entry, found)
            except BadInput as why:
                return Admitted(entry, performer, guards, found, performer.describe_unbound(entry, why))
            self._note_decisions(entry, "?")
            for i, guard in enumerate(guards):
                try:
                    guard.restore(entry, entry.decided.get(guard.name))
                except BaseException:
                    for each in reversed(guards[:i]):
                        each.release(entry)
                    raise
            return Admitted(entry, performer, guards, found)
        if performer.work == "check":
            if journal.replay or journal.is_seen(entry.key, False):
                return self._admit_seen_check(entry, performer)
        elif journal.replay:
            raise RecordEnds
        try:
            performer.bind(entry)
        except BadInput as why:
            for guard in self.at(entry.effect):
                if guard.sees_unbound:  # it may raise a signal; the entry reserves nothing
                    await guard.before(entry)
                    guard.release(entry)
            return Admitted(entry, performer, self._guards_of(entry), found, performer.describe_unbound(entry, why))
        guards = self._guards_of(entry)
        if not guards:
            return Admitted(entry, performer, guards, found)
        edit: Approved | None = None
        satisfied: set[str] = set()
        taken: set[str] = set()
        for _ in range(1 + REBINDS):
            if (decided := await self._pass(entry, performer, guards, edit, satisfied, taken)) is None:
                return Admitted(entry, performer, guards, found)
            guard, key, decision = decided
            if decision.action == "refuse":
                result = performer.refuse(entry, decision.text, is_after=False, by_user=decision.by_user)
                return Admitted(entry, performer, guards, found, result)
            before = entry.effect
            try:
                if decision.action == "edit":
                    edit, satisfied = Approved(guard.name, self._asking_of(key), decision), set()
                    taken.add(key)
                    performer.rebind(entry, structs.replace(entry.effect, input=decision.value), decision)
                else:
                    performer.rebind(entry, read_change(entry.effect, decision.value), decision)
                    is_same = entry.effect == before  # in other words
                    edit, satisfied = (edit, {*satisfied, guard.name}) if is_same else (None, set())
            except BadInput as why:
                if decision.action == "edit":  # the user learns it, and the question stays open
                    await self._ask_again(entry, key, str(why))
                title = getattr(guard, "title", f"guard {guard.name}")
                said = f"The call is refused: The {title} gave it an input that the tool does not take. {why}"
                result = performer.refuse(entry, said, is_after=False, by_user=False)
                return Admitted(entry, performer, guards, found, result)
        said = "The call is refused: Hooks changed its input again and again."
        if decision.action == "edit":
            said = "The call was edited too often. It was not made."
        result = performer.refuse(entry, said, is_after=False, by_user=False)
        return Admitted(entry, performer, guards, found, result)

    def _admit_seen_check(self, entry: Entry, performer: BasePerformer) -> Admitted:
        """Restore a check whose result the loop has seen. It has no row but the decisions about it."""
        guards = self._guards_of(entry)
        self._note_decisions(entry, "?")
        entry.recorded = True
        for guard in guards:
            guard.restore(entry, entry.decided.get(guard.name))
        for key in self.journal.decided.get(f"{entry.key}?", {}).values():
            if (found := self.journal.find(key)).value is UNSET:
                raise RecordEnds  # the question is open
            if (decision := found.value).action == "refuse":
                result = performer.refuse(entry, decision.text, is_after=False, by_user=decision.by_user)
                return Admitted(entry, performer, guards, found, result)
        return Admitted(entry, performer, guards, self.journal.find(entry.key))

    async def _pass(
        self,
        entry: Entry,
        performer: BasePerformer,
        guards: Sequence[Guard],
        edit: Approved | None,
        satisfied: Collection[str],
        taken: Collection[str],
    ) -> tuple[Guard, str, Decision] | None:
        """Return the first guard that does not let the effect pass, the key of its decision, and the decision; None if
        all do. `edit` is the answer by which the user made the effect. `satisfied` guards do not decide again. `taken`
        are the keys of all edits that led to this effect."""
        passed: list[Guard] = []
        entry.reasons.clear()
        acting, known = self._before[type(entry.effect)], self.journal.decided.get(f"{entry.key}?", {})
        try:
            for guard in guards:
                own = edit if edit is not None and edit.guard == guard.name else None
                if guard.name in satisfied:
                    guard.restore(entry, None)
                elif own is not None or guard.name in known:
                    decided = await self._decide_before(entry, performer, guard, own, taken)
                    if decided is not None:
                        return guard, *decided
                elif guard in acting:
                    made = await guard.before(entry)
                    if made is not entry.effect and (isinstance(made, Refuse | AskApproval) or made != entry.effect):
                        key = self._make_key(entry, guard, "")
                        return guard, key, await self._write_decision(entry, performer, guard, key, made, UNSET)
                passed.append(guard)
            return None
        finally:
            if len(passed) < len(guards):
                for guard in reversed(passed):
                    guard.release(entry)

    async def _decide_before(
        self, entry: Entry, performer: BasePerformer, guard: Guard, approved: Approved | None, taken: Collection[str]
    ) -> tuple[str, Decision] | None:
        """Return what a guard decides about an effect, or did on record, and the key of that; None if it lets it pass.

        It looks once more at what the user approved, by a yes or by an edit (`approved`). A question that says more
        than the last one about the same input has a key of its own: no answer to the first one is an answer to it. An
        edit that was `taken` is not the answer if the user comes back to the input that they had edited."""
        asked = ""
        while True:
            key = self._make_key(entry, guard, asked)
            decision = None if key in taken else await self._recorded(entry, key)
            if decision is not None:
                if decision.action != "yes":
                    return key, decision
                approved = Approved(guard.name, self._asking_of(key), decision)
            if decision is not None or not asked:
                made = await (
                    guard.confirm(entry, approved.asking, approved.decision) if approved else guard.before(entry)
                )
                if made is entry.effect or (not isinstance(made, Refuse | AskApproval) and made == entry.effect):
                    return None
            if decision is None or not isinstance(made, AskApproval):
                return key, await self._write_decision(entry, performer, guard, key, made, UNSET)
            if made.question == asked:  # they have read this
                guard.restore(entry, decision)
                return None
            asked = made.question

    def _make_key(self, entry: Entry, guard: Guard, asked: str) -> str:
        about = digested(entry.effect)
        return f"{entry.key}?{guard.name}@{self.journal.digest([about, asked] if asked else about)}"

    # -- after

    async def settle(self, admitted: Admitted, result: Any) -> Any:
        """Tell the guards the result, the last first; return it as they, and the user, change it.

        Raises `Suspend` at the first question: what the guards behind it decide comes when the entry is settled again.
        """
        entry, performer, journal = admitted.entry, admitted.performer, self.journal
        if not journal.is_new and (journal.replay or journal.is_seen(entry.key, entry.started)):
            return await self._settle_seen(admitted, result)
        waiting, deciding = list(admitted.guards), self._after[type(entry.effect)]
        decided = journal.decided.get(f"{entry.key}!", {})
        try:
            while waiting:
                guard = waiting.pop()
                if guard.name in decided:
                    found = await self._decide_after(entry, performer, guard, result)
                    result = self._apply(entry, performer, result, found)
                elif guard in deciding:
                    made = await guard.after(entry, result, True)
                    if made is not result and (isinstance(made, Refuse | AskApproval) or made != result):
                        key = f"{entry.key}!{guard.name}@{journal.digest(digested(result))}"
                        found = await self._write_decision(entry, performer, guard, key, made, result)
                        result = self._apply(entry, performer, result, found)
                else:
                    await guard.after(entry, result, False)
        except Suspend:
            await admitted.tell(result, waiting)
            raise
        except BaseException:
            for guard in reversed(waiting) if admitted.result is UNSET else ():  # of a refused entry nothing is held
                guard.release(entry)
            raise
        return result

    async def _settle_seen(self, admitted: Admitted, result: Any) -> Any:
        """Tell the guards a result that the loop has seen; return it as they left it. A decision counts only for the
        value that it was about: of each guard the newest."""
        entry, performer, journal = admitted.entry, admitted.performer, self.journal
        self._note_decisions(entry, "!")
        left, decided, value = dict(journal.decided.get(f"{entry.key}!", {})), dict[str, Decision](), result
        while left:
            digest = f"@{journal.digest(digested(value))}"
            name = next((each for each in reversed(left) if left[each].endswith(digest)), "")
            if not name:
                break
            if (found := journal.find(left.pop(name)).value) is not UNSET:
                decided[name] = found
                value = self._apply(entry, performer, value, found)
        for guard in reversed(admitted.guards):
            await guard.after(entry, result, False)
            result = self._apply(entry, performer, result, decided.get(guard.name))
        return value

    def _apply(self, entry: Entry, performer: BasePerformer, result: Any, decision: Decision | None) -> Any:
        if decision is None or decision.action == "yes":
            return result
        if decision.action == "refuse":
            return performer.refuse(entry, decision.text, is_after=True, by_user=decision.by_user)
        return read_change(result, decision.value)

    def refuse(self, entry: Entry, performer: BasePerformer, reason: str) -> Admitted:
        """Return an entry that is refused for a reason beside its guards; they are told its result."""
        result = performer.refuse(entry, reason, is_after=False, by_user=False)
        return Admitted(entry, performer, self._guards_of(entry), self.journal.find(entry.key), result)

    def may_ask(self, effect: Any) -> bool:
        """Return whether a guard may ask the user about an effect or its result."""
        return any(guard.may_ask for guard in (*self.at(effect), *self.at(effect, after=True)))

    def recall(self, entry: Entry, result: Any) -> None:
        """Tell the guards of work that has ended, before it is settled. See `Guard.recall`."""
        for guard in self.at(entry.effect, after=True):
            guard.recall(entry, result)

    def refuse_late(self, entry: Entry) -> str:
        """Return why an admitted call is not made after all; "" if it is. See `Guard.refuse_late`."""
        return next((why for guard in self.at(entry.effect) if (why := guard.refuse_late(entry))), "")

    async def retry_after(self, entry: Entry, result: Any, attempt: int) -> float | None:
        """Return after how many seconds to repeat a failed call: the longest that a guard names; None for no repeat."""
        guards = dict.fromkeys((*self.at(entry.effect), *self.at(entry.effect, after=True)))
        waits = [await guard.retry_after(entry, result, attempt) for guard in guards]
        return max((wait for wait in waits if wait is not None), default=None)

    async def tell_signal(self, entry: Entry, why: Exception) -> None:
        """Tell all guards what the loop received in place of a result, or what ended the run."""
        for guard in reversed(self.guards):
            await guard.after(entry, why, False)

    # -- decisions

    async def _decide_after(self, entry: Entry, performer: BasePerformer, guard: Guard, result: Any) -> Decision | None:
        """Return what a guard decides about a result, or did on record; None if it lets it pass."""
        key = f"{entry.key}!{guard.name}@{self.journal.digest(digested(result))}"
        try:
            decision = await self._recorded(entry, key)
        except Suspend:
            await guard.after(entry, result, False)
            raise
        if decision is not None:
            await guard.after(entry, result, False)
            return decision
        made = await guard.after(entry, result, True)
        if made is result or (not isinstance(made, Refuse | AskApproval) and made == result):
            return None
        return await self._write_decision(entry, performer, guard, key, made, result)

    async def _write_decision(
        self, entry: Entry, performer: BasePerformer, guard: Guard, key: str, made: Any, result: Any | UnsetType
    ) -> Decision:
        """Record what a guard decided, and return it. Raises `Suspend` for a question."""
        if isinstance(made, AskApproval):
            asking = performer.ask(entry, made.question, result)
            await self.journal.write(IntentRecord(key, entry.step, "decision", asking))
            raise Suspend(open_question(entry.run, key, entry.step, asking))
        value = entry.effect if result is UNSET else result
        if isinstance(made, Refuse):
            decision = Decision("refuse", text=made.reason)
        else:
            decision = Decision("change", made if isinstance(made, Attempt) else write_change(value, made))
        entry.decided[guard.name] = decision
        if not isinstance(entry.effect, Attempt):  # the attempt's own intent has the change
            self.journal.buffer(ResultRecord(key, entry.step, "decision", decision))
        return decision

    async def _recorded(self, entry: Entry, key: str) -> Decision | None:
        """Return the recorded decision; None if there is none about this very value. Raises `Suspend` if the user has
        not answered yet."""
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
        raise Suspend(open_question(entry.run, key, entry.step, found.asked))

    def _asking_of(self, key: str) -> Asking:
        asked: Asking = self.journal.find(key).asked
        return asked

    async def _ask_again(self, entry: Entry, key: str, why: str) -> None:
        """Open a question again whose answer cannot be taken. Raises `Suspend`."""
        asking = self._asking_of(key)
        said = f"The edited input does not fit. {why}\n"
        asking = structs.replace(asking, text=said + asking.text.rpartition(said)[2])
        await self.journal.write(IntentRecord(key, entry.step, "decision", asking))
        raise Suspend(open_question(entry.run, key, entry.step, asking))

    def _note_decisions(self, entry: Entry, mark: str) -> None:
        for name, key in self.journal.decided.get(entry.key + mark, {}).items():
            if (value := self.journal.find(key).value) is not UNSET:
                entry.decided[name] = value
