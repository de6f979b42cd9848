"""Entry point: registers the verbs and turns errors into one line and an exit status.

Exit status: 0 success, 1 a failed check, 2 a user's mistake.
"""

import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer
from typer.main import get_command

from npusim.cli import bench, check, listing, report, run, selftest, validate, warmup
from npusim.errors import NpusimError

USER_MISTAKE = 2
INTERRUPTED = 130
"""What the command framework makes of Ctrl-C."""

app = typer.Typer(
    name="npusim",
    help="Predicts how long kernels take on Ascend NPUs and computes what they compute.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(wanted: bool) -> None:
    """Print the version and exit, if that is wanted."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"npusim {version('npusim')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Predicts how long kernels take on Ascend NPUs and computes what they compute."""


for module in (run, check, report, listing, selftest, warmup, validate, bench):
    module.register(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit the process with its status; being told to end is as Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(run_command(sys.argv[1:] if arguments is None else list(arguments)))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_command(arguments: list[str]) -> int:
    """Run one command.

    Returns:
        the exit status; a user's mistake is one line on standard error.
    """
    # The command framework has its own copy of the error classes, whatever library it wraps.
    command = get_command(app)
    try:
        status = command.main(args=arguments, prog_name="npusim", standalone_mode=False)
    except NpusimError as error:
        return _mistake(str(error))
    except KeyboardInterrupt:
        return _mistake("interrupted; nothing half-written is left behind")
    except (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError) as error:
        return _mistake(f"{error.strerror}: {error.filename}")
    except BrokenPipeError:
        return 0
    except Exception as error:
        if type(error).__name__ == "Abort":
            return _mistake("interrupted; nothing half-written is left behind")
        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error), file=sys.stderr)
            return USER_MISTAKE
        if hasattr(error, "format_message"):
            return _mistake(error.format_message().replace("\n", " "))
        raise
    if status == INTERRUPTED:
        return _mistake("interrupted; nothing half-written is left behind")
    return status if isinstance(status, int) else 0


def _mistake(text: str) -> int:
    print(f"npusim: {text}", file=sys.stderr)
    return USER_MISTAKE
