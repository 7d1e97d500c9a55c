"""The dialects of text ReAct: each is one value, from which its codec is made.

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
from typing import Literal, NamedTuple

from plait.loops.label_scan import USUAL, LabelKind, LabelWords

Syntax = Literal["blob", "lines", "bracket"]


class ActionForm(NamedTuple):
    """How an action is written: the text around the tool's name and its input, with placeholders for the labels.

    `value`: the grammar's rule for the input. `is_json`: name and input are JSON. `is_optional`: it may be left out.
    """

    head: str
    middle: str
    tail: str
    value: str
    is_json: bool = False
    is_optional: bool = False


FORMS: dict[Syntax, ActionForm] = {
    "blob": ActionForm('{action}\n```json\n{{"action": ', ', "action_input": ', "}}\n```", "value", is_json=True),
    "lines": ActionForm("{action} ", "\n{input} ", "", "line", is_optional=True),
    "bracket": ActionForm("{action} ", "[", "]", "inside*"),
}


@dataclass(frozen=True)
class Dialect:
    """A way to write turns.

    `syntax`: how an action is written. "blob": a JSON object in a fence. "lines": two labelled lines. "bracket":
    `Name[input]`. `words`: those of the labels. `numbered`: labels have the turn's number. `finish`: the name of the
    action that gives the answer, in place of the answer's label; "" for none. Its actions are in brackets. `original`:
    read the end of a run as the environments of the published episodes did. `prompt`: the template `format_PROMPT.j2`;
    "" for the dialect's name.
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

    def form(self, n: int) -> ActionForm:
        """Return how an action of turn `n` is written, with its labels in place; with `finish`, always in brackets."""
        form = FORMS["bracket" if self.finish else self.syntax]
        labels = {kind: self.label(kind, n) for kind in ("action", "input")}
        head, middle, tail = (part.format_map(labels) for part in (form.head, form.middle, form.tail))
        return form._replace(head=head, middle=middle, tail=tail)

    def write_action(self, name: str, given: str, n: int) -> str:
        """Return an action of turn `n`; name and input are texts that its form can hold."""
        form = self.form(n)
        return form.head + name + (f"{form.middle}{given}{form.tail}" if given or not form.is_optional else "")

    def describe_turn(self, n: int) -> str:
        """Return how turn `n` looks, for a model whose reply could not be read."""
        begin, answer = f"Write `{self.label('thought', n)}` and what you think, then", self.label("answer", n)
        if self.finish:
            call, last = (self.write_action(*each, n) for each in (("ToolName", "input"), (self.finish, "answer")))
            return f"{begin} on a new line `{call}`, or `{last}` when you know the answer."
        name = '"<tool name>"' if self.form(n).is_json else "<tool name>"
        return f"{begin} either\n{self.write_action(name, '<input>', n)}\nor `{answer}` and the whole answer."


DialectName = Literal["blob", "lines", "numbered", "original"]
DIALECTS: dict[DialectName, Dialect] = {
    "blob": Dialect("blob", "blob"),
    "lines": Dialect("lines", "lines"),
    "numbered": Dialect("numbered", "bracket", numbered=True, finish="Finish"),
    "original": Dialect("original", "bracket", numbered=True, finish="Finish", original=True, prompt="numbered"),
}
