"""Conversations: which earlier turns a run sees, and the tool that searches all of them.

A session is a name. Its turns are the recorded runs with that name. A caller may pass the earlier turns instead, like
clients of an endpoint do.

A run sees the whole conversation, as long as it fits into a share of the model's context. Otherwise the results of the
oldest calls are left out, and the oldest turns. The tool `chat_history` then searches everything before the run. When a
run begins, Plait stores what it sees in the run's head, so later turns do not change a resume, a replay or a fork.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import quote
from typing import Annotated, TypeAlias

from msgspec import Struct, structs, to_builtins

from plait.core import Attachment, Exchange, PastCall, ToolSpec
from plait.core.errors import ConfigError, JournalError, SessionWaits
from plait.core.loop import HISTORY
from plait.core.text import shorten
from plait.journal.open_questions import find_open_questions
from plait.journal.owner import new_run_id
from plait.journal.records import LastTurn, RunHead, SessionTurn
from plait.journal.run_query import RunQuery
from plait.journal.store import Store, find_runs, is_default, read_timeline, wait_for
from plait.loops.compaction import TOKENS_A_BYTE
from plait.loops.registry import OURS
from plait.runtime.agents.options import Option, check_options, list_fields
from plait.runtime.approvals import waiting_with
from plait.runtime.conversations.chat_messages import ChatMessages, calls_in, read_turns
from plait.search import load_embedder
from plait.search.embedders import Embedder, EmbedFunction
from plait.tools import Tool
from plait.user_functions import require_plain

SESSION = "(session)"
"""The entry of the session's tool in a run's `sources`. No word of a toolkit equals it."""

_CODE = "codeact"
"""The one loop of Plait that runs code; others may fall back to it."""
LONGEST_NAME = 200

UNKNOWN_CONTEXT = 32_000
"""Tokens of a model's context if its size is not known."""
NO_QUESTION, NO_ANSWER = "(nothing was asked yet)", "(no answer)"
"""Stand for a question or an answer that is missing in the turns that the caller passed."""
RESULT_CHARS = 8000
"""Maximum number of characters of a result of an earlier turn."""
_SMALLEST_PART, _LEAST_TURN = 400, 16
"""Bytes of a shortened turn, at least; and of a turn, at least on average."""

AnyEmbedder: TypeAlias = str | EmbedFunction | Embedder
"""Measures meaning: "local", "openai:NAME", a function from texts to vectors, or your own object."""


def _check_embedder(word: str) -> str:
    """Check an embedder before anything runs, because a session uses it only at its first search."""
    if word != "local":
        load_embedder(word)
    return word


class History(Struct, frozen=True, repr_omit_defaults=True):
    """The part of a conversation that a run sees: all of it, or the newest turns that fit into a share of the context.

    If the size of the model's context is not known, Plait takes `UNKNOWN_CONTEXT` tokens for it. Raises `ConfigError`
    for an invalid field.
    """

    share: Annotated[
        float, Option("Share of the model's context that the earlier turns of a conversation may take.", most=1)
    ] = 0.25
    embedder: Annotated[
        AnyEmbedder,
        Option(
            "The embedder that searches a session and the tools: local, openai:NAME, ...",
            "--embedder SPEC",
            read=_check_embedder,
            fits=lambda given: bool(given) if isinstance(given, str) else callable(getattr(given, "embed", given)),
            wanted='"local", "openai:NAME" or a function from a list of texts to vectors',
            page="search.md",
        ),
    ] = "local"

    def __post_init__(self) -> None:
        check_options(self)
        if isinstance(self.embedder, Embedder):
            require_plain(self.embedder.embed, "embed of embedder=")
        elif not isinstance(self.embedder, str):
            require_plain(self.embedder, "embedder=")

    @property
    def stored_settings(self) -> dict[str, float | str]:
        """Return the values to store in a run's settings: those that are no defaults. A function cannot be stored."""
        given = [(each.name, getattr(self, each.name), each.default) for each in list_fields(History)]
        return {name: value for name, value, usual in given if value != usual and isinstance(value, int | float | str)}

    def find_room(self, context_tokens: int) -> int:
        """Return the bytes that earlier turns may take in a context of so many tokens (0: not known)."""
        return int(self.share * (context_tokens or UNKNOWN_CONTEXT) / TOKENS_A_BYTE)


def fit_turns(turns: Sequence[SessionTurn], room: int) -> tuple[tuple[Exchange, ...], bool]:
    """Return the turns to show in `room` bytes, oldest first, and whether anything of the conversation is hidden.

    Questions and answers come first, then files, then results of calls: the newest of each that fit. Turns without an
    answer are left out. What is hidden grows in steps of several turns, so that a longer conversation begins with the
    same text, which a server's cache knows.
    """
    said, is_cut = [turn for turn in turns if turn.answer is not None], bool(turns) and turns[0].number > 1
    sizes = [_count_bytes(f"{turn.question}{turn.answer}") for turn in said]
    first, left = _find_first(said, sizes, room, is_cut)
    part = left - left % max(1, room // 4)
    if first and len(said) - first < 8 and part >= min(max(room, 1), _SMALLEST_PART):
        # A long turn is shortened, but not with each new turn.
        turn, scale = said[first := first - 1], part / sizes[first]
        question, answer = (shorten(text, int(len(text) * scale))[0] for text in (turn.question, turn.answer or ""))
        said[first], left = structs.replace(turn, question=question, answer=answer), left - part
    said = said[first:]
    files: dict[int, tuple[Attachment, ...]] = {}
    for turn in reversed(said):
        if (size := int(sum(file.tokens for file in turn.attachments) / TOKENS_A_BYTE)) <= left:
            files[turn.number], left = turn.attachments, left - size
    for longest in (RESULT_CHARS, min(RESULT_CHARS, room // 4)):
        calls = [
            [structs.replace(each, result=shorten(each.result, longest)[0]) for each in turn.calls] for turn in said
        ]
        if sum(sizes := [sum(map(_size_of_call, each)) for each in calls]) <= left:
            break
    whole, _ = _find_first(said, sizes, left, is_cut=False)
    calls[:whole] = [[]] * whole if whole < len(said) else [*[[]] * (whole - 1), *calls[-1:]]
    while calls and sum(map(_size_of_call, calls[-1])) > left:  # not even the newest turn's calls fit
        calls[-1].pop(0)
    shown = tuple(
        Exchange(turn.question, turn.answer or "", tuple(calls[i]), files.get(turn.number, ()))
        for i, turn in enumerate(said)
    )
    everything = [(turn.question, turn.answer, turn.calls) for turn in turns]
    return shown, is_cut or [(each.question, each.answer, each.calls) for each in shown] != everything


def _find_first(turns: Sequence[SessionTurn], sizes: Sequence[int], room: int, is_cut: bool) -> tuple[int, int]:
    """Return the index of the first turn from which all fit into `room`, and the bytes that are left. If some do not
    fit (`is_cut`: there are older ones), the first one's number is a multiple of a power of two."""
    first = len(sizes)
    while first and sizes[first - 1] <= room:
        first -= 1
        room -= sizes[first]
    step = 1 << max(0, ((len(sizes) - first) // 4).bit_length() - 1)
    while (first or is_cut) and first < len(sizes) and turns[first].number % step:
        room += sizes[first]
        first += 1
    return first, room


def _count_bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _size_of_call(call: PastCall) -> int:
    return _count_bytes(f"{call.input}{call.result}")


class Conversation(Struct, frozen=True):
    """A run's place in a conversation: the session, the run's own id, and the turns that it sees."""

    session: str
    run: str
    history: tuple[Exchange, ...] = ()
    given: tuple[Exchange, ...] = ()
    """All turns before the run, if the caller passed them and not all of them are shown whole."""
    searched: bool = False
    """Whether the run has a tool that searches the conversation."""
    outside: bool = False
    """Whether strangers may have written a part of the turns that the caller passed."""
    contents: Mapping[str, bytes] = {}
    """The bytes of the files of the turns, by digest, when the run begins."""
    last_turn: LastTurn | None = None
    """The last turn of the session when a new turn was prepared."""

    def tool(self, store: Store | None, embedder: AnyEmbedder) -> Tool:
        """Return the tool that searches the conversation before this run."""

        def read_turns() -> Sequence[SessionTurn]:
            if self.given or store is None:
                return _turns(self.given)
            return wait_for(_read_session(store, self.session, self.run))

        return structs.replace(_make_search_tool(read_turns, embedder), source=SESSION)

    def taken_by(self, head: RunHead, spec: ToolSpec) -> RunHead:
        """Add to the run's head what a resume needs; `spec` is the tool's."""
        head = structs.replace(head, run=self.run, session=self.session, history=self.history, given=self.given)
        if not self.searched:
            return head
        return structs.replace(head, tools=(*head.tools, to_builtins(spec)), sources=(*head.sources, SESSION))


def session_spec() -> ToolSpec:
    """Return the search tool of a session as a model sees it."""
    return _make_search_tool(list, "local").spec


def _make_search_tool(read_turns: Callable[[], Sequence[SessionTurn]], embedder: AnyEmbedder) -> Tool:
    from plait.toolkits.chat_history import chat_history

    return chat_history(read_turns, embedder)


async def open_conversation(
    session: str, store: Store, room: int, before: str | None = None, *, always_searched: bool = False
) -> Conversation:
    """Return the place of a run that begins now, or of the run `before`, in a recorded session.

    It gets the search tool if something is hidden: small models otherwise search instead of answering.

    Raises `ConfigError` for an invalid name, `JournalError` for an unreadable journal.
    """
    turns = await _read_session(store, check_session_name(session), before, room)
    shown, is_hidden = fit_turns(turns, room)
    try:
        contents = await store.read_contents([file for turn in shown for file in turn.attachments])
    except JournalError:  # a file is damaged; their names remain
        shown, contents = tuple(structs.replace(turn, attachments=()) for turn in shown), {}
    searched, last = is_hidden or always_searched, LastTurn.of(turns)
    return Conversation(session, new_run_id(), shown, searched=searched, contents=contents, last_turn=last)


async def _read_session(
    store: Store, session: str, before: str | None, room: int | None = None
) -> Sequence[SessionTurn]:
    """Return the turns of a session with their calls: all, or at least as many of the newest as `room` bytes hold."""
    turns = await store.list_turns(session, limit=None if room is None else room // _LEAST_TURN + 1, before=before)
    left = math.inf if room is None else room
    for i, turn in reversed(list(enumerate(turns))):
        left -= _count_bytes(f"{turn.question}{turn.answer}")
        if left < 0:
            break
        try:
            row = await store.find_run(turn.run)
            loop = row.head.loop
            may_run_code = loop.get("name") not in OURS or _CODE in (loop["name"], *loop.get("options", {}).values())
            if not row.totals.get("tool_calls") and not may_run_code:
                continue  # it made no calls and ran no code
            calls = calls_in(await read_timeline(store, turn.run, bodies=False), row.head.tools)
        except JournalError:
            continue  # its record is damaged or was deleted meanwhile: the question and the answer remain
        # What a search found is part of the conversation.
        turns[i] = structs.replace(turn, calls=tuple(call for call in calls if call.tool != HISTORY))
        left -= sum(map(_size_of_call, turns[i].calls))
    return turns


async def require_answered(session: str, store: Store) -> None:
    """Raise `SessionWaits` if a run of the session waits for the user, because a message would not be its answer."""
    rows = await find_runs(store, RunQuery("waiting", session=check_session_name(session)))
    row = next((each for each in rows if not each.head.parent), None)
    if row is None:
        return
    resume = " ".join(("plait resume", row.head.run, *row.head.agent_words))
    run, waits = row.head.run, list(map(waiting_with, await find_open_questions(store, row.head.run)))
    asked = "; ".join(f"question {each.question}: {each.reason}" for each in waits)
    where = "" if is_default(store.place) else f" --journal {quote(store.place)}"
    raise SessionWaits(
        f"In session '{session}' run {run} waits for the user, {asked}",
        run=run,
        waits=waits,
        hint=f"Answer it first: {resume}{where} --question {waits[0].question} --answer ANSWER. In Python: "
        f'agent.resume("{run}", ANSWER, question="{waits[0].question}"). Or use another session.',
    )


async def has_read_outside(store: Store, session: str) -> bool:
    """Return whether a run of a conversation read content from outside, such as a web page."""
    return bool(await find_runs(store, RunQuery(session=session, is_tainted=True, children=True, limit=1)))


def continue_conversation(session: str | None, room: int, history: ChatMessages) -> Conversation:
    """Return the place of a run that begins now, after the turns that the caller passes. `session` may be None. Raises
    `ConfigError` for an invalid name or message."""
    given = read_turns(history)
    shown, is_hidden = fit_turns(_turns(given.turns), room)
    name = check_session_name(session) if session is not None else ""
    kept = given.turns if shown != given.turns else ()
    is_foreign = not given.is_proven
    return Conversation(name, new_run_id(), shown, kept, is_hidden, is_foreign, given.contents, given.after_turn)


def recorded_conversation(head: RunHead, run: str = "") -> Conversation | None:
    """Return the place of a recorded run, or of the fork `run` of it; None if it is not part of a conversation."""
    if not (head.session or head.history or head.given):
        return None
    return Conversation(head.session, run or head.run, head.history, head.given, SESSION in head.sources)


async def change_history(place: Conversation, head: RunHead, shown: History, store: Store | None) -> Conversation:
    """Return the place of a recorded run with the turns that an agent with another share would show."""
    recorded = History(**head.settings.get("history", {}))
    if structs.replace(recorded, embedder=shown.embedder) == shown:
        return place
    room = shown.find_room(head.settings.get("context_tokens", 0))
    if place.session and not place.given and store is not None:
        now = await open_conversation(place.session, store, room, head.run)
        return structs.replace(place, history=now.history)
    return structs.replace(place, history=fit_turns(_turns(place.given or place.history), room)[0])


def _turns(given: Iterable[Exchange]) -> list[SessionTurn]:
    """Return turns that the caller passed in the form of recorded ones. Words stand for a question or answer that is
    missing."""
    return [
        SessionTurn(i, "", each.question or NO_QUESTION, each.answer or NO_ANSWER, 0.0, each.calls, each.attachments)
        for i, each in enumerate(given, 1)
    ]


def check_session_name(session: str) -> str:
    """Return a valid session name unchanged. Raises `ConfigError` for an invalid one."""
    if not isinstance(session, str) or not session.strip() or not session.isprintable():
        raise ConfigError(f"{session!r} can't be a session's name.", hint="Give it a word or two, such as 'trip'.")
    if len(session) > LONGEST_NAME:
        raise ConfigError(f"A session's name has at most {LONGEST_NAME} characters, this has {len(session)}.")
    return session


def fresh_name() -> str:
    """Return a new name for a session that has none."""
    return f"chat-{new_run_id().rpartition('-')[2]}"
