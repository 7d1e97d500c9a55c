"""Output for terminals, pipes and files: cleaned text, numbers with units, calls, JSON and tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plait.core.errors import ConfigError
from plait.core.text import clean, escape_hidden, format_count
from plait.runtime.spent import Spent
from plait.tools.render import describe_packed
from plait.user_files import refuse_journal

if TYPE_CHECKING:
    from plait.core import Ran
    from plait.core import events as ev
    from plait.core.hosted import HostedCall
    from plait.models.stages import StageEnded

SHOWN = 2000
"""Maximum characters of an observation shown during a run."""


def clean_text(text: str) -> str:
    """Remove control characters, keep line ends, and strip both ends."""
    return clean(text).strip()


def shorten(text: str, limit: int | None = SHOWN) -> tuple[str, str]:
    """Return the start of a text and a note about the missing rest ("" for none). `limit` None keeps the whole text."""
    if limit is None or len(text) <= limit:
        return text, ""
    return text[:limit].rstrip(), f"({len(text) - limit:,} more characters)"


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON that every stream can write. Letters stay unescaped, invisible characters do not."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair can only be written escaped
        text = json.dumps(value, indent=indent, default=str)
    return escape_hidden(text)


def print_json(value: Any, *, indent: int | None = 1) -> None:
    click.echo(as_json(value, indent=indent))


def format_tokens(usage: Any) -> str:
    """Return `812 + 45 tokens (600 cached)`, with "about" if the provider did not report them.

    The parenthesis also holds cache writes and reasoning, if there are any.
    """
    about = "about " if usage.estimated else ""
    kinds = (
        (usage.cached_tokens, "cached"),
        (usage.cache_write_tokens, "cache writes"),
        (usage.reasoning_tokens, "reasoning"),
    )
    parts = ", ".join(f"{count:,} {word}" for count, word in kinds if count)
    return f"{about}{usage.input_tokens:,} + {usage.output_tokens:,} tokens{f' ({parts})' if parts else ''}"


def format_usd(usd: float | None) -> str:
    """Return `0.00012 USD`, or that the price is unknown."""
    if usd is None:
        return "price not known"
    return "0 USD" if usd == 0 else f"{usd:.5f} USD" if usd >= 0.00001 else f"{usd:.2g} USD"


def format_seconds(seconds: float) -> str:
    """Return `1.2 s`, `340 ms` or `2 min 5 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def describe_origin(began: ev.Began) -> tuple[str, ...]:
    """Return whether a run continues an earlier one, in words; nothing for a new run."""
    if began.resumed:
        return ("resumed",)
    return (f"forked from {began.forked_from}",) if began.forked_from else ()


def describe_tree(tree: Spent) -> str:
    """Return what a run used with its child runs: `with 2 child runs: 9 calls, 4,120 tokens, 0.00310 USD`."""
    cost = "" if tree.cost_usd is None else f", {format_usd(tree.cost_usd)}"
    number, calls = format_count(tree.runs - 1, "child run"), format_count(tree.calls, "call")
    return f"with {number}: {calls}, {tree.usage.tokens:,} tokens{cost}"


def format_call(call: Any) -> str:
    """Return the name of a call's tool and its input as JSON."""
    given = "" if call.input is None else as_json(call.input)
    return f"{call.tool} {describe_packed(given) if call.by_code else given}".rstrip()


def format_hosted(call: HostedCall, limit: int | None = SHOWN) -> str:
    """Return a call that a provider made by itself, and its result below."""
    text, missing = shorten(call.text, limit)
    return "\n".join(filter(None, (call.title, "It failed:" * call.failed, text, missing)))


def format_code_error(ran: Ran) -> str:
    """Return why code ended early, as `ZeroDivisionError on line 3: division by zero`; "" if it did not."""
    error = ran.error
    if error is None:
        return ""
    return f"{error.type}{f' on line {error.line}' if error.line else ''}: {error.message}"


def format_reply(event: ev.Replied) -> str:
    """Return what one model call took: `step 2 · act · 812 + 45 tokens · 1.2 s · 0.00012 USD`."""
    cost = "" if event.cost is None else f" · {format_usd(event.cost)}"
    used = f"{format_tokens(event.usage)} · {format_seconds(event.seconds)}"
    return f"step {event.step} · {event.phase} · {used}{cost}"


def format_stage(stage: StageEnded) -> str:
    """Return what a local model did before its reply: `downloading model: 1,117 MB in 42.0 s`."""
    size = f"{stage.bytes / 1e6:,.0f} MB in " if stage.bytes else ""
    return f"{stage.name}: {size}{format_seconds(stage.seconds)}"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, err: bool = False) -> None:
    """Print a table, on stdout or stderr. A head that starts with ">" aligns its column to the right.

    A terminal shows one line per row, cut at its width. A pipe gets every row whole.
    """
    from plait.lab.grid import make_columns, render_grid

    text, _ = render_grid(make_columns(heads, rows))
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        from rich.console import Console
        from rich.text import Text

        Console(file=stream).print(Text(text), no_wrap=True, overflow="ellipsis")
    else:
        click.echo(text, err=err)


def check_writable(name: str) -> Path:
    """Return the path of a file to write. Raises `ConfigError` for a folder, a file in no folder, and a journal."""
    path = Path(name).expanduser()
    if path.is_dir():
        raise ConfigError(f"{name} is a folder.", hint="Name a file in it.")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{name} can't be written: there is no folder {path.parent}.", hint="Create it first.")
    try:
        refuse_journal(path)
    except OSError as why:
        raise ConfigError(f"{name} can't be written: {why.strerror}.", hint="Name another file.") from None
    return path


def write_file(name: str, text: str) -> None:
    """Write a file and say so on stderr. Raises `ConfigError`."""
    path = check_writable(name)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as why:
        raise ConfigError(f"{name} can't be written: {why.strerror}.") from why
    click.echo(f"Written: {path}", err=True)
