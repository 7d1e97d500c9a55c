"""The account of the Python-session agent as a user's files: its prompts, its tools as stand-ins, its replies.

Its sentences are cut out of the published account and the recorded runs.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from plait.core.errors import ContextOverflow
from repl_logs import MODELS, Log, Step

MARKS = {"✅": "done", "🟠": "flaw", "❌": "not done"}
TOOLS = Path(__file__).with_name("repl_tools.py")
_NAMES = set(re.findall(r"^def ([a-z]\w+)\(", TOOLS.read_text(), re.M)) - {"method_search"}

TURNS = """{% for turn in turns %}
{% if turn.number == 1 %}
{{ turn.text }}
{% else %}
THOUGHT {{ turn.number }}:
OPENING{{ turn.reply }}
{% endif %}
OBSERVATION {{ turn.number }}:
{{ turn.observation }}
{% endfor %}
{{ opening }}"""

OBSERVATION = """{% set raised = (error.message if error else "").split(": ", 1) %}
{% set kind = raised[0] if error and error.type == "RuntimeError" else error and error.type %}
{% if output %}
{{ output }}
{% endif %}
{% if error and error.type == "ImportError" %}
ERROR: ImportError: on line {{ error.line }}: `'{{ error.source | trim }}'` IMPORT
{% elif error %}
ERROR: {{ kind }} on line {{ error.line }}: `{{ error.source | trim }}`: {{ raised[-1] }}
{% if error.type == "NameError" %}
NAME
{% elif error.type == "KeyError" %}
KEY
{% endif %}
{% elif not output %}
EMPTY
{% endif %}
{% if n == 1 %}
FIRST
{% endif %}
"""


class Account:
    """The published account and its recorded runs."""

    def __init__(self, published: str, logs: Sequence[Log]) -> None:
        self.published = published
        self.logs = {log.name: log for log in logs}
        self._text = "\n".join(log.text for log in logs)

    @cached_property
    def table(self) -> dict[str, tuple[int, str]]:
        """The published steps and marks, by the log's name."""
        rows = re.findall(r"^([A-F]) \| (.+) \|$", self.published, re.M)
        cells = {letter: [cell.split() for cell in row.split(" | ")] for letter, row in rows}
        return {
            f"{letter}-{model}": (int(cells[letter][i][0]), MARKS[cells[letter][i][1]])
            for i, model in enumerate(MODELS)
            for letter in cells
        }

    @cached_property
    def opening(self) -> str:
        """The words with which each thought but the first begins."""
        return re.search("“(Based on [^”]+)”", self.published)[1] + " "  # type: ignore[index]

    def _cut(self, pattern: str) -> str:
        return re.search(pattern, self._text, re.M | re.S)[1]  # type: ignore[index]

    def head(self, log: Log) -> str:
        """What stands before the task."""
        return log.text.partition(f"\nTASK: {log.task}\n")[0]

    def prompts_before(self, log: Log) -> list[str]:
        """The growing prompt before each turn from the second on, up to the opening of the turn."""
        found = []
        begin = len(self.head(log))
        for n in range(2, len(log.steps) + 1 + (log.end == "overflow")):
            opening = f"THOUGHT {n}:\n{self.opening}"
            at = log.text.find(f"\n{opening}", begin) + 1 or log.text.rindex("\n...\nERROR ")
            found.append(log.text[:at] + opening)
        return found

    def write_prompts(self, folder: Path, log: Log, transcript: str = "completion") -> None:
        """Write the account's prompts as templates: the head, the first turn, the opening, the observations."""
        first = log.steps[0].thought
        lead, after = first.partition("1. ")[0], first[first.rindex(f"{log.plan[-1]}\n") + len(log.plan[-1]) :]
        observation = OBSERVATION
        sentences = {
            "IMPORT": r"^ERROR: ImportError[^\n]*?'` ([^\n]*)$",
            "NAME": r"^ERROR: NameError[^\n]*\n(.*?)\nTHOUGHT",
            "KEY": r"^ERROR: KeyError[^\n]*\n(Invalid.*?)\nTHOUGHT",
            "EMPTY": r"^(Action executed[^\n]*)$",
            "FIRST": r"^(Not all the above[^\n]*)$",
        }
        for word, pattern in sentences.items():
            observation = re.sub(rf"\b{word}$", lambda _, p=pattern: self._cut(p), observation, flags=re.M)  # type: ignore[misc]
        files = {
            "opening.j2": f"THOUGHT {{{{ n }}}}:\n{self.opening}",
            "first.j2": f"{lead}{{{{ reply }}}}{after.replace(log.plan[0].rstrip('.'), '{{ steps[0] }}')}",
            "observation.j2": observation,
        }
        shown = f"\nTASK: {{{{ question }}}}\n{TURNS.replace('OPENING', self.opening)}"
        if transcript == "completion":
            files |= {"system.txt": self.head(log), "completion.j2": f"{{{{ system }}}}{shown}"}
        else:
            files |= {"system.txt": "", "earlier.j2": f"{self.head(log)}{shown}"}
        (folder / "codeact").mkdir(parents=True)
        for name, text in files.items():
            (folder / "codeact" / name).write_text(text)

    def write_tools(self, folder: Path, log: Log) -> Path:
        """Write the stand-ins with what this run observed; what it never printed comes from the other runs."""
        note = self._cut(r"^(Not all the above[^\n]*)$")
        searches = ((re.search(r'method_search\("(.*)"\)', step.code), step.observation) for step in log.steps)
        hits = {found[1]: str(seen).removesuffix(f"\n{note}") for found, seen in searches if found}
        values: dict[str, list[Any]] = {}
        for each in self.logs.values():
            for name, value in _observed(each.steps):
                values.setdefault(name, []).append(value)
        own: dict[str, list[Any]] = {}
        for name, value in _observed(log.steps):
            own.setdefault(name, []).append(value)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recorded.json").write_text(json.dumps({"hits": hits, "values": values | own}))
        return Path(shutil.copy(TOOLS, folder))

    def replies(self, log: Log) -> list[Any]:
        """What the model wrote: the steps, then each turn behind its opening; at the end the prompt may be too long."""
        said: list[Any] = ["\n".join(f"{n}. {step}" for n, step in enumerate(log.plan, 1))]
        for step in log.steps[1:]:
            thought = step.thought.removeprefix(self.opening)
            said.append(f"{thought}\nACTION {step.number}:\n```python\n{step.code}```")
        return said + [ContextOverflow("too long", tokens=4212, room=4096)] * (9 if log.end == "overflow" else 0)


def clock_of(log: Log) -> float:
    """The time that the run's code read, in seconds since 1970."""
    seen = re.search(r"^(2023-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)$", log.text, re.M)
    read = datetime.fromisoformat(seen[1] if seen else "2023-04-07 14:40:00").replace(tzinfo=UTC)
    return (read + timedelta(days=90 if read.month == 1 else 0)).timestamp()  # F printed the day 90 days before


def _observed(steps: Sequence[Step]) -> list[tuple[str, Any]]:
    """The tools that were called, with the values that were printed of them."""
    found = []
    for step in steps:
        called = [name for name in re.findall(r"\b(\w+)\(", step.code) if name in _NAMES]
        lines = (step.observation or "").split("\n")
        if called and not lines[0].startswith(("ERROR", "Action")):
            some = called if len(called) == len(lines) else called[-1:]
            found += [(name, _value(line)) for name, line in zip(some, lines, strict=False)]
    return found


def _value(line: str) -> Any:
    """The value that was printed; the text of one that is no literal."""
    try:
        return ast.literal_eval(line)
    except (ValueError, SyntaxError):
        pass
    if not line.startswith("{"):
        return line
    tree = ast.parse(line, mode="eval").body
    assert isinstance(tree, ast.Dict)
    return {ast.literal_eval(key): ast.unparse(value) for key, value in zip(tree.keys, tree.values, strict=True) if key}
