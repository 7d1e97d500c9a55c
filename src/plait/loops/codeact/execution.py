"""Runs one action of codeact: executes the code, makes its calls, and builds the observation.

`stop` is a call without a reply, so no `except` in the code swallows it. Results of the search tool are printed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from msgspec import structs

from plait.core import (
    JSON,
    Answered,
    Attachment,
    Call,
    CodeError,
    Effects,
    LimitNear,
    LoopContext,
    Observation,
    Ran,
    act,
    execute,
    go_on,
    note,
)
from plait.core.artifacts import replace_handles
from plait.core.text import shorten
from plait.loops.codeact.hints import NAMES, NEVER_RAN, OF_MODULE, assigned_names, find_forbidden_import, hint_of
from plait.loops.codeact.labels import SEARCH, STOP
from plait.loops.codeact.signature import as_code, python_function, signature
from plait.loops.escape import Escape
from plait.loops.tool_descriptions import tools_found

MOST_BROUGHT, BROUGHT = 5, 300
"""Limits for an action that printed none of its results: how many are shown (the last ones), and characters of each."""

_QUOTED = re.compile(r"'([^']{1,100})'")
_INLINE = ("near", "wanted", "meant", "signature")
"""Values of a hint that a prompt shows within a line."""

NOTHING = "(no result)"
"""The text of an observation that is None in code."""


@dataclass
class RunningAction:
    """The progress of one action."""

    number: int = 0
    """The number of its turn."""
    shown: list[str] = field(default_factory=list)
    """The prints of the code, and the results of searches."""
    printed: str = ""
    notes: list[str] = field(default_factory=list)
    trouble: tuple[Call, Observation] | None = None
    """The last call, if it gave no result."""
    brought: list[tuple[Call, str]] = field(default_factory=list)
    """The calls that returned a value, with the value."""
    files: list[Attachment] = field(default_factory=list)
    """The images and PDF files in the results of its calls."""
    called: int = 0
    """The number of calls that gave a result."""
    again: bool = False
    """Whether a call repeated an earlier one and gave the same result."""
    acted: bool = False
    """Whether a call may not be made twice."""


class Work:
    """The actions of one run, in order. Data in observations is escaped here; the other text is the loop's own."""

    def __init__(
        self, context: LoopContext, escape: Escape, max_lines: int, repeats: int, modules: frozenset[str]
    ) -> None:
        self._context, self._escape, self._max_lines, self._repeats = context, escape, max_lines, repeats
        self._modules = modules
        self.failed = False  # whether the last action was refused or broke off
        self._same = False  # whether its code has given the same observation before
        self._action = RunningAction()
        self._said = ""  # the output of the last action that printed something, without search results
        self._last = ""  # the observation that ended the run, if one did
        self._names: set[str] = set()  # the variables that the actions have assigned
        self._found: dict[str, str] = {}
        self._seen: Counter[tuple[str, str]] = Counter()

    def run(self, code: str, n: int, ungrounded: Sequence[str] = ()) -> Effects[Observation | Answered]:
        """Run the action of turn `n` to its end. Return its observation, or the answer it stopped with. Code with
        `ungrounded` values is not run. Raises `LimitNear`, also if the same code keeps giving the same observation."""
        self._action, self.failed = RunningAction(n), True
        if (refused := self._refused(code)) is not None:
            error, seen = refused
            at = f" in line {error.line}, {error.source}" if error.line else ""
            yield from note("refused", f"The action is not run: {error.message}{at}")
            return structs.replace(self._observation(code, seen), trouble="refused")
        if ungrounded:
            values = ", ".join(ungrounded)
            yield from note("invented", f"code: stands neither in the task nor in any observation: {values}")
            said = (
                f"This code was not run: {values} stands neither in the task nor in any observation, so it is made up. "
                "Get it from a function first, and compute with what that gives."
            )
            return structs.replace(self._observation(code, self._escape(said, inline=True)), trouble="refused")
        ran = yield from execute(code)
        while True:
            if ran.output:
                self._action.shown.append(ran.output)
                self._action.printed += ran.output
            if self._action.printed.strip():
                self._said = self._action.printed.strip()
            self._action.shown += [f"{each.id}: {each.about}\n" for each in ran.made]
            self._action.files += ran.attachments
            if ran.done:
                break
            stops = [call for call in ran.calls if call.tool == STOP]
            if stops:
                return Answered(self._answer(stops[0]))
            ran = yield from self._calls(ran)
        self.failed = ran.error is not None
        self._names = assigned_names(code, ran.error) | (set() if ran.lost else self._names)
        return self._observation(code, (yield from self._ended(ran)))

    def forget_repeats(self) -> None:
        """Start the count of repeated code again: the model no longer sees the results."""
        self._seen.clear()

    @property
    def in_vain(self) -> bool:
        """Return whether the last action failed as before and had no effect, so that it need not be shown again."""
        return self.failed and self._same and not self._action.acted

    def broken_off(self) -> Observation:
        """Return the observation of an action that a limit interrupted."""
        shown = self._last or self._escape("".join(self._action.shown).rstrip())
        return Observation(shown or "(the action was broken off)")

    # -- calls

    def _calls(self, ran: Ran) -> Effects[Ran]:
        """Make the calls that the code waits for, concurrently, and continue it with their results."""
        calls = tuple(
            structs.replace(self._search(_first(call.input)), by_code=call.by_code) if self._is_search(call) else call
            for call in ran.calls
        )
        observations = yield from act(*calls)
        given = []
        for call, seen in zip(ran.calls, observations, strict=True):
            if seen.note and seen.note not in self._action.notes:
                self._action.notes.append(seen.note)
            if seen.printed.strip():
                self._action.shown.append(f"{seen.printed.rstrip()}\n")
            if seen.ok and self._is_search(call):
                if seen.text != NOTHING:
                    self._action.shown.append(f"{self._search_result(seen.text)}\n")
                seen = Observation(NOTHING)
            self._action.trouble = self._action.trouble if seen.ok else (call, seen)
            self._action.called += seen.ok
            self._action.again = self._action.again or seen.repeated
            self._action.files += seen.attachments
            tool = self._context.tool(call.tool)
            self._action.acted = self._action.acted or (seen.ok and tool is not None and not tool.repeatable)
            if seen.ok and seen.text != NOTHING:
                self._action.brought.append((call, seen.text))
            given.append(seen)
        return (yield from go_on(*given))

    def _is_search(self, call: Call) -> bool:
        return bool(self._context.search) and call.tool in (SEARCH, self._context.search)

    def _search(self, words: JSON) -> Call:
        """Return the call of the search tool, with its first parameter by name."""
        tool = self._context.tool(self._context.search)
        names = list(tool.parameters.get("properties", {})) if tool is not None else []
        return Call(self._context.search, {names[0]: words} if names else words)

    def _search_result(self, text: str) -> str:
        hits = tuple(map(python_function, tools_found(self._context.known_tools, [text])))
        return self._context.prompt("search_result", text=text, hits=hits).rstrip()

    # -- observations

    def _ended(self, ran: Ran) -> Effects[str]:
        output, error = "".join(self._action.shown), ran.error
        if error is None:
            silent = not output.strip()
            brought = self._unseen(output) if silent else []
            return self._render(output, None, "", brought=brought)
        call, seen = self._action.trouble or (None, None)
        hint = hint_of(error, seen)
        # Whether some code ran, and its variables exist; they do not after limits of time and memory.
        kept = hint not in NEVER_RAN and error.limit not in ("time", "memory")
        kept = kept and (error.line != 1 or self._action.called > 0)
        values: dict[str, Any] = {"lost": ran.lost, "undone": ran.undone, "kept": kept and not ran.undone}
        values["called"] = self._action.called
        values["brought"] = self._unseen(output)
        if hint == "arguments" and call is not None:
            tool = self._context.tool(call.tool)
            values["signature"] = signature(tool) if tool is not None else f"{call.tool}(...)"
        elif hint in ("call", "refused") and call is not None:
            values["others"] = self._functions(but=call.tool)
        elif hint == "name" and (quoted := _QUOTED.search(error.message)) is not None:
            near = seen.text if seen is not None and seen.trouble == "unknown_tool" else ""
            if self._context.search and quoted[1] not in self._found:  # each name is searched once a run
                (hit,) = yield from act(self._search(quoted[1]))
                found = self._search_result(hit.text).strip() if hit.ok and hit.text != NOTHING else ""
                self._found[quoted[1]] = found
            values |= {"wanted": quoted[1], "found": self._found.get(quoted[1], ""), "near": near}
            alike = get_close_matches(quoted[1], sorted(self._names), n=1, cutoff=0.8)
            values |= {"meant": "".join(alike), "others": self._functions()}
        elif hint == "name":
            hint = ""
        return self._render(output, error, hint, **values)

    def _render(self, output: str, error: CodeError | None, hint: str, **values: Any) -> str:
        """Return the observation's text. `values` are those of the hint. Data is escaped."""
        inline = partial(self._escape, inline=True)
        shown: dict[str, Any] = dict.fromkeys((*_INLINE, "found", "limit", "refused", "module", "others"), "")
        shown |= {"lost": False, "undone": False, "kept": False, "most": 0, "called": 0, "brought": [], "number": True}
        shown |= {"names": ", ".join(NAMES), "search": self._context.search, "n": self._action.number, **values}
        if error is not None:
            shown["limit"], shown["module"] = error.limit, "".join(OF_MODULE.findall(error.message)[:1])
            shown["number"] = not error.message.startswith("could not convert string")
            error = structs.replace(error, message=inline(error.message), source=inline(error.source))
        shown |= {name: inline(shown[name]) for name in _INLINE}
        shown["found"] = self._escape(shown["found"])
        shown["brought"] = [(inline(call), inline(text)) for call, text in shown["brought"]]
        shown |= {"notes": list(map(inline, self._action.notes)), "output": self._escape(output.rstrip())}
        return self._context.prompt("observation", error=error, hint=hint, **shown).rstrip()

    def _functions(self, but: str = "") -> str:
        shown = (tool.name for tool in self._context.tools if tool.name not in (but, self._context.search))
        return ", ".join(f"`{name}`" for name in shown)

    def _unseen(self, output: str) -> list[tuple[str, str]]:
        """Return the calls whose results were not printed, as code: the model need not make them again."""
        unseen = [(call, text) for call, text in self._action.brought if text.strip() not in output]
        return [(as_code(call), shorten(text.strip(), BROUGHT)[0]) for call, text in unseen[-MOST_BROUGHT:]]

    def _refused(self, code: str) -> tuple[CodeError, str] | None:
        """Return why code is not run (too long, a forbidden import), and the message about it; None if it may run."""
        lines = code.count("\n") + 1
        if self._max_lines and lines > self._max_lines:
            error = CodeError("TooLong", f"the action has {lines} lines, and {self._max_lines} are allowed")
            return error, self._render("", error, "lines", most=self._max_lines)
        if (found := find_forbidden_import(code, self._modules)) is not None:
            return found[0], self._render("", found[0], "import", refused=found[1])
        return None

    def _observation(self, code: str, text: str) -> Observation:
        """Return the observation, with a remark if the same code gave it before; too many repeats raise `LimitNear`."""
        bare = text
        for said in self._action.notes:  # a remark about a repeated call does not make it a different one
            bare = bare.replace(f"({said})", "").rstrip()
        self._seen[code, bare] += 1
        times = self._seen[code, bare]
        self._same = times > 1 and bool(self._repeats)
        if not self._repeats or times == 1:
            return Observation(text, repeated=self._action.again, attachments=tuple(self._action.files))
        if times > self._repeats:
            self._last = text
            raise LimitNear("loop", f"the same code brought the same observation {times} times")
        return Observation(
            text, note=self._context.prompt("repeated", last=times == self._repeats).strip(), repeated=True
        )

    def _answer(self, stop: Call) -> JSON:
        """Return the answer of the run: the argument of `stop`, or the last output."""
        # Readers do not know the ids of artifacts.
        given = replace_handles(_first(stop.input), lambda handle, _: handle.about)
        if given is None or given == "":
            return self._said or None
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _first(given: JSON) -> JSON:
    """Return the first argument of a call, by position or by name; None without arguments."""
    if isinstance(given, dict):
        return _first(given["args"]) if given.get("args") else next((v for k, v in given.items() if k != "args"), None)
    if isinstance(given, list):
        return given[0] if given else None
    return given
