"""A plan as text with its picture, what it is expected to take in words, and a plan's file read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from plait.cli.text import clean, count, money, one_line, tokens

if TYPE_CHECKING:
    from plait.core import Plan
    from plait.runtime.estimate import Amount, Expected

FORMS = {"text": (".txt",), "json": (".json",), "mermaid": (".mmd", ".mermaid"), "svg": (".svg",)}
"""The forms of a plan, and how the names of files end that are written so where nothing else is said."""


def in_form(plan: Plan, form: str, *, ascii: bool = False) -> str:
    """A plan in one of `FORMS`. Text and JSON can be read back."""
    import msgspec

    from plait.cli.text import as_json
    from plait.loops.plan_graph import as_mermaid
    from plait.loops.plan_svg import as_svg

    match form:
        case "json":
            return as_json(msgspec.to_builtins(plan), indent=1)
        case "mermaid":
            return as_mermaid(plan)
        case "svg":
            return as_svg(plan).rstrip("\n")
        case _:
            return as_page(plan, ascii=ascii)


def as_page(plan: Plan, *, ascii: bool = False) -> str:
    """A plan's text, and below it as comments the picture of its graph and the evidence that is there."""
    from plait.loops.plan_graph import as_text, input_words
    from plait.loops.rewoo.scan import guard
    from plait.runtime.plans import written

    lines = as_text(plan, 98, ascii=ascii).split("\n")
    lines += [
        f"{step.id} gave: {input_words(plan.evidence[step.id], 80)}" for step in plan.calls if step.id in plan.evidence
    ]
    return "\n".join([written(plan), "", *(f"# {guard(line)}".rstrip() for line in lines)])


def plain_terminal() -> bool:
    """Stdout takes no signs beside ASCII."""
    try:
        "●│┘".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def foreseen(expected: Expected) -> list[str]:
    """What a plan is expected to take, in lines."""
    calls = f"{count(expected.calls, 'model call')} and {count(expected.tool_calls, 'tool call')}"
    low, high = expected.low, expected.high
    spread = f"from {_tokens(low)} to {_tokens(high)} tokens"
    if low.usd is not None and high.usd is not None and high.usd:
        spread += f", {money(low.usd)} to {money(high.usd)}"
    lines = [f"Expected: {calls}, about {_tokens(expected.usual)} tokens, {money(expected.usual.usd)} ({spread})"]
    if expected.spent is not None:
        lines.append(f"  plan: {tokens(expected.spent.usage)} spent, {money(expected.spent.cost_usd)}")
    lines += [
        f"  {each.phase}: {count(each.calls, 'call')} of {one_line(each.model)}, about {_tokens(each.usual)} tokens,"
        f" {money(each.usual.usd)}"
        for each in expected.phases
    ]
    taken = [
        f"{clean(tool)} {size:,} characters " + (f"as in {count(seen, 'earlier call')}" if seen else "assumed")
        for tool, (size, seen) in expected.results.items()
    ]
    return [*lines, f"  results: {', '.join(taken)}"] if taken else lines


def _tokens(amount: Amount) -> str:
    return f"{amount.input_tokens:,} + {amount.output_tokens:,}"


def plan_file(name: str) -> str:
    """The text of a plan's file; `-` is stdin. Raises `UsageError`."""
    from plait.cli.settings import text_of
    from plait.core.errors import UsageError

    text = sys.stdin.read() if name == "-" else text_of(name)
    if not text.strip():
        raise UsageError(
            f"The plan in {'stdin' if name == '-' else name} is empty.", hint="`plait plan QUESTION` writes one."
        )
    return text
