"""How Plait finds the labels that a loop's templates print, from their Jinja trees.

Plait follows each line of a template along all its branches up to its first colon, with a hole for each value. So it
needs no list of labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Any, Final

from plait.core.labels import HOLE, labels_in, labels_of

MOST = 64
"""Maximum number of beginnings of one line that are followed."""
LONGEST = 300
"""Characters of a line's beginning that are read."""


BLOCKS: Final[dict[str, Any]] = {"trim_blocks": True, "lstrip_blocks": True}
"""How Jinja treats a line that holds a block."""


@lru_cache(maxsize=512)
def labels_of_template(source: str) -> tuple[str, ...]:
    """Return the labels in a Jinja template. Reads a template that Jinja rejects as plain text; rendering reports
    it."""
    from jinja2 import TemplateSyntaxError

    try:
        tree = _parser().parse(source)
    except TemplateSyntaxError:
        return labels_in(source)
    walk = _Walk()
    walk.end_line(walk.follow(tree.body, {""}))
    return labels_of(walk.lines, walk.literals)


@cache
def _parser() -> Any:
    from jinja2 import Environment

    return Environment(**BLOCKS)


class _Walk:
    """Collect the beginnings of a template's lines along all branches."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}
        self.literals: list[str] = []

    def follow(self, nodes: Sequence[Any], open: set[str]) -> set[str]:
        """Return the beginnings of the line that is open after these nodes, given those before them."""
        from jinja2 import nodes as jinja

        for node in nodes:
            if isinstance(node, jinja.Output):
                for part in node.nodes:
                    open = self._output(part, open)
            elif isinstance(node, jinja.If):
                ways = [node.body, *(other.body for other in node.elif_), node.else_]
                open = set().union(*(self.follow(way, set(open)) for way in ways))
            elif isinstance(node, jinja.For):
                once = self.follow(node.body, set(open))
                open = open | once | self.follow(node.body, set(once)) | self.follow(node.else_, set(open))
            elif isinstance(node, jinja.Include):
                self.end_line(open)
                open = {""}
            elif isinstance(body := getattr(node, "body", None), list):
                open = open | self.follow(body, set(open))
            open = set(sorted(open)[:MOST])
        return open

    def end_line(self, open: set[str]) -> None:
        """Store the open beginnings as lines."""
        self.lines.update(dict.fromkeys(sorted(open)))

    def _output(self, part: Any, open: set[str]) -> set[str]:
        from jinja2 import nodes as jinja

        if isinstance(part, jinja.TemplateData):
            self.literals.append(part.data)
            first, *rest = part.data.split("\n")
            open = _longer(open, [first])
            for line in rest:
                self.end_line(open)
                open = {line[:LONGEST]}
            return open
        texts = list(dict.fromkeys(_texts(part)))[:MOST]
        self.literals += texts
        return _longer(open, texts)


def _longer(open: set[str], texts: Sequence[str]) -> set[str]:
    """Return each beginning followed by each text. A value before a label may end in a line break of its own."""
    longer = {(before + text)[:LONGEST] for before in open for text in texts}
    for before in open:
        if before and not before.strip(HOLE):
            longer.update(text[:LONGEST] for text in texts if text[:1].isalpha())
    return longer


def _texts(node: Any) -> Iterator[str]:
    """Yield what an expression may print: the texts in it, or a hole."""
    from jinja2 import nodes as jinja

    if isinstance(node, jinja.Const):
        yield str(node.value)
    elif isinstance(node, jinja.CondExpr):
        yield from _texts(node.expr1)
        yield from _texts(node.expr2) if node.expr2 is not None else ("",)
    elif isinstance(node, jinja.Concat):
        for parts in product(*(tuple(_texts(each))[:4] for each in node.nodes)):
            yield "".join(parts)
    elif isinstance(node, jinja.Add):
        for parts in product(tuple(_texts(node.left))[:4], tuple(_texts(node.right))[:4]):
            yield "".join(parts)
    else:
        yield HOLE
