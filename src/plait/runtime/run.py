"""The class `Run`: the result of a run."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NoReturn, cast

from msgspec import Struct, convert, structs

from plait.core import Event, Exchange, Loop, Observation, Outcome, Status, Usage, Waiting
from plait.core.errors import ConfigError, JournalError, OutputError
from plait.core.events import Observed, Replied
from plait.core.notebook import render_html, repr_short
from plait.journal.codec import encode
from plait.journal.records import Row, RunHead
from plait.journal.timeline import Timeline
from plait.runtime.agents.output import TEXT, OutputT, OutputType
from plait.runtime.conversations.chat_messages import calls_in, write_messages
from plait.runtime.costs import PhaseSpending, spending
from plait.runtime.recorded_events import make_events
from plait.runtime.run_files import RunFile, read_files
from plait.runtime.spent import Spent, spent_in
from plait.tools.call_context import call_services


class CallOfRun(Struct, frozen=True):
    """A tool call of a run, for tests: the `input` as the tool got it, by parameter name, and the `result`, a JSON
    value or text. `status` is "ok", the kind of error ("raised", "refused", "timeout" ...), or "open" without a result.
    `text` is what the model was shown. `run` made the call in `step`.
    """

    tool: str
    input: Any
    result: Any
    status: str
    text: str
    step: int
    run: str


class Run(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """A run: how it ended, what it used, and its trace.

    `answer` is any JSON value, text for most loops; None if there is none. `reason` says why a run has no answer, or
    had to answer early. `seconds` is wall time. `cost_usd` is None if a price is unknown. `models` maps each phase of
    the loop to its model.
    """

    id: str
    outcome: Outcome
    loop: str
    steps: int
    calls: int
    usage: Usage
    cost_usd: float | None
    seconds: float
    models: dict[str, str]
    question: str
    rows: Callable[[], Sequence[Row]]
    """Reads the rows of `trace`."""
    read_children: Callable[[], Sequence[Run]] = tuple
    """Reads `children`."""
    tree: Spent = Spent()
    """The usage of the run and its child runs together."""
    loop_object: Loop | None = None
    """The loop itself; None if it is not known."""
    output_type: OutputType[Any] = TEXT
    """The type of `output`; that of the agent."""
    history: tuple[Exchange, ...] = ()
    """The earlier turns of its conversation: all that the caller passed, or those that it saw of its session."""
    tools: tuple[dict[str, Any], ...] = ()
    """The specifications of its tools."""
    outside: bool = False
    """Whether its context holds content from outside: results of tools marked `open_world` (see `Agent.taint`)."""
    taint: str = "off"
    """What the agent does after such content: "off" or "ask"."""
    user: str = ""
    """For whom it was made, as the caller says; so are `tags`, `metadata` and `label`."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    label: str = ""
    agent: str = ""
    """The name of the agent that made it."""

    def __repr__(self) -> str:
        """Return one line: how the run ended, and what it used."""
        end = f"answer={repr_short(self.answer)}" if self.answer is not None else f"reason={repr_short(self.reason)}"
        used = f"steps={self.steps}, tokens={self.usage.tokens}, cost_usd={self.cost_usd}, seconds={self.seconds:.3g}"
        return f"Run({self.status}, {end}, loop={self.loop!r}, {used}, id={self.id!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle holds: the whole record as values, so that it can be read without the journal."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        values["output_type"] = replace(self.output_type, checks=())  # the answer has passed them
        try:
            pickle.dumps(self.loop_object)
        except Exception:  # a loop of the user's own
            values["loop_object"] = None
        try:
            values["rows"] = partial(tuple, self.trace)
            values["read_children"] = partial(tuple, self.children)
        except JournalError as why:  # the result stays usable if its record is lost
            values["rows"] = values["read_children"] = partial(_raise, why)
        return partial(Run, **values), ()

    def _repr_html_(self) -> str:
        """Return a notebook's view: the question, how the run ended, and a table of its steps."""
        cost = "cost unknown" if self.cost_usd is None else f"{self.cost_usd:.6f} USD"
        used = f"{self.steps} steps · {self.usage.tokens:,} tokens · {cost} · {self.seconds:.3g} s · run {self.id}"
        end = self.answer if isinstance(self.answer, str) else repr_short(self.answer, 2000)
        lines = [self.question, end if self.answer is not None else "", self.reason or "", used]
        return render_html(
            f"{self.loop}: {self.status}", lines, ("step", "what", "tokens", "seconds", "USD"), self._steps()
        )

    def _steps(self) -> list[tuple[str, ...]]:
        """Return the rows of the table: each reply of a model and each tool call."""
        try:
            events = self.events
        except JournalError:
            return []
        rows: list[tuple[str, ...]] = []
        for event in events:
            if isinstance(event, Replied):
                cost = "?" if event.cost is None else f"{event.cost:.6f}"
                tokens = f"{event.usage.input_tokens:,} + {event.usage.output_tokens:,}"
                rows.append((str(event.step), f"{event.phase}: {event.model}", tokens, f"{event.seconds:.3g}", cost))
            elif isinstance(event, Observed):
                call = f"{event.call.tool}({repr_short(event.call.input)}) → {repr_short(event.observation.text)}"
                rows.append((str(event.step), call, "", "", ""))
        return rows

    @property
    def status(self) -> Status:
        """Return the status: answered, failed, stopped, cancelled, waiting or crashed."""
        return self.outcome.status

    @property
    def answer(self) -> Any:
        """Return the answer; None if there is none."""
        return self.outcome.answer

    @property
    def output(self) -> OutputT:
        """Return the answer as a value of the agent's output type; its text if the agent has none.

        Raises `OutputError` if the run has no answer, or one that does not fit the type.
        """
        if self.answer is None and self.status != "answered":
            raise OutputError(f"Run {self.id} has no output ({self.status}): {self.reason}")
        try:
            return cast(OutputT, self.output_type.make_value(self.answer))
        except OutputError as why:
            end = f"Run {self.id} has no output ({self.status}): {self.reason} " if self.reason else ""
            raise OutputError(f"{end}{why.message}") from None

    @property
    def reason(self) -> str | None:
        """Return why there is no answer, or why it came early; None for a plain answer."""
        return self.outcome.reason

    @property
    def trace(self) -> tuple[Row, ...]:
        """Return all rows that the journal has of the run, in order."""
        return tuple(self.rows())

    @property
    def children(self) -> tuple[Run, ...]:
        """Return the child runs that the run's tools started, in the order of the calls."""
        return tuple(self.read_children())

    @property
    def files(self) -> tuple[RunFile, ...]:
        """Return the files that tools of the run and of its child runs returned, such as charts. Each has `name`,
        `media_type` and `data`. Raises `JournalError` if the record cannot be read."""
        return (*read_files(self.timeline), *(file for child in self.children for file in child.files))

    @property
    def total_cost_usd(self) -> float | None:
        """Return the cost of the run and its child runs; None if a price is unknown."""
        return self.tree.cost_usd

    @property
    def timeline(self) -> Timeline:
        """Return the record as typed values: model calls, tool calls, pieces of code, questions, notes."""
        return Timeline(self.rows(), run=self.id)

    @property
    def events(self) -> list[Event]:
        """Return the run's events as a listener would have received them, each text in one piece."""
        return make_events(self.timeline, self.loop_object, self.answer)

    def calls_of(self, tool: str = "", *, children: bool = False) -> tuple[CallOfRun, ...]:
        """Return the calls of a tool, or of all tools, in the order in which the run asked for them.

        `children`: the calls of child runs follow. Raises `JournalError` if the record cannot be read.
        """
        found = []
        for each in self.timeline.tool_calls:
            if tool in ("", each.call.tool):
                seen = each.seen or Observation("")
                result = seen.text if seen.value is None else seen.value
                call = each.call
                found.append(CallOfRun(call.tool, call.input, result, each.status, seen.text, each.step, self.id))
        for child in self.children if children else ():
            found += child.calls_of(tool, children=True)
        return tuple(found)

    @property
    def phases(self) -> tuple[PhaseSpending, ...]:
        """Return what each phase spent on each model, and on tool calls, in the order of first use.

        Tokens, USD and model calls add up to the run's totals exactly. Like `trace`, this reads the record as it is
        now; if the run was resumed later, use the `Run` that the resume returned. Raises `JournalError` if the record
        cannot be read.
        """
        return spending(self.timeline)

    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation up to the end of this run as chat-completions messages.

        They begin with the earlier turns. A run's question, tool calls, results and answer follow; a run without an
        answer ends with its last result. Model calls and the format of the loop are left out. `Agent.run` takes the
        list as `history`. With `taint="ask"`, a mark (`clean`) in each turn proves that it holds nothing from outside.
        Raises `JournalError` if the record cannot be read.
        """
        answer = self.answer if isinstance(self.answer, str | None) else encode(self.answer).decode()
        last = Exchange(self.question, answer or "", calls_in(self.timeline, self.tools))
        return write_messages((*self.history, last), clean=self.taint == "ask" and not self.outside)

    def json(self) -> dict[str, Any]:
        """Return the object that `plait run --json` prints. `phases` is None if the record cannot be read."""
        try:
            phases = [row.json() for row in self.phases]
        except JournalError:  # report the run's end even if its record is lost
            phases = None
        outcome = self.outcome
        waits = {"kind": outcome.kind, "question": outcome.question} if isinstance(outcome, Waiting) else None
        return {
            "run": self.id,
            "status": self.status,
            "answer": self.answer,
            "reason": self.reason,
            "waits": waits,
            "loop": self.loop,
            "steps": self.steps,
            "calls": self.calls,
            "usage": structs.asdict(self.usage),
            "cost_usd": self.cost_usd,
            **({"tree": self.tree.json()} if self.tree.runs > 1 else {}),
            "seconds": self.seconds,
            "models": self.models,
            "user": self.user,
            "tags": self.tags,
            "metadata": self.metadata,
            "phases": phases,
        }


def _raise(error: Exception) -> NoReturn:
    raise error


def id_of_run(run: str | Run[Any]) -> str:
    """Return the id of a run that is given as an id or as a `Run`. Raises `ConfigError` for other values."""
    if isinstance(run, Run):
        return run.id
    if not isinstance(run, str):
        raise ConfigError(f"{run!r} is not a run.", hint="Give a Run, the id of a run, or 'last'.")
    return run


def run_of(
    head: RunHead,
    outcome: Outcome,
    totals: dict[str, Any],
    *,
    models: dict[str, str],
    rows: Callable[[], Sequence[Row]],
    read_children: Callable[[], Sequence[Run]],
    loop_object: Loop | None,
    output_type: OutputType[Any],
    taint: str,
) -> Run[Any]:
    """Build a run from its parts, as the engine or the journal has them."""
    outside = bool(totals.get("guards", {}).get("taint")) if totals else True
    if (calling := call_services()) is not None:
        calling.outside |= outside  # a tool runs an agent by itself: what that run read may be in the tool's result
    return Run(
        id=head.run,
        outcome=outcome,
        loop=head.loop["name"],
        steps=totals.get("steps", 0),
        calls=totals.get("calls", 0),
        usage=convert(totals, Usage),
        cost_usd=totals.get("cost_usd"),
        seconds=totals.get("seconds", 0.0),
        models=models,
        question=head.question,
        rows=rows,
        read_children=read_children,
        tree=spent_in(totals),
        loop_object=loop_object,
        output_type=output_type,
        history=head.given or head.history,
        tools=head.tools,
        outside=outside,
        taint=taint,
        user=head.user,
        tags=head.tags,
        metadata=head.metadata,
        label=head.label,
        agent=head.agent,
    )
