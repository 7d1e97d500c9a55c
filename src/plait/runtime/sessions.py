"""Conversations: which earlier turns a run is shown, and the tool with which it searches all of them.

Theory of operation. A session is a name, and its turns are the runs on record that bear it. When a run begins, the
last turns that fit the window are taken from the journal, given to the loop and kept in the run's head: whoever
resumes, replays or forks it takes them from there, whatever was said since. All that was said before the run
can be searched by the tool `chat_history`, which reads nothing until it is called.

Whoever asks may bring the earlier turns along, as clients of an endpoint do: then those are the conversation. Where all
of them are shown there is nothing to search, and so no tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, TypeAlias

from msgspec import Struct, convert, structs, to_builtins

from plait.core import Exchange, ToolSpec
from plait.core.errors import ConfigError, ToolError
from plait.core.text import shorten
from plait.journal.owner import new_run_id
from plait.journal.records import RunHead, SessionTurn
from plait.journal.store import Journal
from plait.search.embedders import Embedder as EmbedderObject
from plait.search.embedders import EmbedFunction
from plait.tools import Tool, Toolset
from plait.tools.load import is_mcp_word, recall_tools, runs_code
from plait.tools.signature import Signature

SESSION = "(session)"
"""Stands among a run's `sources` for the tool that comes with a session; no word can be it."""

LONGEST_NAME = 200

Embedder: TypeAlias = str | EmbedFunction | EmbedderObject
"""What measures meaning: "local", "openai:NAME", a function from texts to vectors, or an object of one's own."""


class History(Struct, frozen=True, repr_omit_defaults=True):
    """How much of a conversation a run is shown: at most `turns` turns with `chars` characters in all.

    The newest turns are shown; a question or answer takes at most a quarter of the characters, longer ones
    are shortened in their middle. `embedder` searches the whole conversation, and the tools, by meaning: "local",
    "openai:NAME", a function from texts to vectors, or an object. Raises `ConfigError` for an invalid field.
    """

    turns: int = 6
    chars: int = 6000
    embedder: Embedder = "local"

    def __post_init__(self) -> None:
        for name in ("turns", "chars"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(f"History({name}={value!r}) is invalid.", hint="Give a whole number from 0 up.")
        if isinstance(self.embedder, str) and self.embedder:
            return
        if not callable(self.embedder) and not isinstance(self.embedder, EmbedderObject):
            raise ConfigError(
                f"History(embedder={self.embedder!r}) is invalid.",
                hint='Give "local", "openai:NAME" or a function from a list of texts to vectors.',
            )

    @property
    def stored_settings(self) -> dict[str, Any]:
        """What the settings of a run keep of it. A function is not stored: "local" stands for it."""
        embedder = self.embedder if isinstance(self.embedder, str) else "local"
        return {"history": {"turns": self.turns, "chars": self.chars}, "embedder": embedder}

    def of(self, turns: Iterable[SessionTurn]) -> tuple[Exchange, ...]:
        """The part of a conversation that is shown, oldest first. Turns without an answer are left out."""
        shown: list[Exchange] = []
        room, most = self.chars, self.chars // 4
        for turn in sorted(turns, key=lambda each: -each.number):
            if turn.answer is None:
                continue
            exchange = Exchange(shorten(turn.question, most)[0], shorten(turn.answer, most)[0])
            room -= len(exchange.question) + len(exchange.answer)
            if len(shown) == self.turns or room < 0:
                break
            shown.append(exchange)
        return tuple(reversed(shown))


class Conversation(Struct, frozen=True):
    """A run's place in a conversation: the session, the run's own id, and the turns it is shown."""

    session: str
    run: str
    history: tuple[Exchange, ...] = ()
    given: tuple[Exchange, ...] = ()
    """All turns before the run, where whoever asked brought them along and they are more than is shown."""
    searched: bool = True
    """There is a tool that searches what was said."""

    def tool(self, journal: Journal, embedder: Embedder) -> Tool:
        """The tool that searches what was said before this run."""
        from plait.toolkits.chat_history import chat_history

        def read_turns() -> list[SessionTurn]:
            return _turns(self.given) if self.given else journal.turns(self.session, before=self.run)

        return structs.replace(chat_history(read_turns, embedder), source=SESSION)

    def taken_by(self, head: RunHead, spec: ToolSpec, history: History) -> RunHead:
        """The run's head with all that going on with it needs; `spec` is of the tool."""
        head = structs.replace(head, run=self.run, session=self.session, history=self.history, given=self.given)
        if not self.searched:
            return structs.replace(head, settings={**head.settings, **history.stored_settings})
        return structs.replace(
            head,
            tools=(*head.tools, to_builtins(spec)),
            sources=(*head.sources, SESSION),
            settings={**head.settings, **history.stored_settings},
        )


def session_spec() -> ToolSpec:
    """What a model is told of the tool that comes with a session."""
    from plait.toolkits.chat_history import chat_history

    return chat_history(lambda: (), "local").spec


def open_conversation(
    session: str, journal: Journal, shown: History, history: Iterable[Exchange] | None = None
) -> Conversation:
    """The place of a run that begins now; `history`: the turns before it, None for those on record.

    Raises `ConfigError` for a name that can't be, `JournalError`.
    """
    if history is not None:
        given = tuple(history)
        recent = shown.of(_turns(given))
        searched = recent != given
        return Conversation(check_session_name(session), new_run_id(), recent, given if searched else (), searched)
    # A few more than are shown, for those without an answer.
    turns = journal.turns(check_session_name(session), limit=4 * shown.turns)
    return Conversation(session, new_run_id(), shown.of(turns))


def recorded_conversation(head: RunHead, run: str = "") -> Conversation | None:
    """The place that a recorded run has, for itself or for the `run` that is forked from it; None for one that is
    no turn of a conversation."""
    if not head.session:
        return None
    return Conversation(head.session, run or head.run, head.history, head.given, SESSION in head.sources)


def _turns(given: Iterable[Exchange]) -> list[SessionTurn]:
    """Turns that were brought along, as those on record are had."""
    return [SessionTurn(i, "", each.question, each.answer, 0.0) for i, each in enumerate(given, 1)]


def check_session_name(session: str) -> str:
    """The session's name as it is. Raises `ConfigError` when it can't be one."""
    if not isinstance(session, str) or not session.strip() or not session.isprintable():
        raise ConfigError(f"{session!r} can't be a session's name.", hint="Give it a word or two, such as 'trip'.")
    if len(session) > LONGEST_NAME:
        raise ConfigError(f"A session's name has at most {LONGEST_NAME} characters, this has {len(session)}.")
    return session


def fresh_name() -> str:
    """A name for a session that was given none."""
    return f"chat-{new_run_id().rpartition('-')[2]}"


class RecordedTool(Tool, frozen=True, dict=True, kw_only=True):
    """A tool as a run's record describes it, whose code was not loaded: it can be shown, but not called.

    Whoever hands a journal over must not thereby make its reader run code. So a run of a journal that is not the
    user's default one is replayed with these, and is not resumed or forked before the user allows its tools.
    """

    recorded: ToolSpec

    @cached_property
    def signature(self) -> Signature:
        spec = self.recorded
        return Signature(spec.parameters, spec.description, spec.returns, spec.result)

    @cached_property
    def spec(self) -> ToolSpec:
        return self.recorded


def require_loaded(tools: Iterable[Any]) -> None:
    """Raises `ConfigError` when there are tools among these whose code was not loaded."""
    sources = dict.fromkeys(tool.source for tool in tools if isinstance(tool, RecordedTool))
    if sources:
        raise ConfigError(
            f"This journal names tools that run code, and Plait did not load them: {', '.join(sources)}.",
            hint="If you trust it, add --load-tools (in Python: load_tools=True). Or name your own tools with --tools.",
        )


def _not_loaded(*args: Any, **kwargs: Any) -> None:
    raise ToolError("The code of this tool was not loaded.")


def tools_of(head: RunHead, apart: tuple[str, ...], load_code: bool = True) -> tuple[str | Tool, ...]:
    """What a run's tools came by: words, and the tools at a server. `apart` are sources that come by themselves.

    Without `load_code`, tools whose words run code are the record's descriptions only.
    """
    found: list[str | Tool] = []
    for source in dict.fromkeys(head.sources):
        both = zip(head.tools, head.sources, strict=False)
        specs = [convert(spec, ToolSpec) for spec, each in both if each == source]
        if source not in apart and not load_code and runs_code(source):
            found += [RecordedTool(_not_loaded, spec.name, source=source, recorded=spec) for spec in specs]
        elif is_mcp_word(source):
            found += recall_tools(source, specs)
        elif source not in apart:
            found.append(source)
    return tuple(found)


def as_recorded(tools: Toolset, head: RunHead) -> Toolset:
    """The agent's tools, those at a server as the run's record has them."""
    if not any(is_mcp_word(source) for source in head.sources) or any(isinstance(tool, RecordedTool) for tool in tools):
        return tools
    from plait.tools.mcp.tools import with_recorded_spec

    found: list[Tool] = []
    for raw, source in zip(head.tools, head.sources, strict=False):
        known = tools.get(str(raw["name"]))
        if is_mcp_word(source):
            spec = convert(raw, ToolSpec)
            found.append(with_recorded_spec(known, spec) if known is not None else recall_tools(source, (spec,))[0])
        elif known is not None:
            found.append(known)
    there = {tool.name for tool in found}
    new = [tool for tool in tools if tool.name not in there and tool.source not in head.sources]
    return structs.replace(tools, tools=(*found, *new))
