"""The group `plait`: its commands, each imported when it is called, and the exit codes of errors."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from importlib import import_module
from typing import NoReturn

import click

from plait import config, telemetry
from plait.cli.main import CANCELLED, CRASHED, WRONG_USAGE
from plait.core.errors import ConfigError, PlaitError, WrongJournal
from plait.core.text import clean, clean_drawn

# name: (module, help line). A command is the function of the same name. The help lines are here so that `plait --help`
# imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "Answer a question with a loop, a model and tools."),
    "init": ("init", "Write a small project: an agent with a tool, its test and its settings."),
    "chat": ("chat", "Talk turn by turn. The session is stored."),
    "serve": ("serve", "Serve agents: an HTTP endpoint, MCP, and a web page that shows runs."),
    "mcp": ("serve", "Serve agents as MCP tools on stdin and stdout."),
    "worker": ("worker", "Take runs from a queue and perform them, beside other workers."),
    "submit": ("worker", "Put a question in the queue."),
    "queue": ("worker", "List the runs that wait in a queue or go on."),
    "cancel": ("worker", "Cancel a run that waits, is in a queue, or goes on elsewhere; or one call of a run."),
    "send": ("worker", "Send a message to a run that goes on or waits."),
    "plan": ("plan", "Write, draw and price a plan before anything runs."),
    "compare": ("compare", "Compare loops and models on the same tasks, in one table."),
    "results": ("compare", "List stored comparisons and show their tables."),
    "classics": ("classics", "Reproduce four published experiments with your models."),
    "recommend": ("recommend", "Recommend the cheapest loop and models that meet a demand."),
    "runs": ("runs", "List the recorded runs, newest first."),
    "show": ("show", "Show a recorded run, or its requests and responses."),
    "costs": ("costs", "Compare the time and cost of runs, phase by phase."),
    "replay": ("replay", "Replay recorded runs and compare every request, or the answers."),
    "resume": ("resume", "Continue a run that waits, was cancelled or was interrupted."),
    "fork": ("resume", "Start a new run from a step of a recorded one."),
    "export": ("show", "Write the record of a run as JSON lines."),
    "journal": ("journal", "Look at a journal as a whole: info, check, restored, migrate, copy."),
    "memory": ("memory", "List the notes that agents keep, change and remove them."),
    "rate": ("runs", "Rate a run good or bad; list the ratings."),
    "trajectories": ("show", "Write good runs as chat lines for training."),
    "models": ("catalog", "List models, fetch the local ones, show what is known of one."),
    "prompts": ("catalog", "List, show and copy the prompts of the loops."),
    "tools": ("catalog", "List and search tools."),
    "world": ("world", "Run tasks in an offline world, graded by what was sent."),
    "trust": ("catalog", "Trust the configuration or an AGENTS.md of this folder."),
    "loops": ("catalog", "List the loops with their options and phases."),
    "doctor": ("doctor", "Check this installation: extras, models, keys, journal, sandbox."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"plait.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their help lines, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


EPILOG = """\
`plait COMMAND --help` describes each command. Exit codes: 0 answered, 3 failed, 4 stopped by a limit, 5 waiting for the
user, 130 cancelled, 1 crashed, 2 wrong usage."""


@click.command(
    cls=LazyGroup,
    commands={name: click.Command(name) for name in COMMANDS},  # the names that click suggests for a mistyped one
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="plait", message="plait %(version)s", help="Print the version and exit.")
@click.pass_context
def plait(ctx: click.Context) -> None:
    """Reasoning-and-acting loops that record every call."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def prepare_process() -> None:
    """Set up streams, warnings, telemetry and configuration for a process that runs one command."""
    for stream in (sys.stdout, sys.stderr):
        # Half a surrogate pair, or a letter that the terminal's encoding lacks, must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        if stream.isatty():
            # Each text is cleaned where it is printed. This is for those of other programs: warnings, logs, file names.
            write = stream.write
            stream.write = lambda text, write=write: write(clean_drawn(text))  # type: ignore[method-assign]
    warnings.showwarning = lambda message, *_: click.echo(f"Warning: {clean(str(message))}", err=True)
    telemetry.opens_sdk = True
    config.read_folder()


def report_error(error: BaseException) -> int:
    """Print an error as one line on stderr and return the command's exit code."""
    code = CRASHED
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case SystemExit():
            return error.code if isinstance(error.code, int) else CRASHED
        case click.ClickException():
            error.message = clean(error.message)  # type: ignore[misc]
            with contextlib.suppress(OSError):
                error.show()
            return error.exit_code
        case BrokenPipeError():  # `plait runs | head`: the reader has enough
            discard_stdout()
            return 0
        case KeyboardInterrupt() | click.Abort():
            code, message = CANCELLED, "Cancelled."
        case _ if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps it while it creates a class
            code, message = CANCELLED, "Cancelled."
        case PlaitError():
            code = WRONG_USAGE if isinstance(error, ConfigError | WrongJournal) else CRASHED
            message = f"Error: {clean(str(error)).strip()}"
        case _ if os.environ.get("PLAIT_DEBUG"):
            raise error
        case OSError():  # the user's files and folders: not a defect, so print the system's message
            discard_stdout()
            message = f"Error: {clean(str(error.filename or 'stdout'))}: {error.strerror or clean(str(error))}."
        case _:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            message = f"Error: {clean(what).strip()}. This is a defect of Plait. PLAIT_DEBUG=1 shows the traceback."
    with contextlib.suppress(OSError):
        click.echo(message, err=True)
    return code


def finish_telemetry() -> None:
    """Send the remaining telemetry; report it if that fails."""
    if lost := telemetry.shut_down():
        with contextlib.suppress(OSError):
            advice = "OTEL_EXPORTER_OTLP_ENDPOINT sets the collector; PLAIT_TELEMETRY=off switches telemetry off."
            click.echo(f"Telemetry was not delivered: {clean(lost).strip()} {advice}", err=True)


def exit_with(code: int) -> NoReturn:
    click.get_current_context().exit(code)


def discard_stdout() -> None:
    """Send the rest of stdout to the null device, because its reader is gone."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
