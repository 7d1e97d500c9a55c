"""A store in a dictionary, the second implementation of `plait.journal.store.Store`: nothing outlives the process."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Iterable
from typing import Any

from msgspec import structs

from plait.core.attachments import with_names
from plait.core.errors import JournalError, RecordChanged, RunExists, UnknownRun
from plait.journal import codec, redaction
from plait.journal.claims import require_turn
from plait.journal.memory import MemoryLog
from plait.journal.owner import life_of
from plait.journal.records import LastTurn, NoteRecord, Row, RunHead, RunRow, RunTotals, SessionRow, SessionTurn
from plait.journal.run_query import ALL, RunQuery, no_such_run
from plait.journal.spending import Reservation, SpendAmount, SpendCounter
from plait.journal.store import ACTIVE, ENDED, TITLES, KeptRecord, StoreInfo


class KeptLog(MemoryLog):
    """A log with what a store must know of its run."""

    def __init__(self, head: RunHead, n: int, owner: str, secrets: Iterable[str] = ()) -> None:
        super().__init__(head, secrets=secrets)
        self.n, self.owner, self.status, self.started, self.lost = n, owner, "running", time.time(), ""
        self.updated = self.started

    def buffer(self, *records: Any, durable: bool = False) -> None:
        super().buffer(*records, durable=durable)
        self.updated = time.time()

    def end(self, status: str, outcome: dict[str, Any], totals: dict[str, Any]) -> Awaitable[None]:
        self.owner, self.status, self.updated = "", status, time.time()
        return super().end(status, outcome, totals)

    @property
    def rows(self) -> int:
        return len(self._rows)


class MemoryStore:
    place = "memory"

    def __init__(self) -> None:
        self.runs: dict[str, KeptLog] = {}
        self.kept: dict[tuple[str, str], KeptRecord] = {}
        self.files, self.count, self.restored = dict[str, bytes](), 0, 0.0
        self.counters, self.reserved = dict[str, SpendCounter](), dict[str, tuple[Reservation, list[str]]]()

    async def begin(
        self,
        head: Any,
        owner: str,
        records: Any = (),
        *,
        secrets: Any = (),
        contents: Any = None,
        after_turn: LastTurn | None = None,
    ) -> KeptLog:
        if head.run in self.runs:
            raise RunExists(head.run, self.place)
        scrub, texts = redaction.scrubber(secrets), {each.digest for each in head.attachments if each.kind == "text"}
        self.count += 1
        log = KeptLog(codec.decode_head(scrub(codec.encode(head)).decode()), self.count, owner, secrets)
        log.buffer(*records)
        if after_turn is not None:
            turns = [log for log in self.runs.values() if log.head.session == head.session and not log.head.parent]
            last = turns[-1] if turns else None
            goes_on = last is not None and last.status == "running" and life_of(last.owner) == "alive"
            require_turn(
                head, after_turn, LastTurn(last.run, last.updated) if last else LastTurn(), "running" if goes_on else ""
            )
        self.files |= {key: scrub(data) if key in texts else data for key, data in (contents or {}).items()}
        self.runs[head.run] = log
        return log

    async def claim(
        self, run: str, owner: str, *, force: bool = False, secrets: Any = (), rows: Any = None, records: Any = ()
    ) -> KeptLog:
        log = self.runs[(await self.find_run(run)).head.run]
        if rows not in (None, log.rows):
            raise RecordChanged(f"Run {run} was changed.", hint="Read it again.")
        if log.status in ENDED or (life := life_of(log.owner)) == "alive" or (life == "elsewhere" and not force):
            raise JournalError(f"Run {run} has ended, or is still going on.", hint="force=True takes it over.")
        log.lost = "The store was restored from a backup." if log.updated < self.restored else ""
        log.status, log.outcome, log.owner, log.updated = "running", None, owner, time.time()
        log._scrub = redaction.scrubber(secrets)
        for record, body in records:
            if log.lost and isinstance(record, NoteRecord) and record.kind == "resumed":
                record = structs.replace(record, value=structs.replace(record.value, lost=log.lost))
            log.buffer((record, body))
        return log

    async def read_rows(self, run: str, after: int = -1, *, until: int | None = None, bodies: bool = True) -> Any:
        last = None if until is None else until + 1
        rows = self.runs[(await self.find_run(run)).head.run].read_rows()[after + 1 : last]
        return rows if bodies else [structs.replace(row, body=None) for row in rows]

    async def iter_rows(self, run: str) -> Any:
        for row in await self.read_rows(run):
            yield row

    async def read_contents(self, attachments: Any) -> dict[str, bytes]:
        if missing := [each for each in attachments if each.digest not in self.files]:
            raise JournalError(f"The attached file {missing[0]} is not in the store.")
        return {each.digest: self.files[each.digest] for each in attachments}

    def _row(self, log: KeptLog) -> RunRow:
        gone, kept = log.status == "running" and life_of(log.owner) == "dead", self.kept.get(("result", log.head.label))
        grade = json.loads(kept.data).get("grade") if kept is not None and kept.run == log.run else None
        rated = self.kept.get(("rating", log.run))
        rating = {None: "", True: "good", False: "bad"}[rated and json.loads(rated.data)["good"]]
        times = (log.started, log.updated)
        status = "interrupted" if gone else log.status
        return RunRow(log.head, status, log.outcome, log.totals, *times, log.owner, grade, log.n, rating)

    async def find_run(self, prefix: str) -> RunRow:
        found = [name for name, log in self.runs.items() if log.head.caller is None]
        found = found[-1:] if prefix == "last" else [name for name in self.runs if prefix and name.startswith(prefix)]
        if prefix not in found and len(found) != 1:
            raise UnknownRun(f"{len(found)} runs begin with {prefix!r}.", hint="`plait runs` lists them.")
        return self._row(self.runs[prefix if prefix in found else found[0]])

    async def list_runs(self, query: RunQuery = ALL) -> list[RunRow]:
        def fits(row: RunRow) -> bool:
            head, outcome, guards = row.head, row.outcome or {}, row.totals.get("guards", {})
            caller, said = head.caller.run if head.caller else "", outcome.get("answer") or outcome.get("reason") or ""
            equal = {"status": row.status, "loop": head.loop["name"], "session": head.session, "parent": head.parent}
            equal |= {"user": head.user, "grade": (row.grade or {}).get("mark"), "rated": row.rating}
            cost = (row.totals.get("tree") or row.totals).get("cost_usd")
            bounds = [(query.since, row.started, 1), (query.min_cost, cost, 1), (query.max_cost, cost, -1)]
            within = [low is None or (it is not None and it * sign >= low * sign) for low, it, sign in bounds]
            within.append(query.until is None or row.started < query.until)
            models, text = [each["spec"] for each in head.models.values()], f"{head.question} {said}".casefold()
            wanted = {
                query.caller: caller == query.caller,
                query.model: query.model in models,
                query.agent and "agent": query.agent in (head.agent, *head.label.split(":")[2:3]),
                query.tags: set(query.tags) <= set(head.tags),
                query.labels: head.label in query.labels,
                query.numbers: row.n in query.numbers,
                query.is_tainted and "tainted": guards.get("taint"),
                query.is_open and "open": row.outcome is None or guards.get("approvals"),
                "": head.label.startswith(query.label) and all(word in text for word in query.words.casefold().split()),
            }
            is_shown = not caller or query.children or query.caller or query.numbers
            others = all(fit for asked, fit in wanted.items() if asked or asked == "")
            return bool(
                is_shown
                and others
                and all(within)
                and all(getattr(query, name) in ("", it) for name, it in equal.items())
            )

        def place(row: RunRow) -> tuple[float, float]:
            whole, value = row.totals.get("tree") or row.totals, row.totals.get(query.sorted_by)
            if query.sorted_by == "cost":
                value = whole.get("cost_usd")
            elif query.sorted_by == "tokens":
                value = whole["input_tokens"] + whole["output_tokens"] if "input_tokens" in whole else None
            sign = 1 if query.is_ascending else -1
            return (float("inf") if value is None else sign * value, sign * row.n)

        rows = sorted(map(self._row, self.runs.values()), key=place)
        last = next((place(row) for row in rows if row.n == query.before), None) if query.before else (-float("inf"), 0)
        if last is None:
            raise no_such_run(query.before)
        found = [row for row in rows if place(row) > last and fits(row)]
        return found[: query.limit if query.limit >= 0 else None]

    async def list_totals(self, query: RunQuery = ALL, *, models: bool = False) -> list[RunTotals]:
        found = []
        for row in await self.list_runs(query):
            head, is_wrong = row.head, row.rating == "bad" or not (row.grade or {}).get("success", True)
            specs = tuple(dict.fromkeys(each["spec"] for each in head.models.values())) if models else ()
            said = (head.run, head.label, head.user, head.agent, head.tags, head.fork_at)
            well = row.status == "answered" and not is_wrong
            status = "running" if row.status == "interrupted" else row.status
            found.append(RunTotals(*said, row.started, row.totals, status, well, specs))
        return found

    async def list_values(self, label: str = "") -> dict[str, list[str]]:
        heads = [log.head for log in self.runs.values() if log.head.label.startswith(label)]
        found = {"loops": {head.loop["name"] for head in heads}, "sessions": {head.session for head in heads} - {""}}
        models = {each["spec"] for head in heads for each in head.models.values()}
        found |= {"agents": {head.agent for head in heads} - {""}, "users": {head.user for head in heads} - {""}}
        found |= {"models": models, "tags": {tag for head in heads for tag in head.tags}}
        return {name: sorted(values) for name, values in found.items()}

    async def list_turns(self, session: str, *, before: str | None = None, limit: int | None = None) -> Any:
        while before and self.runs[before].head.parent:
            before = self.runs[before].head.parent
        end, turns = self.runs[before].n if before else self.count + 1, list[SessionTurn]()
        for log in self.runs.values():
            if session and log.head.session == session and not log.head.parent and log.n < end:
                said = (log.outcome or {}).get("answer")
                text = said if said is None or isinstance(said, str) else codec.encode(said).decode()
                asked = with_names(log.head.question, log.head.attachments)
                files = log.head.attachments
                turns.append(
                    SessionTurn(
                        len(turns) + 1, log.run, asked, text, log.started, attachments=files, updated=log.updated
                    )
                )
        return turns if limit is None else turns[max(0, len(turns) - limit) :]

    async def list_sessions(
        self, limit: int = 50, *, owner: str | None = None, words: str = "", before: int = 0
    ) -> list[SessionRow]:
        def is_wanted(name: str) -> bool:
            return bool(name) and (owner is None or (name.startswith(owner) if owner else not name.startswith("@")))

        runs = [log for log in self.runs.values() if is_wanted(log.head.session)]
        runs = [log for log in runs if owner is not None or not log.head.parent]
        found = dict[str, list[Any]]()
        for log in runs:
            found.setdefault(log.head.session, []).append(log)
        titles = {
            key: str(json.loads(each.data).get("title")) for (kind, key), each in self.kept.items() if kind == TITLES
        }

        def has_words(name: str) -> bool:
            said = [f"{log.head.question} {(log.outcome or {}).get('answer') or ''}" for log in found[name]]
            texts = [text.casefold() for text in (*said, titles.get(name, ""))]
            return any(all(word in text for word in words.casefold().split()) for text in texts)

        names = sorted(filter(has_words, found), key=lambda name: -found[name][-1].n)
        last = {name: found[name][-1] for name in names if not before or found[name][-1].n < before}
        return [
            SessionRow(name, len(found[name]), log.head.question, log.started, found[name][0].head.question, log.n)
            for name, log in list(last.items())[:limit]
        ]

    async def delete(self, runs: Any, *, skip_active: bool = False) -> int:
        rows = [await self.find_run(run) for run in runs if not skip_active or run in self.runs]
        left = [row for row in rows if not (skip_active and row.status in ACTIVE)]
        for row in left:
            if row.status == "running":
                raise JournalError(f"Run {row.head.run} is still going on.")
            await self.delete([each.head.run for each in await self.list_runs(RunQuery(caller=row.head.run))])
            run = self.runs.pop(row.head.run).run
            self.kept.pop(("rating", run), None)
            self.reserved = {id: each for id, each in self.reserved.items() if each[0].run != run}
        return len(left)

    async def compact(self) -> None:
        used = {each.digest for log in self.runs.values() for each in log.head.attachments}
        self.files = {digest: data for digest, data in self.files.items() if digest in used}

    async def add(self, runs: Any) -> bool:
        there = {log.run: (log.started, log.updated) for log in self.runs.values()}
        heads = [(each, codec.decode_head(each.head)) for each in runs]
        if any(there.get(head.run, (it.started, it.updated)) != (it.started, it.updated) for it, head in heads):
            return False
        for each, head in [(each, head) for each, head in heads if head.run not in there]:
            log = await self.begin(head, "", contents=each.contents)
            log._rows = [Row(n, at, codec.decode_record(data), body) for n, (at, data, body) in enumerate(each.rows)]
            log.started, log.updated, log.totals = each.started, each.updated, each.totals
            log.status, log.outcome = each.status, each.outcome
        return True

    async def keep(self, kind: str, key: str, run: str, data: bytes, *, replace: bool = True) -> None:
        if replace or (kind, key) not in self.kept:
            self.kept[kind, key] = KeptRecord(key, run, time.time(), data)

    async def list_kept(self, kind: str, keys: Any = None) -> list[KeptRecord]:
        return [each for (of, key), each in self.kept.items() if of == kind and (keys is None or key in set(keys))]

    async def forget(self, kind: str, keys: Any, *, labels: bool = False) -> None:
        for key in list(keys):
            self.kept.pop((kind, key), None)
            for log in [log for log in self.runs.values() if labels and log.head.label == key]:
                log.head = structs.replace(log.head, label="")

    async def reserve(self, asked: Reservation, bounds: Any) -> list[SpendCounter]:
        found = [self.counters.get(each.name) or SpendCounter(each.name, each.until) for each in bounds]
        amount = asked.amount
        if not all(each.has_room(bound, amount) for each, bound in zip(found, bounds, strict=True)):
            return found
        for it, bound in zip(found, bounds, strict=True):
            held = {"held_usd": it.held_usd + amount.usd, "held_tokens": it.held_tokens + amount.tokens}
            most = {name: value for name, value in structs.asdict(bound).items() if name.startswith("most")}
            self.counters[it.name] = structs.replace(it, **held, **most, runs=it.runs + amount.runs)
        self.reserved[asked.id] = asked, [each.name for each in bounds]
        return []

    async def settle(self, id: str, used: SpendAmount) -> None:
        asked, names = self.reserved.pop(id, (None, []))
        for name in names:
            it, held = self.counters[name], asked.amount
            self.counters[name] = structs.replace(
                it, usd=it.usd + used.usd, tokens=it.tokens + used.tokens, runs=it.runs + used.runs - held.runs,
                held_usd=it.held_usd - held.usd, held_tokens=it.held_tokens - held.tokens,
                beyond_usd=it.beyond_usd + max(0, used.usd - held.usd),
                beyond_tokens=it.beyond_tokens + max(0, used.tokens - held.tokens),
            )  # fmt: skip

    async def list_reserved(self, run: str) -> list[Reservation]:
        return [each for each, _ in self.reserved.values() if each.run == run]

    async def list_counters(self, since: float) -> list[SpendCounter]:
        return sorted((each for each in self.counters.values() if each.until > since), key=lambda each: each.name)

    async def is_holder_gone(self, owner: str) -> bool | None:
        return {"dead": True, "alive": False}.get(life_of(owner))

    async def info(self) -> StoreInfo:
        return StoreInfo(self.place, 0, len(self.runs), sum(log.rows for log in self.runs.values()), 0, self.restored)

    async def mark_restored(self) -> int:
        self.restored = time.time()
        return sum(log.status not in ENDED for log in self.runs.values())

    async def close(self) -> Any:
        return []

    async def migrate(self) -> tuple[int, int]:
        return 0, 0

    check = close
