"""Writes docs/performance.json and docs/performance.md from one run of the measurements."""

import json
import sys
from pathlib import Path

from npusim.bench.figures import Figure
from npusim.bench.measure import measure
from npusim.bench.page import render

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    """Measure (or, with ``--render``, take the stored figures) and write the page."""
    stored = DOCS / "performance.json"
    if "--render" not in sys.argv[1:]:
        figures = measure(lambda part: print(part, file=sys.stderr))
        stored.write_text(json.dumps([f.as_dict() for f in figures], indent=1) + "\n", "utf-8")
    figures = [Figure(**figure) for figure in json.loads(stored.read_text("utf-8"))]
    (DOCS / "performance.md").write_text(render(figures), "utf-8")


if __name__ == "__main__":
    main()
