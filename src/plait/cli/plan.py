"""`plait plan`: a plan written, drawn and priced before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from plait.cli import options

if TYPE_CHECKING:
    from plait.agent import Agent
    from plait.core import Plan
    from plait.runtime.estimate import Expected
    from plait.runtime.plans import Planned
    from plait.runtime.run import Run

EPILOG = """\
\b
Examples:
  plait plan "How many more people live in Lyon than in Nice?" \\
      --tools lookup:cities.json --tools calculator > plan.txt
  plait plan "..." --tools calculator -o plan.svg
  plait run "..." --tools calculator --plan plan.txt
  plait plan --of last --format json > found.json

The plan goes to stdout, all else to stderr. Exit codes are those of `plait run`: 3 when no plan could be made.
"""


@click.command(epilog=EPILOG, short_help="Have a plan written, drawn and priced.")
@click.argument("question", required=False)
@click.option("--of", "of", metavar="RUN", help="The plan of a recorded run, with the evidence it found.")
@click.option("--plan", "plan_", metavar="FILE", help="Check, draw and price this plan; nobody is asked.")
@options.evidence
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "mermaid", "svg"]),
    help="How the plan is printed (default text, or as FILE's name ends).",
)
@click.option("-o", "--output", metavar="FILE", help="Write the plan there instead.")
@options.agent
@options.journal
@options.config
@options.as_object
@options.quiet
def plan(
    question: str | None,
    of: str | None,
    plan_: str | None,
    evidence: str | None,
    form: str | None,
    output: str | None,
    as_object: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Have a plan for QUESTION written, and carry out nothing; `-` reads the question from stdin.

    With the plan comes what it is expected to take: model calls, tokens, USD. Text and JSON can be edited and carried
    out with `plait run --plan`.
    """
    page = Page(form or _form_of(output), _place(output), as_object=as_object, quiet=quiet)
    if of is not None:
        if question is not None or plan_ is not None or evidence is not None:
            raise click.UsageError("--of stands alone: it has the question and the evidence of its run.")
        _recorded(of, page, flags)
    text = _question(question, plan_)
    if plan_ is None and evidence is None:
        _asked(text, page, flags)
    agent = carrying_out(plan_, evidence, **_all(flags))
    given = agent.strategy.plan  # type: ignore[union-attr]
    page.show(given, agent.expected(text, given))


def carrying_out(name: str | None, evidence: str | None, *, strategy: str | None, **flags: Any) -> Agent:
    """The agent that the flags describe, with the plan of a file. Raises `UsageError`."""
    from plait.cli.foresight import plan_file
    from plait.cli.settings import agent_for
    from plait.core.errors import UsageError
    from plait.runtime.plans import plan_of, with_kept

    if name is None:
        raise UsageError("--evidence goes with a plan.", hint="Give --plan FILE.")
    if strategy not in (None, "rewoo"):
        raise UsageError(f"The loop '{strategy}' takes no plan.", hint="--plan is for rewoo; leave --strategy out.")
    agent = agent_for(strategy="rewoo", **flags)
    text = plan_file(name)
    given = plan_of(text, agent.known_to(text))
    if evidence is not None:
        given = with_kept(given, _plan_of_run(evidence, flags["journal"])[0])
    return agent.with_plan(given)


class Page:
    """How a plan is printed: the form, the file or stdout, and what stands beside it."""

    def __init__(self, form: str, output: Path | None, *, as_object: bool, quiet: bool) -> None:
        self.form, self.output, self.as_object, self.quiet = form, output, as_object, quiet

    def show(self, plan: Plan | None, expected: Expected | None, run: Run | None = None) -> NoReturn:
        """Print a plan, what it is expected to take, and leave."""
        import msgspec

        from plait.cli.ending import CODES, summary
        from plait.cli.foresight import foreseen, in_form, plain_terminal
        from plait.cli.group import leave
        from plait.cli.text import as_json

        if not self.quiet or plan is None:
            lines = [summary(run)] if run is not None else []
            for line in [*lines, *(foreseen(expected) if expected is not None else [])]:
                click.echo(line, err=True)
        text = ""
        if plan is not None:
            plain = self.output is None and plain_terminal()
            text = in_form(plan, self.form, ascii=plain) + "\n"
        if self.output is not None and text:
            self.write(self.output, text, run)
        if self.as_object:
            told: dict[str, Any] = {}
            if run is not None:
                told = {"run": run.run, "status": run.status, "reason": run.reason}
            told["plan"] = msgspec.to_builtins(plan)
            told["expected"] = expected.json() if expected is not None else None
            click.echo(as_json(told))
        elif self.output is None and text:
            click.echo(text, nl=False)
        leave(CODES[run.status] if run is not None else 0)

    def write(self, path: Path, text: str, run: Run | None) -> None:
        """Write the plan's file. Raises `PlaitError` that says where the plan is kept, for it may have cost money."""
        from plait.core.errors import PlaitError

        try:
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as why:
            kept = f"The plan is on record: plait plan --of {run.run}" if run is not None else ""
            raise PlaitError(f"{path} can't be written: {why.strerror}.", hint=kept) from why


def _asked(question: str, page: Page, flags: dict[str, Any]) -> NoReturn:
    """Ask the planner, watched."""
    import contextlib
    import shlex
    import sys

    from plait.cli.aside import stdout_aside
    from plait.cli.ending import tell
    from plait.cli.going import go
    from plait.cli.settings import agent_for
    from plait.cli.watch import watch_for

    agent = agent_for(**{**_all(flags), "strategy": flags["strategy"] or "rewoo"})
    made: list[Planned] = []

    async def begin(emit: Any) -> Run:
        made.append(await agent.aplan(question, emit=emit))
        return made[0].run

    watch = watch_for(sys.stderr, quiet=page.quiet)
    try:
        with stdout_aside():
            done = go(begin, watch)
    finally:
        with contextlib.suppress(OSError):
            watch.close()
    if not made:
        again = ("--journal", shlex.quote(flags["journal"])) if flags["journal"] else ()
        tell(done, as_object=page.as_object, quiet=page.quiet, again=again)
    page.show(made[0].plan, made[0].expected, made[0].run)


def _recorded(run: str, page: Page, flags: dict[str, Any]) -> NoReturn:
    """The plan of a recorded run, and what carrying out the rest of it is expected to take."""
    from plait.cli.record import found
    from plait.cli.settings import agent_again
    from plait.core.errors import PlaitError

    plan, row = _plan_of_run(run, flags["journal"])
    expected = None
    if row.head.strategy["name"] == "rewoo":
        try:
            agent = agent_again(row.head, journal=flags["journal"], models=flags["models"], tools=flags["tools"])
            rows = found(row.head.run, flags["journal"])[1].rows(row.head.run)
            expected = agent.expected(row.head.question, plan, rows)
        except PlaitError as why:
            if not page.quiet:
                click.echo(f"What it is expected to take can't be told: {why}", err=True)
    page.show(plan, expected)


def _plan_of_run(run: str, journal: str | None) -> tuple[Plan, Any]:
    from plait.cli.record import found
    from plait.runtime.plans import recorded_plan

    row, kept = found(run, journal)
    return recorded_plan(row.head, kept.rows(row.head.run)), row


def _question(given: str | None, plan: str | None) -> str:
    import sys

    if given == "-" and plan == "-":
        raise click.UsageError("The question and the plan can't both come from stdin.")
    text = sys.stdin.read().strip("\n") if given == "-" else given
    if text is None or not text.strip():
        raise click.UsageError("The question is missing: say what is to be done, or give --of RUN.")
    return text


def _form_of(output: str | None) -> str:
    """The form that a file's name says. Raises `UsageError` where it says one that there is not."""
    from plait.cli.foresight import FORMS
    from plait.core.errors import UsageError

    ends = Path(output).suffix.lower() if output is not None else ""
    if not ends:
        return "text"
    for form, suffixes in FORMS.items():
        if ends in suffixes:
            return form
    known = ", ".join(suffix for suffixes in FORMS.values() for suffix in suffixes)
    raise UsageError(f"A plan has no form '{ends}' ({output}).", hint=f"There are {known}; or say --format.")


def _place(output: str | None) -> Path | None:
    """Where the plan goes, looked at before a model is asked for it. Raises `UsageError`."""
    from plait.core.errors import UsageError

    if output is None:
        return None
    path = Path(output).expanduser()
    if path.is_dir():
        raise UsageError(f"{output} is a folder.", hint="Name a file in it, such as plan.txt.")
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent} to write {path.name} into.", hint="Make it first.")
    return path


def _all(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags of `plait run` that this command does not have, as they are when they are not given."""
    return {**flags, "no_journal": False, "approve": "never", "no_ask": False}
