"""Plans as text: read from files and records, rendered with a picture, and priced."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from plait.agent import Agent
from plait.cli.agent_options import make_agent
from plait.cli.output import as_json, clean_text, format_tokens, format_usd
from plait.cli.runs import find_run
from plait.core import Plan
from plait.core.errors import ConfigError
from plait.core.text import clean, format_count
from plait.journal.records import RunRow
from plait.journal.timeline import Timeline
from plait.loops.plan import Planner
from plait.loops.plan_scan import STEPS
from plait.runtime.planning.plan_estimate import Amount, Expected
from plait.runtime.planning.plans import plan_of, recorded_plan, with_kept, written
from plait.user_files import read_text
from plait.view.plan_graph import as_mermaid, as_text, input_words

FORMS = {"text": (".txt",), "json": (".json",), "mermaid": (".mmd", ".mermaid"), "svg": (".svg",)}
"""The forms of a plan, and the endings of file names that select them."""


def read_plan_file(name: str) -> str:
    """Return the text of a plan file; `-` is stdin. Raises `ConfigError`."""
    text = sys.stdin.read() if name == "-" else read_text(name)
    if not text.strip():
        where = "stdin" if name == "-" else name
        raise ConfigError(f"The plan in {where} is empty.", hint="`plait plan QUESTION` writes one.")
    return text


def read_recorded_plan(run: str, journal: str | None) -> tuple[Plan, RunRow, Timeline]:
    """Return the plan of a recorded run with the evidence it found, and the run."""
    row, store = find_run(run, journal)
    timeline = store.timeline(row.head.run)
    return recorded_plan(row.head, timeline), row, timeline


def make_agent_with_plan(file: str | None, evidence: str | None, flags: Mapping[str, Any]) -> Agent:
    """Return the agent that the flags describe, with the plan of a file. Raises `ConfigError`."""
    if file is None:
        raise ConfigError("--evidence goes with a plan.", hint="Give --plan FILE.")
    agent = make_planner(flags)
    if not isinstance(agent.loop, Planner):
        hint = "--plan is for rewoo: give --loop rewoo."
        raise ConfigError(f"The loop '{agent._loop.name}' takes no plan.", hint=hint)
    text = read_plan_file(file)
    plan = plan_of(text, agent.known_to(text))
    if evidence is not None:
        plan = with_kept(plan, read_recorded_plan(evidence, flags["journal"])[0])
    return agent.with_plan(plan)


def make_planner(flags: Mapping[str, Any]) -> Agent:
    """Return the agent that the flags describe; its loop is rewoo if they name neither a loop nor an agent."""
    return make_agent({**flags, "loop": flags["loop"] or (None if flags["agent"] else "rewoo")})


def render_plan(plan: Plan, form: str, *, ascii: bool = False) -> str:
    """Return a plan in one of `FORMS`. Text and JSON can be read back."""
    from plait.view.plan_svg import as_svg

    match form:
        case "json":
            return as_json(msgspec.to_builtins(plan), indent=1)
        case "mermaid":
            return as_mermaid(plan)
        case "svg":
            return as_svg(plan).rstrip("\n")
        case _:
            return plan_page(plan, ascii=ascii)


def plan_page(plan: Plan, *, ascii: bool = False) -> str:
    """Return a plan's text and, below it as comments, the picture of its graph and its evidence."""
    lines = as_text(plan, 98, ascii=ascii).split("\n")
    lines += [
        f"{step.id} gave: {input_words(plan.evidence[step.id], 80)}" for step in plan.calls if step.id in plan.evidence
    ]
    return "\n".join([written(plan), "", *(f"# {STEPS.add(line)}".rstrip() for line in lines)])


def stdout_is_ascii() -> bool:
    try:
        "●│┘".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def price_lines(expected: Expected) -> list[str]:
    """Return the expected calls, tokens and USD of a plan, as lines."""
    calls = f"{format_count(expected.calls, 'model call')} and {format_count(expected.tool_calls, 'tool call')}"
    low, high = expected.low, expected.high
    spread = f"from {_tokens(low)} to {_tokens(high)} tokens"
    if low.usd is not None and high.usd is not None and high.usd:
        spread += f", {format_usd(low.usd)} to {format_usd(high.usd)}"
    usual = f"about {_tokens(expected.usual)} tokens, {format_usd(expected.usual.usd)}"
    lines = [f"Expected: {calls}, {usual} ({spread})"]
    if expected.spent is not None:
        lines.append(f"  plan: {format_tokens(expected.spent.usage)} spent, {format_usd(expected.spent.cost_usd)}")
    lines += [
        f"  {each.phase}: {format_count(each.calls, 'call')} of {clean_text(each.model)}, about {_tokens(each.usual)}"
        f" tokens, {format_usd(each.usual.usd)}"
        for each in expected.phases
    ]
    results = [
        f"{clean(tool)} {size:,} characters " + (f"as in {format_count(seen, 'earlier call')}" if seen else "assumed")
        for tool, (size, seen) in expected.results.items()
    ]
    return [*lines, f"  results: {', '.join(results)}"] if results else lines


def _tokens(amount: Amount) -> str:
    return f"{amount.input_tokens:,} + {amount.output_tokens:,}"
