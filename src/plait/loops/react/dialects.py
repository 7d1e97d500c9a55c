"""The dialects of text ReAct: each is one value, which the writer, the reader, the splitter and the loop take.

blob                                       lines                     numbered (the form of the 2022 paper)

Thought: I need the number of people.      Thought: I need ...       Thought 1: I need ...
Action:                                    Action: lookup            Action 1: lookup[Lyon]
```json                                    Action Input: Lyon        Observation 1: 522250
{"action": "lookup",                       Observation: 522250       Thought 2: That is all.
 "action_input": "Lyon"}                   Thought: That is all.     Action 2: Finish[522250]
```                                        Final Answer: 522250
Observation: 522250
Thought: That is all.
Final Answer: 522250

`original` is `numbered`, read as the environments of the published episodes did. A further dialect is a `Dialect` and a
prompt `format_NAME.j2`. Give the value to `ReAct`, or add it to `DIALECTS` with its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from plait.loops.label_scan import USUAL, LabelKind, LabelWords

Syntax = Literal["blob", "lines", "bracket"]


@dataclass(frozen=True)
class Dialect:
    """A way to write turns.

    `syntax`: how an action is written. "blob": a JSON object in a fence. "lines": two labelled lines. "bracket":
    `Name[input]`. `words`: those of the labels. `numbered`: labels have the turn's number. `finish`: the name of the
    action that gives the answer, in place of the answer's label; "" for none. `original`: read the end of a run as the
    environments of the published episodes did. `prompt`: the template `format_PROMPT.j2`; "" for the dialect's name.
    """

    name: str
    syntax: Syntax
    words: LabelWords = USUAL
    numbered: bool = False
    finish: str = ""
    original: bool = False
    prompt: str = ""

    def label(self, kind: LabelKind, n: int) -> str:
        """Return the label of a kind in turn `n`, with its colon."""
        number = f" {n}" if self.numbered else ""
        return f"{getattr(self.words, kind)}{number}:"

    def describe_turn(self, n: int) -> str:
        """Return how turn `n` looks, for a model whose reply could not be read."""
        thought, action, answer = (self.label(kind, n) for kind in ("thought", "action", "answer"))
        if self.finish:
            return (
                f"Write `{thought}` and what you think, then on a new line `{action} ToolName[input]`, "
                f"or `{action} {self.finish}[answer]` when you know the answer."
            )
        shape = {
            "blob": f'{action}\n```json\n{{"action": "<tool name>", "action_input": <input>}}\n```',
            "lines": f"{action} <tool name>\n{self.label('input', n)} <input>",
            "bracket": f"{action} <tool name>[<input>]",
        }
        either = f"either\n{shape[self.syntax]}\nor `{answer}` and the whole answer."
        return f"Write `{thought}` and what you think, then {either}"


DialectName = Literal["blob", "lines", "numbered", "original"]
DIALECTS: dict[DialectName, Dialect] = {
    "blob": Dialect("blob", "blob"),
    "lines": Dialect("lines", "lines"),
    "numbered": Dialect("numbered", "bracket", numbered=True, finish="Finish"),
    "original": Dialect("original", "bracket", numbered=True, finish="Finish", original=True, prompt="numbered"),
}
