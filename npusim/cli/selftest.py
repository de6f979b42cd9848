"""``npusim selftest``: the numerics against the reference vectors."""

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.listing import Json


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("selftest", short_help="Run every numerics vector.")(selftest)


def selftest(
    vectors: Annotated[
        Path | None, typer.Option(help="Folder of vector files; the shipped ones if left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Run every numerics vector; exit status 1 if any value differs."""
    from npusim.cli.output import print_json, print_table
    from npusim.numerics.selftest import run_selftest

    results = run_selftest(vectors)
    if json:
        print_json(
            {
                "files": [
                    {
                        "file": r.file,
                        "rows": r.rows,
                        "equal": r.equal,
                        "differ": r.differ,
                        "skipped": r.skipped,
                        "reasons": list(r.reasons),
                    }
                    for r in results
                ]
            }
        )
    else:
        rows = [
            [r.file, str(r.rows), str(r.equal), str(r.differ), str(r.skipped),
             "; ".join(r.reasons)]
            for r in results
        ]  # fmt: skip
        print_table(
            "numerics vectors",
            ["file", "rows", "equal", "differ", "skipped", "why skipped"],
            rows,
        )
    if any(r.differ for r in results):
        raise typer.Exit(1)
