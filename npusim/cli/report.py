"""``npusim report`` and ``npusim diff``: finished runs, read again."""

import os
from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.listing import Json

Folder = Annotated[Path, typer.Argument(help="Run folder, as 'npusim run' writes it.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("report", short_help="Print a run again and redraw it.")(report)
    app.command("diff", short_help="Say what differs between two runs.")(diff)


def report(folder: Folder, json: Json = False) -> None:
    """Print the summary of a run again, with every assumption, and redraw its pictures."""
    from npusim.cli.output import print_json
    from npusim.reports.report import read_summary, redraw
    from npusim.reports.summary import print_summary

    summary = read_summary(folder)
    if folder.is_dir():
        if os.access(folder, os.W_OK | os.X_OK):
            redraw(folder)
        else:
            typer.echo(f"npusim: {folder} is read-only; its pictures stay as they are", err=True)
    if json:
        print_json(summary)
    else:
        print_summary(summary, folder, everything=True)


def diff(a: Folder, b: Folder, json: Json = False) -> None:
    """Compare the times of two runs, and say what else differs between them."""
    from npusim.cli.output import print_json
    from npusim.reports.diff import diff_runs, print_diff
    from npusim.reports.report import read_summary

    difference = diff_runs(read_summary(a), read_summary(b))
    if json:
        print_json(difference)
    else:
        print_diff(difference)
