"""The commands of `plait`, each imported when it is called, and how its errors end."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from plait import config, telemetry
from plait.cli.text import one_line
from plait.core.errors import PlaitError, UsageError

CANCELLED, CRASHED, WRONG_USAGE = 130, 1, 2

# name: (module, the command in it, its line of help). The line stands here so that `plait` imports nothing.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Answer a question with a loop, a model and tools."),
    "chat": ("chat", "chat", "Talk, turn by turn, in a session that is kept."),
    "serve": ("serve", "serve", "Serve agents: an endpoint, MCP, and a page to look at runs."),
    "mcp": ("mcp", "mcp", "Serve agents as MCP tools, on stdin and stdout."),
    "plan": ("plan", "plan", "Have a plan written, drawn and priced before anything runs."),
    "compare": ("compare", "compare", "Compare loops and models on the same tasks, in one table."),
    "results": ("results", "results", "List comparisons on record, and show their tables."),
    "tables": ("seeds", "tables", "Draw the four classic tables with the models at hand."),
    "advise": ("advise", "advise", "Name the cheapest loop and models that meet a demand, and how sure that is."),
    "runs": ("runs", "runs", "List the runs on record, newest first."),
    "show": ("show", "show", "Tell a recorded run again, or show what was sent and received."),
    "costs": ("costs", "costs", "What runs took and cost, phase by phase, side by side."),
    "replay": ("replay", "replay", "Take the loop through a record and compare every request."),
    "resume": ("resume", "resume", "Go on with a run that waits, was cancelled or was interrupted."),
    "fork": ("fork", "fork", "Begin a new run from a step of a recorded one."),
    "export": ("export", "export", "Write a run's record as lines of JSON."),
    "mark": ("mark", "mark", "Mark a run good or bad; list the marks."),
    "trajectories": ("trajectories", "trajectories", "Write good runs as lines of chat, for training."),
    "models": ("models", "models", "List and fetch the local models."),
    "prompts": ("prompts", "prompts", "List, show and copy the prompts of the loops."),
    "tools": ("tools", "tools", "List the tools that ship, or those behind a word; search them."),
    "world": ("world", "world", "Tasks in an offline world, graded by what was sent."),
    "trust": ("trust", "trust", "Trust the configuration of this folder."),
    "strategies": ("strategies", "strategies", "List the loops with their options and phases."),
}


class Failure(click.ClickException):
    """An error that ends the command: one line on stderr, and an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Print the line."""
        click.echo(self.format_message(), file=file, err=True)


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, and whose errors never show a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a day's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command = getattr(import_module(f"plait.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their lines, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever goes wrong in it becomes a line and an exit code."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # `plait runs | head`: whoever read has what they wanted.
            nowhere()
            ctx.exit(0)
        except KeyboardInterrupt:
            raise Failure("Cancelled.", CANCELLED) from None
        except UsageError as why:
            raise Failure(f"Error: {one_line(str(why))}", WRONG_USAGE) from why
        except PlaitError as why:
            raise Failure(f"Error: {one_line(str(why))}", CRASHED) from why
        except click.UsageError as why:
            if meant := _meant(why):
                raise click.UsageError(why.message + meant, why.ctx) from None
            raise
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except OSError as why:
            if os.environ.get("PLAIT_DEBUG"):
                raise
            # What files and folders of the user's can do to us is no defect, and said in the system's words.
            nowhere()
            raise Failure(f"Error: {why.filename or 'stdout'}: {why.strerror or why}.", CRASHED) from why
        except Exception as why:
            if os.environ.get("PLAIT_DEBUG"):
                raise
            told = f"{type(why).__name__}: {why}" if str(why) else type(why).__name__
            where = "This is a defect of Plait; PLAIT_DEBUG=1 shows where."
            raise Failure(f"Error: {one_line(told)}. {where}", CRASHED) from why


def _meant(error: click.UsageError) -> str:
    """The commands like the one that a group, at any depth, does not have; "" for another error."""
    wrong = re.search(r"command '([^']+)'", error.message)
    group = error.ctx.command if error.ctx is not None else None
    if (
        wrong is None
        or error.ctx is None
        or not isinstance(group, click.Group)
        or getattr(error, "possibilities", None)
    ):
        return ""
    from difflib import get_close_matches

    near = get_close_matches(wrong[1].lower(), group.list_commands(error.ctx), 2, 0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""


EPILOG = """\
`plait COMMAND --help` tells of each. Exit codes: 0 answered, 3 failed, 4 stopped by a limit, 5 waiting for a
person, 130 cancelled, 1 crashed, 2 wrong usage."""


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", is_flag=True, help="Print the version and exit.")
@click.pass_context
def plait(ctx: click.Context, version: bool) -> None:
    """Reasoning-and-acting loops, with every call on the record."""
    if version:
        from plait import __version__

        click.echo(f"plait {__version__}")
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def perform(args: list[str]) -> int:
    """Run the command line `args`; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Half a surrogate pair, or a letter that the terminal's encoding lacks, must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    telemetry.opens_sdk = True
    config.read_folder()
    try:
        code = plait.main(args=args, prog_name="plait", standalone_mode=False)
    except click.Abort:
        click.echo("Cancelled.", err=True)
        return CANCELLED
    except click.ClickException as why:
        with contextlib.suppress(OSError):
            why.show()
        return why.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else CRASHED
    finally:
        if lost := telemetry.shut_down():
            with contextlib.suppress(OSError):
                where = "Where it goes says OTEL_EXPORTER_OTLP_ENDPOINT; PLAIT_TELEMETRY=off switches it off."
                click.echo(f"Telemetry was not delivered: {one_line(lost)} {where}", err=True)
    return code if isinstance(code, int) else 0


def leave(code: int) -> NoReturn:
    """End the command with an exit code."""
    click.get_current_context().exit(code)


def nowhere() -> None:
    """Send what is still to be written on stdout nowhere: its reader has gone."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
