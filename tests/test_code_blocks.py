"""Which block of a reply runs: the first one that is meant as Python, and nothing else."""

from __future__ import annotations

import pytest

from conftest import for_each
from plait.loops.codeact.format import CodeFormat
from plait.loops.format import Unreadable

FORMAT = CodeFormat()
CODE = 'print(people("Lyon"))'


def code_of(text: str) -> object:
    turn = FORMAT.read(text, 1)
    return turn.call.input if turn.call is not None else None


@for_each(
    "text",
    [
        f"THOUGHT 1:\nI look.\n```\nNow I call people (it = a tool).\n```python\n{CODE}\n```",
        f"I look.\n```\n522250\n```\n```python\n{CODE}\n```",
        f'ACTION 1:\n```json\n{{"city": "Lyon"}}\n```\n```python\n{CODE}\n```',
        f"ACTION 1:\n```\n{CODE}\n```\n```python\nprint(2)\n```",
        f"I look.\n```\n{CODE}\n```\nand then\n```python\nprint(2)\n```",
        f"ACTION 1:\n<code>\n{CODE}\n</code>",
        f"ACTION 1:\n<code>{CODE}</code>",
        f"ACTION 1:\n```python\n{CODE}\n```</code>",
        f"ACTION 1:\n```python\n{CODE}\n```\n</code>",
        f"ACTION 1:\n<code>\n```python\n{CODE}\n```\n</code>",
        f"ACTION 1:\n```\nThe output (as = seen) was:\n```\n```py\n{CODE}\n```",
        f"ACTION 1:\n```code\n{CODE}\n```",
    ],
)
def test_the_first_block_that_is_meant_as_python_runs(text: str) -> None:
    assert code_of(text) == CODE


@for_each("word", ["json", "java", "javascript", "js", "bash", "output", "text", "sql", "JSON"])
def test_a_block_marked_as_something_else_never_runs(word: str) -> None:
    for text in (f"ACTION 1:\n```{word}\nfoo(1)\n```", f"I look.\n```{word}\nfoo(1)\n```"):
        with pytest.raises(Unreadable):
            FORMAT.read(text, 1)


@pytest.mark.parametrize(
    "text",
    [
        "ACTION 1:\n```\n522250\n```",
        "I have it.\n```\nThe result of people is 522250, as expected (more or less).\n",
        "THOUGHT 1:\nIt is done.\n```\n",
    ],
)
def test_prose_or_an_output_behind_a_fence_without_a_word_never_runs(text: str) -> None:
    with pytest.raises(Unreadable):
        FORMAT.read(text, 1)


def test_code_about_pages_keeps_its_tags() -> None:
    code = 'page = "<code>x</code>"\nprint(page)'
    assert code_of(f"ACTION 1:\n```python\n{code}\n```") == code
