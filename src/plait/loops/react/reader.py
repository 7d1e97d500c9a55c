"""Reads a turn of text ReAct, in one way for all dialects.

Order of reading: text after an observation in the reply is cut. The first readable action counts, and wins over any
final answer. Without an action, the last final answer counts. The last resorts are an action without its label, or
inside a line. Anything else is `Unreadable`, with the format quoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from plait.core import Call, ToolSpec
from plait.core.arguments import brings_result
from plait.core.loose_json import NotJson
from plait.loops import label_scan
from plait.loops.call_notations import GLUE, calls_in
from plait.loops.format import Remark, Turn, Unreadable
from plait.loops.label_scan import FINAL, Body, Label, cut, repair_remark
from plait.loops.react.actions import ParsedAction, Syntax, action_at

_ENDS = FINAL | {"finish", "answer", "final", "final response"}
"""Names of actions by which models give their answer."""
_NO_ACTION = frozenset({"none", "n/a", "na", "null", "no action", "no tool", "none needed", "none required", "nothing"})
_MAX_BROKEN = 50
"""Maximum number of broken actions to skip before the reply is rejected."""
_LINE_CALL = re.compile(r"^[ \t>*`-]{0,12}([A-Za-z]\w{0,63})\[", re.M | re.A)


_NO_LABEL = "the action's label was missing"
_MAYBE_CALL = re.compile(r"[{(<]|```")


class Dialect(Struct, frozen=True):
    """A dialect for the reader: its syntax, how its turns look, and what ends a run.

    `finish`: `Finish[...]` is the answer. `original`: read it as the environments of the recorded runs did.
    """

    syntax: Syntax
    shape: str
    finish: bool = False
    original: bool = False


def read_turn(text: str, n: int, tools: Sequence[ToolSpec], dialect: Dialect) -> Turn:
    """Read the turn in a reply. Raises only `Unreadable`."""
    body = label_scan.body_of(text)
    answers = body.of("answer")
    first_answer = answers[0].start if answers else len(body.text)
    trouble, broken = "", 0
    labels = body.of("action")
    for label in labels:
        try:
            action = action_at(body, label, tools)
        except NotJson as error:
            if (broken := broken + 1) > _MAX_BROKEN:
                break
            trouble = trouble or f"{error.what} ({error.where(body.text[label.end :])} after `Action:`)"
            continue
        # After a final answer, `Action: eat less` is probably part of the answer.
        if action is None or _is_none(action, tools):
            continue
        if label.start > first_answer and not (action.sure and action.syntax in (dialect.syntax, "blob")):
            continue
        notes = list(body.remarks)
        if trouble:
            notes.append(cut("an earlier action whose JSON can't be read"))
        earlier = _unlabelled(body, label.start, tools, dialect, followed=True, invented=True)
        if earlier is not None:
            return _turn(body, earlier[0], earlier[1], n, tools, dialect, [*body.remarks, earlier[2]], None)
        return _turn(body, label.start, action, n, tools, dialect, notes, label)
    if not trouble and (found := _last_resort(body, first_answer, bool(labels), tools, dialect)):
        start, action, note = found
        return _turn(body, start, action, n, tools, dialect, [*body.remarks, note], None)
    notes = list(body.remarks)
    if (answer := label_scan.answer_of(body, notes)) is not None and not (trouble and labels[0].start < first_answer):
        thought = label_scan.thought_of(body, first_answer, notes)
        if dialect.finish:
            notes.append(repair_remark("Final Answer: was taken for Finish[...]"))
        kept = body.text[: answer[1]].strip()
        return Turn(thought, answer=answer[0], answered=True, kept=kept, remarks=tuple(notes))
    if not trouble and (other := _other_labels(body, n, tools, dialect)) is not None:
        return other
    if (found := _inside_line(body, tools)) is not None:
        return _turn(body, found[0], found[1], n, tools, dialect, [*body.remarks, found[2]], None)
    raise Unreadable(f"{_why(text, body, trouble)} {dialect.shape}")


def _other_labels(body: Body, n: int, tools: Sequence[ToolSpec], dialect: Dialect) -> Turn | None:
    """Read the turn in a reply whose labels are other words or inside a line; None if there are none."""
    text = label_scan.with_usual_labels(body.text)
    if text == body.text:
        return None
    try:
        turn = read_turn(text, n, tools, dialect)
    except Unreadable:
        return None
    if turn.call is not None and all(tool.name != turn.call.tool for tool in tools):
        return None
    note = repair_remark("the labels were written in another way")
    return Turn(turn.thought, turn.call, turn.answer, turn.answered, turn.kept, (*body.remarks, note, *turn.remarks))


def _is_none(action: ParsedAction, tools: Sequence[ToolSpec]) -> bool:
    """Return whether this is `Action: None`, which means no action."""
    name = action.name.strip(" .`*\"'()[]").lower()
    return (name in _NO_ACTION or name.startswith(("no action", "none ("))) and label_scan.tool_of(
        action.name, tools
    ) is None


def _why(text: str, body: Body, trouble: str) -> str:
    if trouble:
        return f"The JSON of your action can't be read: {trouble}."
    if not text.strip():
        return "Your reply is empty."
    if any(remark.kind == "cut" for remark in body.remarks):
        return (
            "You wrote an observation yourself. Observations come only from tools, so it was cut, and "
            "before it there is no action and no final answer that can be read."
        )
    if body.of("action"):
        return "After `Action:` there is nothing that names a tool."
    return "There is neither an action nor a final answer in your reply."


def _unlabelled(
    body: Body, upto: int, tools: Sequence[ToolSpec], dialect: Dialect, *, followed: bool, invented: bool = False
) -> tuple[int, ParsedAction, Remark] | None:
    """Find a call without the label `Action:`, in any notation that models know, before the index `upto`.

    `followed`: an answer or an action follows, so the call must begin a line, or an invented result must follow it.
    With `invented`, an invented result must follow. Raises `Unreadable` for a broken call of a known tool.
    """
    head = body.text[:upto]
    if not _MAYBE_CALL.search(head) or (invented and not brings_result(head)):
        return None
    found = next(iter(calls_in(head, tools)), None)
    if found is None:
        return None
    behind = brings_result(head[found.end :])
    line = head[head.rfind("\n", 0, found.start) + 1 : found.start]
    alone = found.certain and not GLUE.sub("", line).strip("*>#- \t")
    if followed and not behind and (invented or not alone):
        return None
    word = found.name.strip().lower()
    if label_scan.tool_of(found.name, tools) is None and word not in FINAL and tools and followed:
        return None
    if found.broken:
        if followed and not behind:
            return None
        raise Unreadable(f"Your call of {found.name[:60]!r} can't be read: {found.broken}. {dialect.shape}")
    notes = tuple(repair_remark(what) for what in found.repairs)
    return found.start, ParsedAction(found.name, found.value, found.end, "blob", notes), repair_remark(_NO_LABEL)


def _last_resort(
    body: Body, upto: int, labelled: bool, tools: Sequence[ToolSpec], dialect: Dialect
) -> tuple[int, ParsedAction, Remark] | None:
    followed = bool(body.of("answer"))
    if (found := _unlabelled(body, upto, tools, dialect, followed=followed)) is not None:
        return found
    if labelled:
        return None
    names = {tool.name.lower() for tool in tools} | ({"finish"} if dialect.finish else set())
    for match in _LINE_CALL.finditer(body.text[:upto]) if dialect.finish or not followed else ():
        if match[1].lower() in names:
            label = Label("action", 0, match.start(), match.start(1))
            if (action := action_at(_with(body, label), label, tools)) is not None:
                return label.start, action, repair_remark(_NO_LABEL)
    return None


def _inside_line(body: Body, tools: Sequence[ToolSpec]) -> tuple[int, ParsedAction, Remark] | None:
    """Find an action whose label is inside a line, if no line begins with one."""
    if body.of("action") or body.of("answer") or (inside := label_scan.action_inside(body.text)) is None:
        return None
    try:
        action = action_at(_with(body, inside), inside, tools)
    except NotJson:
        return None
    if action is None or (action.syntax == "lines" and not action.sure):
        return None
    return inside.start, action, repair_remark("an action inside a line was taken")


def _with(body: Body, label: Label) -> Body:
    return Body(body.text, tuple(sorted((*body.labels, label), key=lambda x: x.start)), body.remarks)


def _turn(
    body: Body,
    start: int,
    action: ParsedAction,
    n: int,
    tools: Sequence[ToolSpec],
    dialect: Dialect,
    notes: list[Remark],
    label: Label | None,
) -> Turn:
    """Return the turn of an action; `start` is where its label (or the action itself) begins."""
    if action.syntax != dialect.syntax:
        notes.append(repair_remark("the action was written as in another dialect"))
    notes += action.remarks
    if label is not None and dialect.finish and label.number not in (0, n):
        notes.append(repair_remark(f"the action was numbered {label.number} in turn {n}"))
    thought = label_scan.thought_of(body, start, notes)
    before = [x for x in body.of("answer") if x.start < start]
    head = body.text[:start]
    if before:
        notes.append(cut("a final answer before the action: the action wins"))
        head = body.text[: before[0].start]
    end, name = action.end, action.name
    word = name.strip().strip("`*\"'").lower()
    finish = (dialect.finish and word == "finish") or (word in _ENDS and label_scan.tool_of(name, tools) is None)
    if finish and dialect.original and label is not None:
        if "\n" in body.text[label.end : action.raw_start].rstrip() and action.syntax == "bracket":
            # The environment of the recorded runs refused an action that did not begin on its label's line.
            finish = False
        else:
            return _run_on(body, action, thought, head, start, notes)
    label_scan.cut_after(body.text, end, notes)
    kept = (head + body.text[start:end]).strip()
    if finish:
        answer = finish_answer(action.raw) if action.syntax == "bracket" else action.input
        if answer is None or (isinstance(answer, str) and not answer.strip() and not dialect.finish):
            raise Unreadable(f"Your final answer is empty. {dialect.shape}")
        return Turn(thought, answer=answer, answered=True, kept=kept, remarks=tuple(notes))
    call = Call(label_scan.tool_name(name, tools, notes), action.input)
    return Turn(thought, call, kept=kept, remarks=tuple(notes))


def finish_answer(raw: str) -> str:
    """Return the answer in `Finish[raw]`: the plain text, or the content of a JSON string from the writer."""
    raw = raw.strip()
    if raw.startswith('"') and "\\" in raw:
        # Only the writer uses escapes; quotation marks alone may belong to the answer.
        value = label_scan.input_of(raw, [], closed=True)
        if isinstance(value, str):
            return value
    return label_scan.unguard(raw)


def _run_on(body: Body, action: ParsedAction, thought: str, head: str, start: int, notes: list[Remark]) -> Turn:
    """Return the answer as the recorded HotpotQA runs scored it: all text up to the next action."""
    at = action.raw_start
    end = next((x.start for x in body.labels if x.start > at and x.kind == "action"), len(body.text))
    answer = body.text[at:end].strip().removesuffix("]")
    if end > action.end and body.text[action.end : end].strip():
        notes.append(repair_remark("text after the answer's bracket was taken into the answer"))
    kept = (head + body.text[start:end]).strip()
    return Turn(thought, answer=answer, answered=True, kept=kept, remarks=tuple(notes))
