"""The code format: thought, action and observation, numbered, where the action is Python in a fence.

THOUGHT 2:
I see in OBSERVATION 1 that `people(city: str) -> int` counts them.
ACTION 2:
```python
print(people("Lyon"))
```
OBSERVATION 2:
522250
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from plait.core import Call, ToolSpec
from plait.loops import gbnf
from plait.loops.codeact.blocks import PYTHON, is_python, plain_code
from plait.loops.codeact.labels import FENCE, IN_CODE, STOP, WORDS
from plait.loops.codeact.reader import TurnReader
from plait.loops.codeact.signature import signature_lines
from plait.loops.format import CODE, Codec, Parts, Turn, TurnCodec
from plait.loops.label_scan import LabelKind
from plait.loops.label_stream import LabelStream

_RUN = re.compile(r"^[ \t]*(`{3,})", re.M)


class CodeStream(LabelStream[Turn]):
    """A turn that streams in. Its parts are shown without labels and fences, code in whole lines. A line that may hold
    a fence is held back until it ends. Code without a fence is shown at the end of the reply, if it is read as code."""

    def __init__(self, codec: Codec[Turn], n: int, tools: Sequence[ToolSpec]) -> None:
        super().__init__(codec, n, tools, WORDS)
        self._ticks = ""  # of the block's fence; "" outside of one
        self._is_quote = False  # the block is not Python, so no label in it counts
        self._is_bare = False  # an action has begun without a fence

    def take_line(self, line: str, *, whole: bool) -> None:
        if not whole and (self._ticks or "`" in line or line.endswith("\\") or line.lstrip(" \t").startswith("~")):
            self._rest = line
        elif self._ticks and self._is_quote and not IN_CODE.match(line):
            self._add_text(line)
            self._ticks = "" if self._find_close(line) == 0 else self._ticks
        elif self._ticks and not self._is_quote:
            # Show a line of a block, which may end it.
            close = self._find_close(line)
            self.over = close is not None or IN_CODE.match(line) is not None
            if not self.over or close:
                self.put("action", line.rstrip()[:-1].rstrip(self._ticks[0]) if self.over else line, "\n")
            self._ticks = "" if self.over else self._ticks
        else:
            self._ticks = ""
            super().take_line(line, whole=whole)

    def begin_label(self, kind: LabelKind) -> None:
        self.over = kind == "observation" or self._is_bare
        joins = self.kind == kind == "thought"
        self.kind = kind if kind in ("action", "answer") else "thought"
        self.begin("\n" if joins else "")

    def add(self, text: str) -> None:
        fence = self._find_opening(text)
        word = (fence["word"] or fence["word2"] or "").lower() if fence is not None else ""
        is_code = fence is not None and (word in PYTHON or (self.kind == "action" and not word))
        if fence is None or not is_code:
            self._add_text(text)
        else:
            self._add_text(text[: fence.start()])
            self.end_part()
            self.kind = "action"
            self.begin()
        if fence is not None and (is_code or word):
            self._ticks, self._is_quote = fence["ticks"] or fence["tildes"], not is_code

    def _add_text(self, text: str) -> None:
        """Add text outside of code; below an action's label it is code only if it is read as code."""
        if self.kind != "action":
            super().add(text)
        elif not self._ticks:
            self._is_bare = self._is_bare or bool(text.strip())

    def _find_opening(self, line: str) -> re.Match[str] | None:
        """Return the fence at the end of the line, if it opens a block."""
        for match in FENCE.finditer(line) if "`" in line or "~" in line else ():
            is_first = self._starts and not line[: match.start()].strip()
            if is_first if match["tildes"] else match["line"] is not None and (match["word"] or is_first):
                return match
        return None

    def _find_close(self, line: str) -> int | None:
        """Return the characters before the fence at the line's end that closes the block, None if there is none."""
        bare = line.strip()
        inside = bare.rstrip(self._ticks[0])
        return len(inside) if len(bare) - len(inside) >= len(self._ticks) else None


@dataclass(frozen=True)
class CodeFormat(TurnCodec):
    """Turns whose action is Python: its call is that of `python` with the code as input.

    `write` strips blank lines at the ends of thought and code. In a thought, it puts a backslash into anything that
    would read as a label or a fence, and the reader removes it. If code contains a fence, the fence around it is
    longer. `write` raises ValueError for a turn with neither code nor answer, for an empty answer, and for code that
    would not read back unchanged: empty, indented as a whole, copied with prompts (`>>> `), with a line such as `ACTION
    3:`.
    """

    name: ClassVar[str] = "code"
    stream_kind = CodeStream

    def stop(self, n: int) -> tuple[str, ...]:
        return ("\nOBSERVATION", f"\nTHOUGHT {n + 1}:")

    def read(self, text: str, n: int = 1, tools: Sequence[ToolSpec] = (), *, whole: bool = True) -> Turn:
        """Read the turn in a reply. The first action that holds code counts, and wins over any answer.

        It also accepts labels in other case or without numbers, a missing thought, other fences, an unclosed or missing
        fence, a block or bare code without a label, `Final Answer:`. `kept` has the canonical form of anything
        repaired. `whole` False: the token limit cut the reply, so a fence must be closed. Raises only `Unreadable`.
        """
        return TurnReader(text, n, self.write, whole).read()

    def write(self, turn: Turn, n: int = 1) -> str:
        thought = WORDS.guard(turn.thought.strip())
        head = f"THOUGHT {n}:\n{thought}\n" if thought else ""
        if turn.call is None:
            return head + self._answer(turn)
        code = turn.call.input
        if turn.call.tool != CODE or not isinstance(code, str):
            raise ValueError(f"A call of {turn.call.tool!r} is no code.")
        code = code.strip("\n").rstrip()
        if not code or plain_code(code, []) != code or IN_CODE.search(code) is not None:
            raise ValueError("This code would not be read back as it is.")
        fence = "`" * max([3, *(len(match[1]) + 1 for match in _RUN.finditer(code))])
        return f"{head}ACTION {n}:\n{fence}python\n{code}\n{fence}"

    def write_calls(self, calls: Sequence[Call], thought: str = "", n: int = 1) -> str:
        lines = []
        for call in calls:
            given = [] if call.input is None else call.input if isinstance(call.input, list) else [call.input]
            words = [f"{key}={value!r}" for key, value in call.input.items()] if isinstance(call.input, dict) else None
            lines.append(f"print({call.tool}({', '.join(map(repr, given) if words is None else words)}))")
        return self.write(Turn(thought, code_call("\n".join(lines))), n)

    def write_answer(self, answer: Any, n: int = 1) -> str:
        return self.write(Turn(call=code_call(f"{STOP}({answer!r})")), n)

    def _answer(self, turn: Turn) -> str:
        answer = WORDS.guard(turn.answer.strip()) if turn.answered and isinstance(turn.answer, str) else ""
        if not answer:
            raise ValueError("A turn needs code, or an answer in words, to be written.")
        return f"FINAL ANSWER: {answer}"

    def join_opening(self, text: str, opening: str) -> str:
        """Return a reply with its opening, unless it starts over with a label, a fence, or bare code."""
        body = text.lstrip()
        if WORDS.pattern.match(body) or FENCE.match(body) or is_python(body):
            return text
        words = opening.rpartition("\n")[2].strip()
        if words and body.startswith(words):
            body = body[len(words) :]
        joint = "" if not opening or opening[-1:].isspace() or body[:1] in ("", ",", ".", ":", ";", "\n") else " "
        return f"{opening}{joint}{body.lstrip(' ')}"

    def observation(self, text: str, n: int) -> str:
        return f"OBSERVATION {n}:\n{text}"

    def escape(self, text: str, tools: Sequence[ToolSpec] = (), inline: bool = False) -> str:
        """Put a backslash into anything that would read as a label, a fence, or code that calls a function."""
        return WORDS.escape(text, tools, inline)

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        return signature_lines(tools)

    def grammar(self, tools: Sequence[ToolSpec], n: int = 1, *, opened: bool = False) -> str | None:
        """Return GBNF of a turn: a thought of one line, code of at most 60 lines."""
        thought = '" "? thought "\\n"' if opened else f'"THOUGHT {n}:\\n" thought "\\n"'
        return "\n".join(
            [
                f'root ::= {thought} "ACTION {n}:\\n```python\\n" code{{1,60}} "```"',
                r'code ::= ( [^`\r\n] [^\r\n]{0,400} )? "\n"',
                gbnf.THOUGHT_RULE,
            ]
        )

    def parts(self, reading: Turn) -> Parts:
        code = reading.call.input if reading.call is not None else ""
        return {"thought": reading.thought, "action": code, "answer": reading.answer or ""}


FORMAT = CodeFormat()


def code_call(code: str) -> Call:
    """Return the call that runs a piece of Python."""
    return Call(CODE, code)
