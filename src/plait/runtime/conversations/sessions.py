"""Conversations: which earlier turns a run sees, and the tool that searches all of them.

A session is a name. Its turns are the recorded runs with that name. When a run begins, Plait stores the last turns that
fit in the run's head, so later turns do not change a resume, a replay or a fork. The tool `chat_history` searches
everything before the run.

A caller may pass the earlier turns instead, like clients of an endpoint do. If all of them are shown, the run gets no
search tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from shlex import quote
from typing import Annotated, TypeAlias

from msgspec import Struct, structs, to_builtins

from plait.core import Exchange, PastCall, ToolSpec
from plait.core.errors import ConfigError, JournalError, SessionWaits
from plait.core.text import shorten
from plait.journal.open_questions import find_open_questions
from plait.journal.owner import new_run_id
from plait.journal.records import RunHead, SessionTurn
from plait.journal.run_query import RunQuery
from plait.journal.store import NoJournal, Store, default_path, read_timeline, wait_for
from plait.runtime.agents.options import Option, check_options, list_fields
from plait.runtime.approvals import waiting_with
from plait.runtime.conversations.chat_messages import ChatMessages, calls_in, read_turns
from plait.search import load_embedder
from plait.search.embedders import Embedder, EmbedFunction
from plait.tools import Tool
from plait.user_functions import require_plain

SESSION = "(session)"
"""The entry of the session's tool in a run's `sources`. No word of a toolkit equals it."""

LONGEST_NAME = 200

ReadCalls: TypeAlias = Callable[[SessionTurn], Sequence[PastCall]]

AnyEmbedder: TypeAlias = str | EmbedFunction | Embedder
"""Measures meaning: "local", "openai:NAME", a function from texts to vectors, or your own object."""


def _check_embedder(word: str) -> str:
    """Check an embedder before anything runs, because a session uses it only at its first search."""
    if word != "local":
        load_embedder(word)
    return word


class History(Struct, frozen=True, repr_omit_defaults=True):
    """The part of a conversation that a run sees: the newest turns.

    A question or answer takes at most a quarter of `chars`; longer ones are shortened in the middle. The newest calls
    are shown, and a result takes at most a quarter of `result_chars`. Raises `ConfigError` for an invalid field.
    """

    turns: Annotated[int, Option("Maximum earlier turns that a run sees.")] = 6
    chars: Annotated[int, Option("Maximum characters of these turns.")] = 6000
    result_chars: Annotated[int, Option("Maximum characters of their tool calls and results; 0: none.")] = 2000
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
    def stored_settings(self) -> dict[str, int | str]:
        """Return the values to store in a run's settings: those that are no defaults. A function cannot be stored."""
        given = [(each.name, getattr(self, each.name), each.default) for each in list_fields(History)]
        return {name: value for name, value, usual in given if value != usual and isinstance(value, int | str)}

    def of(self, turns: Iterable[SessionTurn], read_calls: ReadCalls = lambda turn: turn.calls) -> tuple[Exchange, ...]:
        """Return the turns to show, oldest first. Turns without an answer are left out.

        `read_calls` returns the tool calls of a turn.
        """
        shown: list[Exchange] = []
        room, longest, room_of_calls = self.chars, self.chars // 4, self.result_chars
        for turn in sorted(turns, key=lambda each: -each.number):
            if turn.answer is None:
                continue
            exchange = Exchange(shorten(turn.question, longest)[0], shorten(turn.answer, longest)[0])
            room -= len(exchange.question) + len(exchange.answer)
            if len(shown) == self.turns or room < 0:
                break
            calls, room_of_calls = self._fit_calls(read_calls(turn) if room_of_calls else (), room_of_calls)
            shown.append(structs.replace(exchange, calls=calls))
        return tuple(reversed(shown))

    def _fit_calls(self, calls: Sequence[PastCall], room: int) -> tuple[tuple[PastCall, ...], int]:
        """Return the last calls that fit into `room` characters, results shortened, and the characters left.

        Nothing is left behind a call that does not fit.
        """
        fitting: list[PastCall] = []
        for call in reversed(calls):
            short = structs.replace(call, result=shorten(call.result, self.result_chars // 4)[0])
            size = len(short.result) + len(str(call.input))
            if size > room:
                return tuple(reversed(fitting)), 0
            fitting.append(short)
            room -= size
        return tuple(reversed(fitting)), room


class Conversation(Struct, frozen=True):
    """A run's place in a conversation: the session, the run's own id, and the turns that it sees."""

    session: str
    run: str
    history: tuple[Exchange, ...] = ()
    given: tuple[Exchange, ...] = ()
    """All turns before the run, if the caller passed them and not all of them are shown whole."""
    searched: bool = True
    """Whether the run has a tool that searches the conversation."""
    outside: bool = False
    """Whether strangers may have written a part of the turns that the caller passed."""

    def tool(self, store: Store | None, embedder: AnyEmbedder) -> Tool:
        """Return the tool that searches the conversation before this run."""

        def read_turns() -> list[SessionTurn]:
            if self.given or store is None:
                return _turns(self.given)
            return wait_for(store.list_turns(self.session, before=self.run))

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
    session: str, store: Store, shown: History, before: str | None = None, *, has_tools: bool = True
) -> Conversation:
    """Return the place of a run that begins now, or of the run `before`, in a recorded session.

    An agent without tools (`has_tools`) gets no search tool while it is shown the whole conversation: small models then
    search instead of answering.

    Raises `ConfigError` for an invalid name, `JournalError` for an unreadable journal.
    """
    # Read a few more than are shown, because some have no answer.
    turns = await store.list_turns(check_session_name(session), limit=max(1, 4 * shown.turns), before=before)
    search = session_spec().name

    async def read_calls(turn: SessionTurn) -> list[PastCall]:
        try:
            tools = (await store.find_run(turn.run)).head.tools
            calls = calls_in(await read_timeline(store, turn.run, bodies=False), tools)
        except JournalError:
            return []  # its record is damaged or was deleted meanwhile: the question and the answer remain
        return [call for call in calls if call.tool != search]  # what a search found is part of the conversation

    may_show = sorted((each for each in turns if each.answer is not None), key=lambda each: -each.number)
    calls = {each.run: await read_calls(each) for each in may_show[: shown.turns if shown.result_chars else 0]}
    recent = shown.of(turns, lambda turn: calls[turn.run])
    in_order = sorted(turns, key=lambda each: each.number)
    searched = has_tools or not _shows_all(recent, in_order)
    return Conversation(session, new_run_id(), recent, searched=searched)


async def require_answered(session: str, store: Store) -> None:
    """Raise `SessionWaits` if a run of the session waits for the user, because a message would not be its answer."""
    try:
        rows = await store.list_runs(RunQuery("waiting", session=check_session_name(session)))
    except NoJournal:
        return
    row = next((each for each in rows if not each.head.parent), None)
    if row is None:
        return
    run, waits = row.head.run, list(map(waiting_with, await find_open_questions(store, row.head.run)))
    asked = "; ".join(f"question {each.question}: {each.reason}" for each in waits)
    where = "" if store.place == str(default_path()) else f" --journal {quote(store.place)}"
    raise SessionWaits(
        f"In session '{session}' run {run} waits for the user, {asked}",
        run=run,
        waits=waits,
        hint=f"Answer it first: plait resume {run}{where} --question {waits[0].question} --answer ANSWER. In Python: "
        f'agent.resume("{run}", ANSWER, question="{waits[0].question}"). Or use another session.',
    )


async def has_read_outside(store: Store, session: str) -> bool:
    """Return whether a run of a conversation read content from outside, such as a web page."""
    try:
        return bool(await store.list_runs(RunQuery(session=session, is_tainted=True, children=True, limit=1)))
    except NoJournal:
        return False


def continue_conversation(session: str | None, shown: History, history: ChatMessages) -> Conversation:
    """Return the place of a run that begins now, after the turns that the caller passes. `session` may be None.

    Raises `ConfigError` for an invalid name or message.
    """
    given, is_proven = read_turns(history)
    recent = shown.of(_turns(given))
    searched = not _shows_all(recent, given)
    name = check_session_name(session) if session is not None else ""
    return Conversation(name, new_run_id(), recent, given if recent != given else (), searched, not is_proven)


def _shows_all(shown: Iterable[Exchange], turns: Iterable[Exchange | SessionTurn]) -> bool:
    """Return whether the questions and answers of all turns are shown whole."""
    return [(each.question, each.answer) for each in shown] == [(each.question, each.answer) for each in turns]


def recorded_conversation(head: RunHead, run: str = "") -> Conversation | None:
    """Return the place of a recorded run, or of the fork `run` of it; None if it is not part of a conversation."""
    if not (head.session or head.history or head.given):
        return None
    return Conversation(head.session, run or head.run, head.history, head.given, SESSION in head.sources)


async def change_history(place: Conversation, head: RunHead, shown: History, store: Store | None) -> Conversation:
    """Return the place of a recorded run with the turns that an agent with other limits would show."""
    recorded = History(**head.settings.get("history", {}))
    if structs.replace(recorded, embedder=shown.embedder) == shown:
        return place
    if place.searched and not place.given and store is not None:
        now = await open_conversation(place.session, store, shown, head.run)
        return structs.replace(place, history=now.history)
    return structs.replace(place, history=shown.of(_turns(place.given or place.history)))


def _turns(given: Iterable[Exchange]) -> list[SessionTurn]:
    """Return turns that the caller passed in the form of recorded ones."""
    return [SessionTurn(i, "", each.question, each.answer or None, 0.0, each.calls) for i, each in enumerate(given, 1)]


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
