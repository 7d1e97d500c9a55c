"""Prompts that are given as texts, as on a page: they do no more than the built-in ones do.

Jinja's sandbox keeps a template from files and from code, but not from endless work: `{{ "x" * 10**10 }}`. So such a
text may use only what occurs in the built-in prompts: the same kinds of expressions, filters, lists to go through and
templates to include. What it renders is limited too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from plait.core.errors import ConfigError

if TYPE_CHECKING:
    from jinja2 import nodes

LONGEST = 200_000
"""Characters of a text."""
DEEPEST = 60
"""Levels of expressions and blocks."""
LARGEST, MOST_PIECES = 20_000_000, 500_000
"""Characters that such prompts may render at once, and pieces."""
ALSO = frozenset({"And", "Or", "Not", "Compare", "Operand", "If", "CondExpr", "Const", "Name", "Getattr", "Output"})
"""Kinds of expressions that are harmless whether or not a built-in prompt has them."""


def check_given_prompt(
    name: str, text: str, given: Collection[str], parse: Callable[[str], nodes.Template], shipped: tuple[str, ...]
) -> None:
    """Check the text of a prompt. `given` are the names of all prompts given as texts for its loop. Raises
    `ConfigError`."""
    from jinja2 import TemplateError, nodes

    if len(text) > LONGEST:
        said = f"The prompt '{name}' has {len(text):,} characters, more than {LONGEST:,}."
        raise ConfigError(said, hint="Shorten it.")
    try:
        tree = parse(text)
    except (TemplateError, RecursionError) as why:
        line = getattr(why, "lineno", None)
        where = f" (line {line})" if line else ""
        raise ConfigError(f"The prompt '{name}' is no valid template{where}: {why}.", hint="Correct it.") from None
    allowed = _find_uses(parse, shipped)
    for use, number in _list_uses(tree):
        if use not in allowed and use not in ALSO:
            hint = "A prompt given as text may use what the built-in prompts use. Put others into a folder of prompts."
            raise ConfigError(f"The prompt '{name}' uses {use} in line {number}, which is not allowed here.", hint=hint)
    for each in tree.find_all(nodes.Include):
        if isinstance(each.template, nodes.Const) and str(each.template.value).removesuffix(".j2") in given:
            hint = "Write its text where it is included."
            raise ConfigError(f"The prompt '{name}' includes another changed prompt.", hint=hint)


@lru_cache(maxsize=4)
def _find_uses(parse: Callable[[str], nodes.Template], shipped: tuple[str, ...]) -> frozenset[str]:
    return frozenset(use for text in shipped for use, _ in _list_uses(parse(text)))


def _list_uses(tree: nodes.Template) -> Iterator[tuple[str, int]]:
    """Yield the kinds of expressions in a template, and what it goes through, sets, includes and filters by; each with
    its line."""
    from jinja2 import nodes

    pending: list[tuple[nodes.Node, int, int]] = [(tree, 0, 0)]
    while pending:
        node, depth, loops = pending.pop()
        uses = [type(node).__name__ if depth < DEEPEST else "an expression that is nested too deep"]
        match node:
            case nodes.For(iter=items, recursive=is_recursive):
                loops += 1
                uses += [f"loops, {loops} within each other", f"a loop over {items}"]
                uses += ["a recursive loop"] if is_recursive else []
            case nodes.Assign(target=target, node=value):
                uses.append(f"the variable {target} = {value}")
            case nodes.Include(template=template):
                uses.append(f"the template {template}")
            case nodes.Filter(name=name):
                uses.append(f"the filter '{name}'")
        yield from ((use, node.lineno) for use in uses)
        pending += ((each, depth + 1, loops) for each in node.iter_child_nodes())


def render_within_limits(template: Any, values: Mapping[str, Any]) -> str:
    """Render a template. Raises `ValueError` if it makes too much of the values."""
    pieces, size = list[str](), 0
    for piece in template.generate(values):
        size += len(piece)
        if size > LARGEST or len(pieces) >= MOST_PIECES:
            raise ValueError("it makes more text than any model reads")
        pieces.append(piece)
    return "".join(pieces)
