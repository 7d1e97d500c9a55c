"""Takes entries through the guards of a run.

Theory of operation. `admit` takes an entry to its guards before it is done, `settle` takes the result through the same
guards, the last first. Both look at the record: what is decided there is not decided again. Between them somebody
carries the entry out (`Engine.carry_out`). An `Admitted` holds what the guards reserved; used as a context manager, it
gives that up if the work between raises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from msgspec import UNSET, UnsetType, structs

from plait.core.errors import BadInput, ConfigError, LimitNear, PlaitError
from plait.journal.records import Asking, Decision
from plait.runtime.calls.bound_calls import REBINDS
from plait.runtime.decisions import Decisions, digested, read_change
from plait.runtime.guard import AskApproval, EndedByRefusal, Entry, Guard, LimitReached, RecordEnds, Refuse, Suspend
from plait.runtime.run_journal import NOTHING, FoundEntry, RunJournal
from plait.tools.user_code import show_error

if TYPE_CHECKING:
    from plait.runtime.performers.base import BasePerformer

Decide: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

OWN = "plait.runtime.guards."
"""The package of the built-in guards, which write into nothing."""
_MEANT = (PlaitError, LimitNear, LimitReached, EndedByRefusal, Suspend, RecordEnds)
"""What guards raise on purpose."""


@dataclass(slots=True)
class Admitted:
    """An entry that the guards have let through: it holds what they reserved. `result` is that of an entry that is not
    done: it was refused, or could not be bound; then nothing is held."""

    entry: Entry
    performer: BasePerformer
    guards: Sequence[Guard]
    found: FoundEntry
    result: Any | UnsetType = UNSET

    def __enter__(self) -> Admitted:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.release()

    def release(self) -> None:
        """Give up an entry that has no result in this process."""
        if self.result is UNSET:
            _release(self.guards, self.entry)

    async def tell(self, result: Any, guards: Sequence[Guard] | None = None) -> None:
        """Tell the guards a result that they do not decide about."""
        waiting = list(self.guards if guards is None else guards)
        try:
            while waiting:
                guard = waiting.pop()
                await guard.after(self.entry, result, False)
        except BaseException as why:
            _release(waiting, self.entry)
            raise_named(guard, why)


class GuardsAt(NamedTuple):
    """The guards that see effects of a kind, those that see their results, and all of these."""

    before: tuple[Guard, ...]
    after: tuple[Guard, ...]
    either: tuple[Guard, ...]


def raise_named(guard: Guard, why: BaseException) -> NoReturn:
    """Raise what a guard raised. A mistake in a user's guard becomes a `ConfigError` that names the guard."""
    is_built_in = type(guard).__module__.startswith(OWN)
    if is_built_in or isinstance(why, _MEANT) or not isinstance(why, Exception | SystemExit):
        raise why
    hint = "Correct it, then resume the run."
    raise ConfigError(f"The guard '{guard.name}' failed: {show_error(why)}.", hint=hint) from why


def _release(guards: Sequence[Guard], entry: Entry) -> None:
    """Have all guards give back what they reserved. Raises what one raised when all have."""
    failed: tuple[Guard, BaseException] | None = None
    for guard in reversed(guards):
        try:
            guard.release(entry)
        except BaseException as why:
            failed = guard, why
    if failed is not None:
        raise_named(*failed)


def _restore(guards: Sequence[Guard], entry: Entry) -> None:
    """Have the guards reserve again, all or none."""
    for i, guard in enumerate(guards):
        try:
            guard.restore(entry, entry.decided.get(guard.name))
        except BaseException as why:
            _release(guards[:i], entry)
            raise_named(guard, why)


def _passes(made: Any, given: Any) -> bool:
    """Return whether a guard let a value pass."""
    return made is given or (not isinstance(made, Refuse | AskApproval) and bool(made == given))


class Chain:
    """The guards of one run, in their order. `remark` notes something about a new entry: kind, text, step and key."""

    def __init__(
        self, guards: Iterable[Guard], journal: RunJournal, remark: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        self.guards = sorted(guards, key=lambda guard: guard.order)
        self.journal, self.decisions, self._remark = journal, Decisions(journal), remark
        names = [guard.name for guard in self.guards]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ConfigError(f"Two guards are named {twice!r}.", hint="Leave one out, or give it another name.")
        self._own = {guard.name for guard in self.guards if type(guard).__module__.startswith(OWN)}
        self._at: dict[type, GuardsAt] = {}

    def at(self, kind: type) -> GuardsAt:
        """Return the guards that see effects of a kind."""
        found = self._at.get(kind)
        if found is None:
            before, after, either = list[Guard](), list[Guard](), list[Guard]()
            for guard in self.guards:
                if is_before := kind in guard.points:
                    before.append(guard)
                if is_after := is_before if guard.points_after is None else kind in guard.points_after:
                    after.append(guard)
                if is_before or is_after:
                    either.append(guard)
            self._at[kind] = found = GuardsAt(tuple(before), tuple(after), tuple(either))
        return found

    def holds_text(self, *kinds: type) -> bool:
        """Return whether the text of such results must not be shown before the guards have seen the whole."""
        return any(guard.holds_text for kind in kinds for guard in self.at(kind).after)

    def _guards_of(self, entry: Entry) -> Sequence[Guard]:
        """Return the guards of an entry: also one that no longer acts there, if it has a decision on record."""
        found = self.at(type(entry.effect)).either
        if decided := self.journal.decided.get(f"{entry.key}?", {}):
            return [guard for guard in self.guards if guard in found or guard.name in decided]
        return found

    def watch(self, guard: Guard, decide: Decide, entry: Entry, value: Any, *more: Any) -> Awaitable[Any]:
        """Have a guard decide about a value, by its method. Raises `ConfigError` if it fails, or writes into the value:
        that would not be on record."""
        return decide(entry, *more) if guard.name in self._own else self._watch(guard, decide, entry, value, *more)

    async def _watch(self, guard: Guard, decide: Decide, entry: Entry, value: Any, *more: Any) -> Any:
        effect, before = entry.effect, self.journal.digest(digested(value))
        try:
            made = await decide(entry, *more)
        except BaseException as why:
            raise_named(guard, why)
        if entry.effect is not effect or self.journal.digest(digested(value)) != before:
            hint = "Return a changed copy, made by msgspec.structs.replace and copy.deepcopy."
            raise ConfigError(f"The guard '{guard.name}' wrote into the {type(value).__name__} that it got.", hint=hint)
        return made

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
            self.decisions.note(entry, "?")
            _restore(guards, entry)
            return Admitted(entry, performer, guards, found)
        if performer.work == "check":
            if journal.replay or journal.is_seen(entry.key, False):
                return self._admit_seen_check(entry, performer)
        elif journal.replay:
            raise RecordEnds
        try:
            performer.bind(entry)
        except BadInput as why:
            for guard in self.at(type(entry.effect)).before:
                if guard.sees_unbound:  # it may raise a signal; the entry reserves nothing
                    await guard.before(entry)
                    guard.release(entry)
            return Admitted(entry, performer, self._guards_of(entry), found, performer.describe_unbound(entry, why))
        guards = self._guards_of(entry)
        if not guards:
            return Admitted(entry, performer, guards, found)
        admission = _Admission(self, entry, performer, guards)
        return Admitted(entry, performer, guards, found, await admission.find_refusal())

    def _admit_seen_check(self, entry: Entry, performer: BasePerformer) -> Admitted:
        """Restore a check whose result the loop has seen. It has no row but the decisions about it."""
        guards, found = self._guards_of(entry), self.journal.find(entry.key)
        entry.recorded = True
        self.decisions.note(entry, "?")
        _restore(guards, entry)
        if (refusal := self.decisions.follow_before(entry)) is not None:
            result = performer.refuse(entry, refusal.text, is_after=False, by_user=refusal.by_user)
            return Admitted(entry, performer, guards, found, result)
        if any(self.journal.find(key).is_open for key in self.journal.decided.get(f"{entry.key}?", {}).values()):
            raise RecordEnds  # the question is open
        return Admitted(entry, performer, guards, found)

    def refuse(self, entry: Entry, performer: BasePerformer, reason: str) -> Admitted:
        """Return an entry that is refused for a reason beside its guards; they are told its result."""
        result = performer.refuse(entry, reason, is_after=False, by_user=False)
        return Admitted(entry, performer, self._guards_of(entry), self.journal.find(entry.key), result)

    # -- after

    async def settle(self, admitted: Admitted, result: Any) -> Any:
        """Tell the guards the result, the last first; return it as they, and the user, change it. Raises `Suspend` at
        the first question: what the guards behind it decide comes when the entry is settled again."""
        entry, performer, journal = admitted.entry, admitted.performer, self.journal
        if not journal.is_new and (journal.replay or journal.is_seen(entry.key, entry.started)):
            return await self._settle_seen(admitted, result)
        waiting, deciding = list(admitted.guards), self.at(type(entry.effect)).after
        decided = journal.decided.get(f"{entry.key}!", {})
        try:
            while waiting:
                guard, key, decision = waiting[-1], "", None
                if guard.name in decided:
                    key = self.decisions.name(entry, guard, "!", result)
                    decision = await self.decisions.find(entry, key)
                decides = decision is None and (key != "" or guard in deciding)
                made = await self.watch(waiting.pop(), guard.after, entry, result, result, decides)
                if decides and made is not result and not _passes(made, result):
                    key = key or self.decisions.name(entry, guard, "!", result)
                    decision = await self.decisions.record(entry, performer, guard, key, made, result)
                if decision is not None:
                    result = _apply(entry, performer, result, decision)
        except Suspend:
            await admitted.tell(result, waiting)
            raise
        except BaseException:
            if admitted.result is UNSET:  # of a refused entry nothing is held
                _release(waiting, entry)
            raise
        return result

    async def _settle_seen(self, admitted: Admitted, result: Any) -> Any:
        """Tell the guards a result that the loop has seen; return it as they left it."""
        entry, apply = admitted.entry, partial(_apply, admitted.entry, admitted.performer)
        self.decisions.note(entry, "!")
        value, decided = self.decisions.follow_after(entry, result, apply)
        for guard in reversed(admitted.guards):
            await guard.after(entry, result, False)
            if (decision := decided.get(guard.name)) is not None:
                result = apply(result, decision)
        return value

    # -- beside an entry's way

    def may_ask(self, effect: Any) -> bool:
        """Return whether a guard may ask the user about an effect or its result."""
        return any(guard.may_ask for guard in self.at(type(effect)).either)

    def recall(self, entry: Entry, result: Any) -> None:
        """Tell the guards of work that has ended, before it is settled. See `Guard.recall`."""
        for guard in self.at(type(entry.effect)).after:
            try:
                guard.recall(entry, result)
            except BaseException as why:
                raise_named(guard, why)

    def refuse_late(self, entry: Entry) -> str:
        """Return why an admitted call is not made after all; "" if it is. See `Guard.refuse_late`."""
        return next((why for guard in self.at(type(entry.effect)).before if (why := guard.refuse_late(entry))), "")

    async def retry_after(self, entry: Entry, result: Any, attempt: int) -> float | None:
        """Return after how many seconds to repeat a failed call: the longest that a guard names; None for no repeat."""
        guards = self.at(type(entry.effect)).either
        waits = [await guard.retry_after(entry, result, attempt) for guard in guards]
        return max((wait for wait in waits if wait is not None), default=None)

    async def tell_signal(self, entry: Entry, why: Exception) -> None:
        """Tell all guards what the loop received in place of a result, or what ended the run."""
        for guard in reversed(self.guards):
            try:
                await guard.after(entry, why, False)
            except BaseException as failure:
                raise_named(guard, failure)


def _apply(entry: Entry, performer: BasePerformer, result: Any, decision: Decision) -> Any:
    """Return a result as a decision about it leaves it."""
    if decision.action == "yes":
        return result
    if decision.action == "refuse":
        return performer.refuse(entry, decision.text, is_after=True, by_user=decision.by_user)
    return read_change(result, decision.value)


class _Approved(NamedTuple):
    """The user's approval of an effect: the guard that asked, its question, and the answer."""

    guard: str
    asking: Asking
    decision: Decision


class _Admission:
    """The way of a new entry through its guards. After each change the changed effect passes all of them again."""

    def __init__(self, chain: Chain, entry: Entry, performer: BasePerformer, guards: Sequence[Guard]) -> None:
        self._chain, self._entry, self._performer, self._guards = chain, entry, performer, guards
        self._decisions = chain.decisions
        self._edit: _Approved | None = None
        """The user's edit that made the effect what it is: their approval for the guard that had asked."""
        self._edited: set[str] = set()
        """The keys of all edits so far. If the user comes back to an input that they had edited, that edit is no answer
        to it."""
        self._content: set[str] = set()
        """Guards that do not decide again: they wrote the same effect in other words."""

    async def find_refusal(self) -> Any | UnsetType:
        """Return the result of an effect that is not done; UNSET if all guards let it pass."""
        entry, performer = self._entry, self._performer
        for _ in range(1 + REBINDS):
            if (decided := await self._pass()) is None:
                return UNSET
            guard, key, decision = decided
            if decision.action == "refuse":
                return performer.refuse(entry, decision.text, is_after=False, by_user=decision.by_user)
            before = entry.effect
            try:
                if decision.action == "edit":
                    performer.rebind(entry, structs.replace(before, input=decision.value), decision)
                    self._edit, self._content = _Approved(guard.name, self._decisions.question(key), decision), set()
                    self._edited.add(key)
                else:
                    performer.rebind(entry, read_change(before, decision.value), decision)
                    if entry.effect == before:
                        self._content.add(guard.name)
                    else:
                        self._edit, self._content = None, set()
            except BadInput as why:
                if decision.action == "edit":  # the user learns it, and the question stays open
                    await self._decisions.ask_again(entry, key, str(why))
                title = getattr(guard, "title", f"guard {guard.name}")
                said = f"The call is refused: The {title} gave it an input that the tool does not take. {why}"
                return performer.refuse(entry, said, is_after=False, by_user=False)
        said = "The call is refused: Hooks changed its input again and again."
        if decision.action == "edit":
            said = "The call was edited too often. It was not made."
        return performer.refuse(entry, said, is_after=False, by_user=False)

    async def _pass(self) -> tuple[Guard, str, Decision] | None:
        """Return the first guard that does not let the effect pass, the key of its decision, and the decision; None if
        all do. What the guards before it have reserved is given back."""
        entry, passed = self._entry, list[Guard]()
        acting, known = self._chain.at(type(entry.effect)).before, self._chain.journal.decided.get(f"{entry.key}?", {})
        entry.reasons.clear()
        try:
            for guard in self._guards:
                if guard.name in self._content:
                    guard.restore(entry, None)
                elif guard.name in known or (self._edit is not None and self._edit.guard == guard.name):
                    if (decided := await self._decide_by_record(guard)) is not None:
                        return guard, *decided
                elif guard in acting:
                    made = await self._chain.watch(guard, guard.before, entry, entry.effect)
                    if made is not entry.effect and not _passes(made, entry.effect):
                        key = self._decisions.name(entry, guard, "?", entry.effect)
                        return guard, key, await self._decisions.record(entry, self._performer, guard, key, made)
                passed.append(guard)
            return None
        finally:
            if len(passed) < len(self._guards):
                _release(passed, entry)

    async def _decide_by_record(self, guard: Guard) -> tuple[str, Decision] | None:
        """Return what a guard decided on record about the effect, or else decides now, with the key of that; None if it
        lets the effect pass.

        What the user approved, by a yes or by an edit, it looks at once more. A question that says more than the last
        one about the same input has a key of its own: no answer to the first one is an answer to it.
        """
        entry, decisions = self._entry, self._decisions
        approved = self._edit if self._edit is not None and self._edit.guard == guard.name else None
        asked, made = "", entry.effect
        while True:
            key = decisions.name(entry, guard, "?", entry.effect, asked)
            decision = None if key in self._edited else await decisions.find(entry, key)
            if decision is not None:
                if decision.action != "yes":
                    return key, decision
                approved = _Approved(guard.name, decisions.question(key), decision)
            if decision is not None or not asked:
                decide: Decide = guard.confirm if approved else guard.before
                given = (approved.asking, approved.decision) if approved else ()
                made = await self._chain.watch(guard, decide, entry, entry.effect, *given)
                if _passes(made, entry.effect):
                    return None
            if decision is None or not isinstance(made, AskApproval):
                return key, await decisions.record(entry, self._performer, guard, key, made)
            if made.text == asked:  # they have read this
                guard.restore(entry, decision)
                return None
            asked = made.text
