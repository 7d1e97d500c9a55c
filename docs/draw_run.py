"""Draws a recorded run as docs/images/run.svg, as a terminal shows it: `python docs/draw_run.py RUN [JOURNAL]`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from plait.cli.drawing import TerminalView
from plait.cli.run_output import summarize_run
from plait.journal.store import Journal
from plait.loops import make
from plait.runtime.recorded_events import make_events
from plait.runtime.runs import read_finished_run

PLACE = Path(__file__).with_name("images") / "run.svg"
WIDTH = 96

# Rich's own frame without its web fonts: the picture needs nothing from the network.
FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-family: ui-sans-serif, system-ui, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Still(TerminalView):
    """The drawing without what moves."""

    def __init__(self, console: Console) -> None:
        super().__init__(io.StringIO())
        self._console = console

    def _spin(self, text: object) -> None:
        """A picture has no spinner."""


def draw(run: str, journal: str | None = None) -> str:
    """The SVG of a finished run."""
    kept = Journal.at(journal)
    row = kept.run(run)
    loop = make(row.head.loop["name"], row.head.loop["options"])
    console = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False, emoji=False, markup=False)
    # The record names files by their whole path; a picture shows them as they are from here.
    words = [word.replace(f"{Path.cwd()}/", "") for word in dict.fromkeys(row.head.sources)]
    tools = " ".join(f"--tools {word}" for word in words)
    console.print(Text(f'$ plait run "{row.head.question}" \\\n    {tools}', style="bold"))
    watch = Still(console)
    for event in make_events(kept.timeline(row.head.run), loop):
        watch(event)
    watch.close()
    done = read_finished_run(row, kept.store, loop)
    console.print(Text(summarize_run(done), style="green" if done.status == "answered" else "yellow"))
    console.print(Text(str(done.answer)))
    return console.export_svg(title="plait", code_format=FRAME, unique_id="run")


if __name__ == "__main__":
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(draw(*sys.argv[1:3]), encoding="utf-8")
