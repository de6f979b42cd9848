"""``npusim validate``: predicted against published device times."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli.listing import Json

if TYPE_CHECKING:
    from npusim.validate.runner import Progress
    from npusim.validate.validation import Validation


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("validate", short_help="Predictions against published times.")(validate)


def validate(
    measurements: Annotated[
        Path | None, typer.Option(help="File of records; the shipped ones if left out.")
    ] = None,
    show: Annotated[str | None, typer.Option(help="Print one record's whole story.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fixed subset, in a minute.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit status 1 if a class got worse.")
    ] = False,
    publish: Annotated[
        Path | None, typer.Option(help="Write accuracy.md and its pictures to this folder.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write the table that --check compares with.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    json: Json = False,
) -> None:
    """Predict every published measurement that can be mapped, and say how far off it is."""
    from npusim.cli.output import print_json
    from npusim.validate import validation
    from npusim.validate.report import print_report

    path = measurements or validation.shipped_records()
    if show is not None:
        _show(path, show)
        return
    _require_places(publish, table)
    only = validation.quick_ids() if quick else None
    with _progress(quiet=json) as progress:
        found = validation.validate(path, only=only, workers=workers, progress=progress)
    if json:
        print_json(found.as_json())
    else:
        print_report(found)
    if publish is not None:
        from npusim.validate.page import write_page

        write_page(found, publish)
    if table is not None:
        validation.write_table(found, table, "quick" if quick else "full")
    if check:
        _check(found, "quick" if quick else "full")


def _require_places(folder: Path | None, file: Path | None) -> None:
    """Refuse what cannot be written before the minute that the records take."""
    from npusim.errors import ParameterError

    for option, place in (("--publish", folder), ("--table", file and file.parent)):
        if place is None:
            continue
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ParameterError(f"{option} {place}: cannot be written ({reason})") from None
        if not os.access(place, os.W_OK | os.X_OK):
            raise ParameterError(f"{option} {place}: cannot be written (permission denied)")
    if file is not None and file.is_dir():
        raise ParameterError(f"--table {file}: is a folder; give a file")


def _show(path: Path, record_id: str) -> None:
    from npusim.errors import ParameterError, near_matches
    from npusim.validate.records import read_records
    from npusim.validate.report import story
    from npusim.validate.validation import validate as run

    record_id = record_id.partition(":")[0]
    file = read_records(path)
    known = [r.id for r in file.records] + [u.id for u in file.unreadable]
    if record_id not in known:
        raise ParameterError(f"no record '{record_id}' ({near_matches(record_id, known)})")
    found = run(path, only=[record_id], workers=1)
    record = next((r for r in file.records if r.id == record_id), None)
    why = next((u.why for u in file.unreadable if u.id == record_id), None)
    typer.echo(story(record_id, record, why, found))


def _check(found: "Validation", kind: str) -> None:
    from npusim.validate.tables import worsened
    from npusim.validate.validation import shipped_table

    problems = worsened(found.rows, shipped_table()[kind])
    for problem in problems:
        typer.echo(f"worse than the committed table: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


@contextmanager
def _progress(quiet: bool) -> Iterator["Progress | None"]:
    """A bar on standard error, on a terminal only."""
    import sys

    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("records", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
