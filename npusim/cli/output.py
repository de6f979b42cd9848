"""Where output goes: one JSON object, or text for people; progress on a terminal only."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from npusim.simulate import Progress

PIPED_WIDTH = 240


def print_json(value: Any) -> None:
    """Print one JSON value and nothing else on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress]:
    """A status line on standard error that names the running phase, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda text: status.update(text)


def print_table(title: str, headings: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is left-aligned, numbers right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for position, heading in enumerate(headings):
        numeric = bool(rows) and all(_is_number(row[position]) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    # Piped output has no width; names must not be cut in the middle there.
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace(",", "").replace("-", "").replace(" %", "").isdigit()
