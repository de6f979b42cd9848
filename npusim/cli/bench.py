"""``npusim bench``: how fast npusim itself is on this machine."""

from typing import Annotated

import typer

from npusim.cli.listing import Json


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("bench", short_help="Measure npusim itself on this machine.")(bench)


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="One repeat; no whole commands and no peak memory.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure engines, traces, numerics and memory against this machine's own yardsticks."""
    from npusim.bench.measure import measure
    from npusim.bench.page import number, ratio
    from npusim.cli.output import print_json, print_table, progress_bar

    with progress_bar(quiet=json) as progress:
        figures = measure(progress, quick=quick)
    if json:
        print_json({"figures": [f.as_dict() for f in figures]})
        return
    rows = [[f.name, number(f.value), f.unit, ratio(f), f.yardstick or ""] for f in figures]
    print_table(
        "CPU time, medians; flags and barriers are not instructions",
        ["figure", "value", "unit", "ratio", "to"],
        rows,
    )
