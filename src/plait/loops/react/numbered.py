"""The numbered dialect of text ReAct, the form of the 2022 paper.

    Thought 1: I need to search Lyon.
    Action 1: Search[Lyon]
    Observation 1: Lyon is a city in France.
    Thought 2: That is all.
    Action 2: Finish[France]

The un-numbered form `Thought:` / `Action: search[Lyon]` / `Action: finish[France]` is read as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from plait.core import Splitter, ToolSpec
from plait.loops import gbnf, label_scan
from plait.loops.action_objects import NAME_KEYS, disarm_objects
from plait.loops.call_objects import CallObjects
from plait.loops.format import Turn
from plait.loops.react.lines import balanced, input_text, plain_name
from plait.loops.react.reader import Dialect, finish_answer, read_turn
from plait.loops.react.splitter import TextSplitter
from plait.loops.tool_descriptions import numbered_lines

_LINE_CALL = re.compile(r"^([ \t>*`-]{0,12}[A-Za-z]\w{0,63})\[", re.M | re.A)


class Numbered(Struct, frozen=True):
    """Text ReAct with numbered turns; an action is `Name[input]`, and `Finish[answer]` ends the run.

    Names are matched to the given tools whatever their case, and `Finish` in any case. Input follows the
    rule of `Lines`; `[]` is no input (None) for a tool and an empty answer for Finish.

    `original` reads the end of a run as the environments of the published episodes did, for replaying
    those: an action that does not begin on its label's line does not finish (ReAct's FEVER environment
    called it invalid), and text after Finish's bracket, up to the next action, belongs to the answer (as
    FireAct's HotpotQA scores have it).

    Writer: as `Lines`; text with brackets that don't match is written as a JSON string with escapes.
    An empty input text reads back as None. `write` raises ValueError for a turn with neither call nor
    answer, a tool's name that can't stand before a bracket, and input that JSON can't hold.
    """

    original: bool = False

    @property
    def name(self) -> str:
        """ "numbered", or "original" when it reads as the recorded environments did."""
        return "original" if self.original else "numbered"

    def stop(self, n: int) -> tuple[str, ...]:
        """The observation that only the runtime may write, on its own line."""
        return (f"\nObservation {n}:",)

    def read(self, text: str, n: int, tools: Sequence[ToolSpec] = ()) -> Turn:
        """The turn in a reply. The first action that can be read counts, and wins over any answer.

        Beside the canonical form it takes no numbers or other ones, the action on a later line, text
        after the bracket (cut), brackets that don't match, a missing label before `Finish[` or a known
        tool, `Final Answer:`, and actions written as in the other dialects. Raises `Unreadable`, and
        nothing else.
        """
        dialect = Dialect("bracket", _shape(n), finish=True, original=self.original)
        return read_turn(text, n, tools, dialect)

    def write(self, turn: Turn, n: int) -> str:
        """The canonical text of a turn. Raises ValueError as the class says."""
        thought = label_scan.guard(turn.thought.strip())
        head = f"Thought {n}: {thought}\n" if thought else ""
        if turn.call is not None:
            name = turn.call.tool
            if not plain_name(name) or name.lower() == "finish":
                raise ValueError(f"A tool named {name!r} can't be written as `{name}[...]`.")
            return f"{head}Action {n}: {name}[{input_text(turn.call.input, brackets=True)}]"
        if not turn.answered:
            raise ValueError("A turn needs a call or an answer to be written.")
        return f"{head}Action {n}: Finish[{_answer(turn.answer)}]"

    def observation(self, text: str, n: int) -> str:
        """The line that brings turn `n`'s observation into the log."""
        return f"Observation {n}: {text}"

    def disarm(self, text: str) -> str:
        """Data with a backslash in whatever would read as a label, an action or a fence.

        `Name[` at the start of a line is one: the reader takes it where the label was forgotten.
        """
        plain = _LINE_CALL.sub(r"\1\\[", label_scan.disarm(text))
        return CallObjects().disarm(disarm_objects(plain, NAME_KEYS[:1]))

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        """A line a tool, `(1) Name[input]: what for`, and Finish as the last one."""
        listed = numbered_lines(tuple(tools))
        last = f"({len(tools) + 1}) Finish[answer]: gives the answer and ends the task."
        return f"{listed}\n{last}" if listed else last

    def grammar(self, tools: Sequence[ToolSpec], n: int, *, opened: bool = False) -> str | None:
        """GBNF of a turn with a thought of one line. `opened`: the prompt already ends in `Thought n:`."""
        thought = '" " thought "\\n"' if opened else f'( "Thought {n}: " thought "\\n" )?'
        names = gbnf.one_of([*(tool.name for tool in tools), "Finish"])
        return "\n".join(
            [
                f'root ::= {thought} "Action {n}: " name "[" inside* "]"',
                f"name ::= {names}",
                r'inside ::= [^\[\]\r\n] | "[" inside* "]"',
                gbnf.THOUGHT_RULE,
            ]
        )

    def schema(self, tools: Sequence[ToolSpec]) -> dict[str, Any] | None:
        """None: a turn is text."""
        return None

    def splitter(self) -> Splitter:
        """Thought, action (`Name[input]`) and the answer inside `Finish[...]`, without labels."""
        return TextSplitter(finish=True)


def _shape(n: int) -> str:
    return (
        f"Write `Thought {n}:` and what you think, then on a new line `Action {n}: ToolName[input]`, "
        f"or `Action {n}: Finish[answer]` when you know the answer."
    )


def _answer(answer: Any) -> str:
    text = answer.strip() if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, allow_nan=False)
    if text == label_scan.guard(text) and balanced(text) and finish_answer(text) == text:
        return text
    dumped = label_scan.in_json(json.dumps(text, ensure_ascii=False))
    if not balanced(text):
        dumped = dumped.replace("[", "\\u005b").replace("]", "\\u005d")
    # The reader takes a string for the writer's only where it has escapes.
    return dumped if "\\" in dumped else f'"\\u{ord(text[0]):04x}{dumped[2:]}'
