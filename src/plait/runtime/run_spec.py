"""What one run needs: the specification that an agent makes."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from plait.core import Call, Loop, LoopContext, Task, Waiting
from plait.core.errors import JournalError, ReplayDiffers
from plait.core.text import count_shared
from plait.journal.keys import read_key
from plait.journal.records import LastTurn, Row
from plait.models.base import Model
from plait.runtime.agents.output import TEXT, OutputType
from plait.runtime.calls_in_doubt import CallInDoubt
from plait.runtime.phase_models import Phases
from plait.runtime.spent import Spent
from plait.runtime.tracing import UNWATCHED, Tracer
from plait.sandbox import AUTO, Sandbox
from plait.tools import Toolset

if TYPE_CHECKING:
    from plait.runtime.agents.agent_fields import AgentFields

OnWait: TypeAlias = Callable[[Waiting], Awaitable[str | None] | str | None]
"""Answers for the user during a run, as a plain or an async function; None leaves the run waiting."""

OnInterruptedCall: TypeAlias = Literal["skip", "repeat"]
"""The policy of a resumed run for a call of a tool that is not repeatable, if the call may have happened."""


Grounding: TypeAlias = Literal["off", "note", "warn", "ask", "refuse"]
"""What Plait does about an ungrounded value: nothing; notes it in the journal; also warns the model; asks the user
before the call; refuses the call."""

Claims: TypeAlias = Literal["off", "note", "ask", "refuse"]
"""What Plait does about an answer that says that something was done, if no call did it."""

Taint: TypeAlias = Literal["off", "ask"]
"""What Plait does about a call with effects after content from outside is in the context."""

Approve: TypeAlias = Literal["never", "effects", "always", "plan"] | Callable[[Call], bool]
"""Which calls need the user's approval: none, those with effects, all, those a function selects; or the plan."""


@dataclass(frozen=True)
class Past:
    """What earlier processes recorded of a run: its `rows`, and sums of them. `spent` is what the run used, `children`
    what its child runs used, by run. `lost`: see `Resumption`. `calls_in_doubt` are those of its tree."""

    rows: Sequence[Row] = ()
    spent: Spent = field(default_factory=Spent)
    children: Mapping[str, Spent] = field(default_factory=dict)
    session_calls: Sequence[CallInDoubt] | JournalError = ()
    seconds: float = 0.0
    artifacts: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    lost: str = ""
    calls_in_doubt: tuple[CallInDoubt, ...] = ()


@dataclass(frozen=True)
class RunSpec:
    """All that one run needs, whether it is new, resumed, forked or replayed. `agent` has the options."""

    agent: AgentFields[Any, Any]
    loop: Loop
    task: Task
    context: LoopContext
    tools: Toolset
    phases: Phases
    find_model: Callable[[str | Model | None], Model]
    """Returns the model that a tool names; for None that of the run."""
    instructions: str = ""
    """The agent's own instructions, without those of `context_text`: the text of the project's context files."""
    context_text: str = ""
    outside: tuple[str, ...] = ()
    """What the context holds from outside at the start (`guards/taint.py`)."""
    on_wait: OnWait | None = None
    output: OutputType[Any] = TEXT
    sandbox: str | Sandbox = AUTO
    fallback: str = ""
    """A note shown when code first runs: the sandbox is not the preferred one, and why."""
    now: float | None = None
    """The time that code sees, in seconds since 1970; None for the machine's clock."""
    tracer: Tracer = UNWATCHED
    """Observes the run from outside."""
    deps: Any = None
    """The dependencies of tools, as the caller gave them."""
    session: str = ""
    last_turn: LastTurn | None = None
    """The last turn of the session when a new run was prepared."""
    data_tokens: tuple[str, ...] = ()
    """Special tokens of the models that no prompt of the loop holds. In a request they can only be data."""
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """The bytes of the question's files, by digest."""
    past: Past = field(default_factory=Past)
    replay: bool = False
    """Perform nothing; stop where the record ends or at the first difference."""
    trust_until: int = 0
    """Steps below this number come from the record, without comparing requests (a fork may change them)."""


def differs(key: str, step: int, expected: str, found: str) -> ReplayDiffers:
    """Return the error of a run that differs from its record at an entry."""
    where = count_shared(expected, found)
    start = max(0, where - 60)
    shown = "\n".join(difflib.ndiff([expected[start : where + 80]], [found[start : where + 80]]))
    return ReplayDiffers(
        f"The run differs from its record at step {step} (effect {read_key(key).n}, character {where:,}):\n{shown}\n",
        at=step,
        expected=expected,
        found=found,
        hint="The code, the prompts or the model's settings have changed since. Fork the run to go on from here.",
    )
