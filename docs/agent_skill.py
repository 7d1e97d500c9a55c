"""Writes what coding agents read, for `generate_reference.py`: skills/plait/SKILL.md and docs/llms.txt.

Both are made of the documentation: the program of `plait init`, sections of pages, and the list of pages.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from plait.cli.commands import COMMANDS
from plait.cli.init import AGENT, TEST

DOCS = Path(__file__).parent
SUMMARY = (
    "Plait is a Python library and command line for agents: seven loops (ReAct, tool calling, ReWOO, LLMCompiler, "
    "CodeAct, JSON, phased) behind one `plait.Agent`. It records every model call and tool call in a journal, so that "
    "a run can be inspected, replayed, resumed after a crash without a repeated effect, and forked."
)
HEAD = """\
---
name: plait
description: >-
  Write, test, run and debug agents with the Python library and command line Plait (import plait, plait.Agent,
  plait.tool, plait.toml, `plait run`, `plait replay`). Use it for code that imports plait, for a folder with a
  plait.toml, or to build an agent with approvals, limits, recovery after a crash, or a choice of loops.
license: Apache-2.0
---

# Plait

SUMMARY

This file is generated from Plait's documentation. `references/` has whole pages in an installed package; in the
repository they are in `docs/`. `plait COMMAND --help` has the options of each command, with examples.

## Install

```sh
pip install plait                    # with extras: pip install 'plait[server,mcp]'
```

EXTRAS

`plait doctor` reports what is installed and configured, and what does not work. `plait init FOLDER` writes a small
project. It has these two files, and a `plait.toml` that names the agent `assistant`:

```python
AGENT```

```python
TEST```

```sh
plait run "How many miles has a marathon of 42.195 km?"
plait run "..." --model ollama:qwen3 --tools agent.py --loop react --max-steps 10   # an agent made from options
python -m pytest
```

## Rules

1. A tool is a typed function with a docstring: the model sees its name, description and types. Plait assumes that a
   call changes something. Mark a tool `read_only=True` or `idempotent=True` only if that is true: Plait repeats such
   calls after a crash. Mark what must never happen unasked `requires_approval=True`, and tools that return texts of
   strangers (web pages, mails) `open_world=True`.
2. Raise `plait.ToolError(message, hint=...)` for errors that the model can correct.
3. Check `run.status` before you use `run.answer`: an error is never returned as an answer.
4. An agent is immutable. `agent.using(model=..., limits=plait.Limits(steps=10))` returns a changed copy.
5. Give real agents limits (`plait.Limits(usd=0.5, seconds=300)`), and approvals if they have effects
   (`approve="effects"`).
6. A run that waits or was interrupted goes on with `agent.resume(run, "yes")` or `plait resume`. Never start it again
   in place of that: its effects would be repeated.
7. Test agents with `plait.Scripted` and the fixture `no_real_models`. Name the loop in tests.
8. After a change of prompts, tools or code, `plait replay -a assistant --last 20` shows whether recorded runs would
   send the same requests. To find out why a run went wrong, read `plait show RUN` and `plait show RUN --wire`.
9. Keys come from the environment (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY` ...). Never write one into code, `plait.toml`
   or a prompt. A `plait.toml` that runs code needs `plait trust` after each change.

"""
SECTIONS = {
    "Loops": ("../README.md", "Which loop to start with"),
    "Outcomes": ("limits.md", "Outcomes"),
    "Tools: attributes": ("tools.md", "Attributes"),
    "Tools: context": ("tools.md", "Context"),
    "Approvals and questions": ("runs.md", "Waiting"),
    "Calls in doubt": ("runs.md", "Calls in doubt"),
    "Scripts for tests": ("testing.md", "Scripts"),
}
"""The sections of pages that the skill has, by their titles there."""


def skill_page() -> str:
    """The skill for coding agents, in the Agent Skills format."""
    words = {"SUMMARY": textwrap.fill(SUMMARY, 120), "EXTRAS": section("installation.md", "Extras"), "TEST": TEST}
    words["AGENT"] = AGENT.replace("MODEL", '"openai:gpt-4.1-mini"')
    head = re.sub("|".join(rf"\b{word}\b" for word in words), lambda found: words[found[0]], HEAD)
    commands = "".join(f"- `plait {name}`: {line}\n" for name, (_, line) in COMMANDS.items())
    parts = [f"## {title}\n\n{section(*place)}\n\n" for title, place in SECTIONS.items()]
    return f"{head}{''.join(parts)}## Commands\n\n{commands}"


def section(page: str, heading: str) -> str:
    """The text below a heading of the second level, without links, because the pages are elsewhere."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found is not None, f"{page} has no section {heading!r}"
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", found[1]).strip()


def llms_page() -> str:
    """The list of the pages for language models: a summary, then each page with its description."""
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(?:#{2,3} .+|\*\*.+\*\*|- \[[^\]]+\]\([^)]+\): .+(?:\n  .+)*)$", text, re.M)
    lines = [f"\n## {line.strip('#* ')}\n" if line[0] in "#*" else " ".join(line.split()) for line in listed]
    lines = [
        line for at, line in enumerate(lines) if line[0] != "\n" or not "".join(lines[at + 1 : at + 2]).startswith("\n")
    ]
    return "\n".join(["# Plait", "", f"> {SUMMARY}", *lines, ""])
