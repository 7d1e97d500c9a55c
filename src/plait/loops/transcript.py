"""What a model receives of a run: rules, question and log, in one of three forms.

`chat`: each turn is an assistant message and each observation a user message. `user`: one user message carries the
earlier work below the question. `completion`: one raw prompt. From step to step the prompt only grows at its end, so
that a server's prefix cache stays useful.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from plait.core import Attachment, LoopContext, Message, Observation, Task, Think, assistant, join_parts, system
from plait.core.labels import HOLE
from plait.loops.compaction import View, with_summary
from plait.loops.escape import begins_line, escape_of, escape_task
from plait.loops.format import Turn, TurnCodec

TranscriptKind = Literal["chat", "user", "completion"]
Observe: TypeAlias = Callable[[str, str, int], str]
"""How a prompt shows an observation, given the tool's name, the text (already escaped) and the turn's number from 1."""


class Transcript:
    """Builds the prompts of one run.

    `words` are the values that the system template needs. `observe` overrides how the format shows an observation.
    `harmless`: the loop has already escaped its observations. `answer_place` says where a reply has the answer.
    """

    def __init__(
        self,
        kind: TranscriptKind,
        format: TurnCodec,
        task: Task,
        context: LoopContext,
        words: Mapping[str, Any],
        observe: Observe | None = None,
        harmless: bool = False,
        answer_place: str = "",
    ) -> None:
        self._kind = kind
        self._observe = observe or (lambda tool, text, n: format.observation(text, n))
        self._context = context
        self.escape = escape = escape_of(context, format.escape)
        self._harmless = harmless
        self._inline = not begins_line(self._observe("", HOLE, 1))
        self._ask, self._task = task.ask, escape_task(task, escape)
        self._rules = join_parts(context.rules(**words), context.output_rules(answer_place))
        self._tools: dict[str, str] = {}
        """The tools' names, made harmless."""
        self._heads: dict[str, tuple[Message, Message]] = {}
        """The rules and the question of a chat, by the summary below it."""
        self._chat: dict[tuple[int, int, bool], tuple[Message, Message]] = {}
        self._raw: dict[tuple[int, View], str] = {}
        self._turns: dict[tuple[int, View], PastTurn] = {}

    def think(self, phase: str, log: Scratchpad, view: View, opening: str, tail: tuple[Message, ...] = ()) -> Think:
        """The think effect over the log, its messages or its raw prompt set. `tail` is said after the log; `opening` is
        where the model goes on, for the forms that end in the middle of a turn. `view`: its shown part."""
        summary = self.escape(view.show_summary(self._context)) if view.summary else ""
        task = {**self._task, "question": with_summary(self._task["question"], summary)}
        if self._kind == "chat":
            if summary not in self._heads:
                self._heads[summary] = system(self._rules), self._ask(self._context.prompt("question", **task))
            said: list[Message] = []
            for i in view.find_shown(len(log.entries)):
                key = i, view.chars, i < view.folded
                if key not in self._chat:
                    entry, how = log.entries[i], view.of_entry(i)
                    text, images = self._observe_entry(entry, i + 1, how), how.show_attachments(entry.attachments)
                    self._chat[key] = assistant(entry.turn), Message("user", text, attachments=images)
                said += self._chat[key]
            if after := self._after(log):
                said[-1] = structs.replace(said[-1], content=f"{said[-1].content.rstrip()}\n({after})")
            return Think(phase, (*self._heads[summary], *said, *tail))
        after = self._after(log)
        raw = [self._show_raw(log.entries[i], i, view.of_entry(i)) for i in view.find_shown(len(log.entries))]
        raw += [f"({after})\n"] if after else []
        shown = {"log": "".join(raw), "turns": self._past_turns(log, view), "opening": "" if tail else opening}
        values = {**task, **shown, "phase": phase}
        if self._kind == "user":
            indexes = view.find_shown(len(log.entries))
            files = (view.of_entry(i).show_attachments(log.entries[i].attachments) for i in indexes)
            seen = tuple(chain.from_iterable(files))
            return Think(
                phase, (system(self._rules), self._ask(self._context.prompt("earlier", **values), seen), *tail)
            )
        text = self._context.prompt("completion", system=self._rules, **values)
        if tail:
            text = "\n".join((text, *(message.content for message in tail), opening))
        return Think(phase, prompt=text)

    def _past_turns(self, log: Scratchpad, view: View) -> list[PastTurn]:
        """Return the turns for a template that writes the log itself. A remark follows the last observation."""
        done: list[PastTurn] = []
        for i in view.find_shown(len(log.entries)):
            key = (i, view.of_entry(i))
            if key not in self._turns:
                self._turns[key] = PastTurn(self, log.entries[i], *key)
            done.append(self._turns[key])
        if not done or not (after := self._after(log)):
            return done
        last = len(log.entries) - 1
        return [*done[:-1], PastTurn(self, log.entries[-1], last, view.of_entry(last), f"\n({after})")]

    def escape_observation(self, text: str) -> str:
        """Return an observation for the place at which the template of earlier turns shows one."""
        return text if self._harmless else self.escape.labels(self.escape(text, inline=self._turns_inline))

    @cached_property
    def _turns_inline(self) -> bool:
        """Return whether that template shows an observation behind other words."""
        probe = {"number": 1, "reply": "", "text": "", "tool": "", "observation": HOLE}
        name, values = ("earlier", {}) if self._kind == "user" else ("completion", {"system": ""})
        shown = self._context.prompt(name, **self._task, **values, log="", turns=(probe,), opening="", phase="")
        return not begins_line(shown)

    def _after(self, log: Scratchpad) -> str:
        return log.after if self._harmless or not log.after else self.escape(log.after, inline=True)

    # A log only grows, so what was made of its entries is kept: a step costs no more than what it adds.

    def _show_raw(self, entry: LogEntry, i: int, view: View) -> str:
        if (i, view) not in self._raw:
            own = self.escape.tokens(entry.turn.rstrip())
            self._raw[i, view] = f"{own}\n{self._observe_entry(entry, i + 1, view).rstrip()}\n"
        return self._raw[i, view]

    def _observe_entry(self, entry: LogEntry, n: int, view: View) -> str:
        """Return the observation of the entry number `n`: shortened or folded, escaped, labelled."""
        text = self.show_result(entry, view)
        if self._harmless:
            return self._observe(entry.tool, text, n)
        if (tool := self._tools.get(entry.tool)) is None:
            tool = self._tools[entry.tool] = self.escape(entry.tool, inline=True)
        return self._observe(tool, self.escape(text, inline=self._inline), n)

    def show_result(self, entry: LogEntry, view: View) -> str:
        """Return an observation, shortened or folded, without its label and not escaped."""
        return view.show_result(self._context, entry.tool, entry.observation)

    @cached_property
    def own_result(self) -> tuple[str, ...]:
        """How a result of the model's own making begins: a stop string for formats that end with an object. Empty if
        the observation's template begins with too few words."""
        head, hole, _ = self._observe(HOLE, HOLE, 1).lstrip().partition(HOLE)
        return (f"\n{head}",) if hole and sum(map(str.isalpha, head)) > 2 else ()


class PastTurn:
    """A turn as a template receives it: `number` from 1, `reply`, `text`, `tool` and `observation`.

    `reply` is the model's whole reply with all its blanks, `text` the part of it that counts. Both have special tokens
    escaped. `observation` is escaped and has no label.
    """

    def __init__(self, page: Transcript, entry: LogEntry, index: int, view: View, remark: str = "") -> None:
        self._page, self._entry, self._view, self._remark = page, entry, view, remark
        self.number = index + 1
        self.tool = entry.tool

    @cached_property
    def reply(self) -> str:
        return self._page.escape.tokens(self._entry.reply)

    @cached_property
    def text(self) -> str:
        return self._page.escape.tokens(self._entry.turn)

    @cached_property
    def observation(self) -> str:
        return self._page.escape_observation(self._page.show_result(self._entry, self._view)) + self._remark


class LogEntry(Struct, frozen=True):
    """The part of a turn that counts, the whole observation after it, its tool and attachments, and the whole reply."""

    turn: str
    observation: str
    tool: str
    reply: str
    attachments: tuple[Attachment, ...] = ()

    def describe(self) -> str:
        """Return the turn and its observation as text."""
        return f"{self.turn}\n{self.observation}"


class Scratchpad(Struct, frozen=True):
    """The log of a run, frozen: `then` and `once_more` return a new one. `after` is a remark behind the last entry."""

    entries: tuple[LogEntry, ...] = ()
    after: str = ""

    def then(self, turn: Turn, observation: Observation) -> Scratchpad:
        """Append a turn and its observation."""
        text = observation.with_note
        tool = turn.call.tool if turn.call is not None else "final_answer"
        return Scratchpad((*self.entries, LogEntry(turn.kept, text, tool, turn.reply, observation.attachments)))

    def once_more(self, words: str) -> Scratchpad:
        """Leave out a turn that only repeated a call, and remark that behind the last entry."""
        return Scratchpad(self.entries, words)

    @property
    def observations(self) -> tuple[str, ...]:
        return tuple(entry.observation for entry in self.entries)

    @property
    def next(self) -> int:
        """The number of the next turn, from 1."""
        return len(self.entries) + 1
