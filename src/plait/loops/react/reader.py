"""Reads a turn of text ReAct, in one way for all dialects.

Order of reading: text after an observation in the reply is cut. The first readable action counts, and wins over any
final answer; behind an action that is never closed, none counts. Without an action, the last final answer counts. The
last resorts are an action without its label, or inside a line. Anything else is `Unreadable`, with the format quoted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct, structs

from plait.core import Call, ToolSpec
from plait.core.arguments import InvalidArguments, brings_result
from plait.core.loose_json import NotJson
from plait.loops import label_scan
from plait.loops.call_notations import GLUE, calls_in
from plait.loops.format import Remark, Turn, Unreadable
from plait.loops.label_scan import Body, Label, LabelWords, cut, repair_remark
from plait.loops.react.actions import ParsedAction, action_at, read_value_text
from plait.loops.react.dialects import Dialect
from plait.loops.vocabulary import ANSWER_NAMES, FINISH_NAMES

_ENDS = (*FINISH_NAMES, "answer", "final", "final response")
"""Names of actions by which models give their answer."""
_NO_ACTION = frozenset({"none", "n/a", "na", "null", "no action", "no tool", "none needed", "none required", "nothing"})
_MAX_BROKEN = 50
"""Maximum number of broken actions to skip before the reply is rejected."""
LINE_CALL = re.compile(r"^[ \t>*`-]{0,12}([A-Za-z]\w{0,63})\[", re.M | re.A)


_LEFTOVER = re.compile(r"\s*(?:<end_code>|</code>?|<\|im_end\|>|</s>)\s*\Z", re.I)
_REFERS_BACK = re.compile(
    r"(?:see |as )?(?:(?:is |are )?(?:given|shown|stated|described|written|provided|listed) )?above\b"
    r"|(?:the |this |these |that |my )(?:(?:above|preceding|previous) )?"
    r"(?:paragraphs?|texts?|essays?|summary|story|poem|list|table|code|sections?|points?|steps?|response|answer"
    r"|explanation|report|article|analysis|overview)(?: above| i wrote)?"
    r" (?:above|encapsulates?|provides?|describes?|covers?|summari[sz]es?|contains?|captures?|outlines?|explains?"
    r"|addresses|is (?:given |shown |stated |written )?above|are (?:given |shown |listed )?above)\b",
    re.I,
)
_NO_LABEL = "the action's label was missing"
_MAYBE_CALL = re.compile(r"[{(<]|```")

_Found: TypeAlias = tuple[int, ParsedAction, Remark]
"""Where an action begins, the action, and how it was found."""


def bracket_names(tools: Sequence[ToolSpec], dialect: Dialect) -> frozenset[str]:
    """Return the names that make `Name[` at the start of a line an action, in small letters."""
    return frozenset(map(str.lower, filter(None, (*map(attrgetter("name"), tools), dialect.finish))))


def read_turn(text: str, n: int, tools: Sequence[ToolSpec], dialect: Dialect) -> Turn:
    """Read the turn in a reply. Raises only `Unreadable`."""
    return _TurnReader(text, dialect.words.scan(text), n, tools, dialect).read()


class _TurnReader(Struct, frozen=True):
    reply: str
    body: Body
    n: int
    tools: Sequence[ToolSpec]
    dialect: Dialect

    def read(self) -> Turn:
        body, words = self.body, self.dialect.words
        answers, labels = body.of("answer"), body.of("action")
        first_answer = answers[0].start if answers else len(body.text)
        trouble, broken = "", 0
        for label in labels:
            try:
                action = self._action_at(label)
            except NotJson as error:
                if (broken := broken + 1) > _MAX_BROKEN:
                    break
                where = error.where(body.text[label.end :])
                trouble = trouble or f"{error.what} ({where} after `{words.action}:`)"
                if error.unclosed and label.start < first_answer:
                    break  # what follows belongs to it, or comes after it
                continue
            if action is None:
                continue
            name = action.name.strip(" .`*\"'()[]").lower()
            is_none = name in _NO_ACTION or name.startswith(("no action", "none ("))  # `Action: None` means no action
            if is_none and label_scan.tool_of(action.name, self.tools) is None:
                continue
            # After a final answer, `Action: eat less` is probably part of the answer.
            if label.start > first_answer and not (action.sure and action.syntax in (self.dialect.syntax, "blob")):
                continue
            notes = [cut("an earlier action whose JSON can't be read")] if trouble else []
            if (earlier := self._find_unlabelled(label.start, followed=True, invented=True)) is not None:
                return self._turn_at(*earlier)
            return self._turn_at(label.start, action, *notes, label=label)
        if not trouble and (found := self._find_without_label(first_answer)) is not None:
            return self._turn_at(*found)
        notes = list(body.remarks)
        answer = _answer_of(body, notes)
        if answer is not None and not (trouble and labels[0].start < first_answer):
            thought = _thought_of(body, first_answer, notes)
            if self.dialect.finish:
                notes.append(repair_remark(f"{words.answer}: was taken for {self.dialect.finish}[...]"))
            kept = body.text[: answer[1]].strip()
            return Turn(thought, answer=answer[0], answered=True, kept=kept, remarks=tuple(notes))
        if not trouble and (other := self._read_other_labels()) is not None:
            return other
        if (found := self._find_inside_line()) is not None:
            return self._turn_at(*found)
        raise self._refuse(self._describe_problem(trouble))

    def _action_at(self, label: Label) -> ParsedAction | None:
        """Return the action behind a label, or the call there in another notation. Raises `NotJson`."""
        action = error = None
        try:
            action = action_at(self.body, label, self.tools, self.dialect)
        except NotJson as why:
            error = why
        bare = action is None or (action.syntax == "lines" and action.input is None)
        named = action is not None and not (bare and "(" in action.name)
        tool = label_scan.tool_of(action.name, self.tools) if action is not None and named else None
        if (bare or tool is None) and not (action is not None and self._is_finish(action.name)):
            found = next(iter(calls_in(self.body.text[label.end : self.body.after(label)], self.tools)), None)
            meant = label_scan.tool_of(found.name, self.tools) if found is not None and not found.broken else None
            if found is not None and meant is not None and meant is (tool or meant):
                notes = tuple(map(repair_remark, found.repairs))
                return ParsedAction(meant.name, found.value, label.end + found.end, "blob", notes)
        if error is not None:
            raise error
        return action

    def _refuse(self, why: str) -> Unreadable:
        return Unreadable(f"{why} {self.dialect.describe_turn(self.n)}")

    def _read_other_labels(self) -> Turn | None:
        """Read the turn in a reply whose labels are other words or inside a line; None if there are none."""
        text = self.dialect.words.replace_others(self.body.text)
        if text == self.body.text:
            return None
        try:
            turn = read_turn(text, self.n, self.tools, self.dialect)
        except Unreadable:
            return None
        if turn.call is not None and all(tool.name != turn.call.tool for tool in self.tools):
            return None
        note = repair_remark("the labels were written in another way")
        return structs.replace(turn, remarks=(*self.body.remarks, note, *turn.remarks))

    def _describe_problem(self, trouble: str) -> str:
        body = self.body
        if trouble:
            return f"The JSON of your action can't be read: {trouble}."
        if not self.reply.strip():
            return "Your reply is empty."
        if any(remark.kind == "cut" for remark in body.remarks):
            return (
                "You wrote an observation yourself. Observations come only from tools, so it was cut, and "
                "before it there is no action and no final answer that can be read."
            )
        if body.of("action"):
            return f"After `{body.words.action}:` there is nothing that names a tool."
        return "There is neither an action nor a final answer in your reply."

    def _find_unlabelled(self, upto: int, *, followed: bool, invented: bool = False) -> _Found | None:
        """Find a call without the label `Action:`, in any notation that models know, before the index `upto`.
        `followed`: an answer or an action follows, so the call must begin a line, or an invented result must follow it.
        With `invented`, an invented result must follow. Raises `Unreadable` for a broken call of a known tool."""
        head = self.body.text[:upto]
        if not _MAYBE_CALL.search(head) or (invented and not brings_result(head)):
            return None
        found = next(iter(calls_in(head, self.tools)), None)
        if found is None:
            return None
        behind = brings_result(head[found.end :])
        line = head[head.rfind("\n", 0, found.start) + 1 : found.start]
        alone = found.certain and not GLUE.sub("", line).strip("*>#- \t")
        if followed and not behind and (invented or not alone):
            return None
        word = found.name.strip().lower()
        if label_scan.tool_of(found.name, self.tools) is None and word not in ANSWER_NAMES and self.tools and followed:
            return None
        if found.broken:
            if followed and not behind:
                return None
            raise self._refuse(f"Your call of {found.name[:60]!r} can't be read: {found.broken}.")
        notes = tuple(repair_remark(what) for what in found.repairs)
        return found.start, ParsedAction(found.name, found.value, found.end, "blob", notes), repair_remark(_NO_LABEL)

    def _find_without_label(self, upto: int) -> _Found | None:
        """As `_find_unlabelled`; without any label of an action, also find `Name[input]` on a line of its own. `upto`:
        where the first answer begins, or the text's end."""
        body, finish = self.body, self.dialect.finish
        followed = upto < len(body.text)
        if (found := self._find_unlabelled(upto, followed=followed)) is not None:
            return found
        if body.of("action"):
            return None
        for match in LINE_CALL.finditer(body.text[:upto]) if finish or not followed else ():
            if match[1].lower() in bracket_names(self.tools, self.dialect):
                label = Label("action", 0, match.start(), match.start(1))
                if (action := action_at(_with(body, label), label, self.tools, self.dialect)) is not None:
                    return label.start, action, repair_remark(_NO_LABEL)
        return None

    def _find_inside_line(self) -> _Found | None:
        """Find an action whose label is inside a line, if no line begins with one."""
        body = self.body
        if body.of("action") or body.of("answer") or (inside := body.words.find_action_inside(body.text)) is None:
            return None
        try:
            action = action_at(_with(body, inside), inside, self.tools, self.dialect)
        except NotJson:
            return None
        if action is None or (action.syntax == "lines" and not action.sure):
            return None
        return inside.start, action, repair_remark("an action inside a line was taken")

    def _is_finish(self, name: str) -> bool:
        word = name.strip().strip("`*\"'").lower()
        ends = word in _ENDS or word == self.body.words.answer.lower()
        named = bool(self.dialect.finish) and word == self.dialect.finish.lower()
        return named or (ends and label_scan.tool_of(name, self.tools) is None)

    def _turn_at(self, start: int, action: ParsedAction, *remarks: Remark, label: Label | None = None) -> Turn:
        """Return the turn of an action; `start` is where its label (or the action itself) begins."""
        body, dialect, tools = self.body, self.dialect, self.tools
        notes = [*body.remarks, *remarks]
        if action.syntax != dialect.syntax:
            notes.append(repair_remark("the action was written as in another dialect"))
        notes += action.remarks
        if label is not None and dialect.numbered and label.number not in (0, self.n):
            notes.append(repair_remark(f"the action was numbered {label.number} in turn {self.n}"))
        thought = _thought_of(body, start, notes)
        head, answers = body.text[:start], body.of("answer")
        if answers and answers[0].start < start:
            notes.append(cut("a final answer before the action: the action wins"))
            head = body.text[: answers[0].start]
        end, name = action.end, action.name
        finish = self._is_finish(name)
        if finish and dialect.original and label is not None:
            if "\n" in body.text[label.end : action.raw_start].rstrip() and action.syntax == "bracket":
                # The environment of the recorded runs refused an action that did not begin on its label's line.
                finish = False
            else:
                return _run_on(body, action, thought, head, start, notes)
        if action.half and not finish:
            raise self._refuse(action.half)
        rest = body.text[end:].strip()
        if rest.strip("`}] \n"):
            several = " (with another label among them)" if body.words.pattern.search(body.text, end) else ""
            notes.append(cut(f"{len(rest)} characters after the action{several}"))
        kept = (head + body.text[start:end]).strip()
        if finish:
            answer = finish_answer(action.raw, body.words) if action.syntax == "bracket" else action.input
            if answer is None or (isinstance(answer, str) and not answer.strip() and not dialect.finish):
                raise self._refuse("Your final answer is empty.")
            return Turn(thought, answer=answer, answered=True, kept=kept, remarks=tuple(notes))
        call = Call(label_scan.tool_name(name, tools, notes), action.input)
        return Turn(thought, call, kept=kept, remarks=tuple(notes))


def _with(body: Body, label: Label) -> Body:
    return structs.replace(body, labels=tuple(sorted((*body.labels, label), key=lambda x: x.start)))


def finish_answer(raw: str, words: LabelWords) -> str:
    """Return the answer in `Finish[raw]`: the plain text, or the content of a JSON string from the writer."""
    raw = raw.strip()
    if raw.startswith('"') and "\\" in raw:
        # Only the writer uses escapes; quotation marks alone may belong to the answer.
        with suppress(InvalidArguments):
            value = read_value_text(raw, [], closed=True, words=words)[0]
            if isinstance(value, str):
                return value
    return words.unguard(raw)


def _run_on(body: Body, action: ParsedAction, thought: str, head: str, start: int, notes: list[Remark]) -> Turn:
    """Return the answer as the recorded HotpotQA runs scored it: all text up to the next action."""
    at = action.raw_start
    end = next((x.start for x in body.labels if x.start > at and x.kind == "action"), len(body.text))
    answer = body.text[at:end].strip().removesuffix("]")
    if end > action.end and body.text[action.end : end].strip():
        notes.append(repair_remark("text after the answer's bracket was taken into the answer"))
    kept = (head + body.text[start:end]).strip()
    return Turn(thought, answer=answer, answered=True, kept=kept, remarks=tuple(notes))


def _thought_of(body: Body, upto: int, remarks: list[Remark]) -> str:
    """Return the thought before the index `upto`: the content of `Thought:` labels, and text before any label."""
    parts: list[str] = []
    begin, thoughts = 0, 0  # of the text that is a thought; -1 within another part
    for label in body.labels:
        if label.start >= upto:
            break
        if begin >= 0:
            parts.append(body.text[begin : label.start].strip())
        is_thought = label.kind == "thought"
        begin, thoughts = label.end if is_thought else -1, thoughts + is_thought
    if begin >= 0:
        parts.append(body.text[begin:upto].strip())
    if parts[0]:
        remarks.append(repair_remark(f"text without the label {body.words.thought}: was taken for the thought"))
    if thoughts > 1:
        remarks.append(repair_remark("several thoughts were joined"))
    return body.words.unguard("\n".join(filter(None, parts))).strip()


def _answer_of(body: Body, remarks: list[Remark]) -> tuple[str, int] | None:
    """Return the content of the last non-empty `Final Answer:` and its end; None without such a label. If the answer
    only refers to the text above it, that text is the answer."""
    answers = body.of("answer")
    if not answers:
        return None
    stops = [x.start for x in body.labels if x.kind in ("thought", "answer")] + [len(body.text)]
    texts = []
    for label in answers:
        end = stops[min(bisect_right(stops, label.start), len(stops) - 1)]
        texts.append((body.text[label.end : end].strip(), end))
    full = [(text, end) for text, end in texts if text]
    if not full:
        word = body.words.answer
        raise Unreadable(f"Your {word} is empty. Write the whole answer after `{word}:`.")
    text, end = full[-1]
    if _REFERS_BACK.match(text) and len(text) < 400:
        before = [each for each in full[:-1] if not _REFERS_BACK.match(each[0])]
        above = "\n\n".join(each for each, _ in before) or _above(body, answers[0].start)
        if len(above) > len(text):
            remarks.append(repair_remark("the final answer only referred to the text above it, which was taken"))
            return body.words.unguard(above), end
    if end < len(body.text) and end not in {label.start for label in answers}:
        remarks.append(cut("a thought after the final answer"))
    if len(answers) > 1:
        which = "last one" if text is texts[-1][0] else "last one that has content"
        remarks.append(repair_remark(f"of {len(answers)} final answers the {which} counts"))
    before_it = answers[texts.index((text, end))].start
    return body.words.unguard(_without_leftovers(text, body.text[:before_it], remarks)), end


def _above(body: Body, upto: int) -> str:
    """Return the text above an answer: that of the last thought, or the text without a label."""
    last = next((label for label in reversed(body.labels) if label.start < upto), None)
    if last is None:
        return body.text[:upto].strip()
    text = body.text[last.end : upto].strip()
    first, _, rest = text.partition("\n\n")
    # The first paragraph of a thought introduces the answer; the others are the answer.
    return rest.strip() or (first if len(first) > 200 else "")


def _without_leftovers(text: str, before: str, remarks: list[Remark]) -> str:
    """Remove markup that some models leave after an answer: `</code`, a fence that was opened earlier."""
    kept = text
    if "<code" not in kept and (match := _LEFTOVER.search(kept, max(0, len(kept) - 40))) is not None:
        kept = kept[: match.start()]
    if kept.endswith("```") and kept.count("```") % 2 and before.count("```") % 2:
        kept = kept[:-3].rstrip()
    if kept != text:
        remarks.append(repair_remark("markup left over after the answer was dropped"))
    return kept
