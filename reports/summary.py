"""What a run has to say, for people: the summary dictionary as text and tables."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_SHOWN_ASSUMPTIONS = 8


def print_summary(
    summary: dict[str, Any],
    folder: Path | None = None,
    console: Console | None = None,
    *,
    everything: bool = False,
) -> None:
    """Print the summary of a run.

    Args:
        folder: where the run lies, named in the last line.
        everything: every assumption, not the first few and a count.
    """
    out = console or Console(soft_wrap=True)
    out.print(f"[bold]{escape(_headline(summary))}[/bold]")
    if summary["time_us"] is not None:
        out.print(escape(_time_line(summary)))
        if summary.get("spread_us"):
            out.print(_spread_line(summary["spread_us"]))
        for table in (_stages(summary), _pipes(summary)):
            if table is not None:
                out.print(table)
    if summary["paths"]:
        out.print(_paths(summary))
    if summary.get("verdict"):
        out.print(escape(f"verdict: {_sentence(summary['verdict'])}"))
    for line in _assumptions(summary, everything):
        out.print(escape(line))
    for line in _checks(summary["checks"]):
        out.print(line)
    if folder is not None:
        out.print(escape(f"written to {folder}"))


def _headline(summary: dict[str, Any]) -> str:
    what = " ".join(filter(None, (summary["op"], summary["case"])))
    params = " ".join(f"{k}={v}" for k, v in summary.get("params", {}).items())
    return f"{what} on {summary['chip']}" + (f" ({params})" if params else "")


def _time_line(summary: dict[str, Any]) -> str:
    roof = summary["roofline"]
    bound = {"hbm": "HBM", "l2": "L2", "cube": "Cube"}.get(roof["bound"], roof["bound"])
    share = "" if roof["share"] is None else f"; {roof['share']:.0%} of the {bound} roofline"
    return (
        f"predicted {summary['time_us']:.2f} us: kernel {summary['kernel_us']:.2f} us, "
        f"launch and tail {summary['time_us'] - summary['kernel_us']:.2f} us{share}\n"
        f"{summary['cycles']:,} cycles, {summary['instructions']:,} instructions, "
        f"workspace {summary['workspace_bytes']:,} B, L2 {summary['l2']}, "
        f"engine {summary['engine']}, seed {summary['seed']}"
    )


def _spread_line(times_us: list[float]) -> str:
    return (
        f"with random start offsets: {min(times_us):.2f} to {max(times_us):.2f} us "
        f"in {len(times_us)} runs"
    )


def _stages(summary: dict[str, Any]) -> Table | None:
    if not summary["stages"]:
        return None
    table = _table("stage", "us", "from", "to", "")
    whole = summary["time_us"]
    for stage in summary["stages"]:
        start, end = stage.get("start_us"), stage.get("end_us")
        table.add_row(
            escape(stage["name"]),
            f"{stage['time_us']:.2f}",
            "" if start is None else f"{start:.2f}",
            "" if end is None else f"{end:.2f}",
            "" if start is None else _span(start, end, whole),
        )
    return table


def _pipes(summary: dict[str, Any]) -> Table | None:
    used = [p for p in summary["pipes"] if p["busy_share"] or p["wait_share"]]
    if not used:
        return None
    table = _table("pipe", "busy", "active", "waits", "")
    for pipe in used:
        busy, wait = pipe["busy_share"], pipe["wait_share"]
        shares = (f"{share:.1%}" for share in (busy, pipe["active_share"], wait))
        table.add_row(pipe["pipe"], *shares, _bar(busy, wait))
    return table


def _paths(summary: dict[str, Any]) -> Table:
    table = _table("path", "bytes", "GB/s")
    for path in summary["paths"]:
        rate = "" if path["gbps"] is None else f"{path['gbps']:,.1f}"
        table.add_row(path["path"].replace("_TO_", " > "), f"{path['bytes']:,}", rate)
    return table


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first)
    for heading in numbers:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    return table


def _span(start: float, end: float, whole: float) -> str:
    """A line of 40 characters on which the stage is marked."""
    width = 40
    first = min(width - 1, int(start / whole * width))
    last = max(first + 1, min(width, round(end / whole * width)))
    return "·" * first + "█" * (last - first) + "·" * (width - last)


def _bar(busy: float, wait: float) -> str:
    width = 40
    full = min(width, round(busy * width))
    light = min(width - full, round(wait * width))
    return "█" * full + "░" * light + "·" * (width - full - light)


def _assumptions(summary: dict[str, Any], everything: bool) -> list[str]:
    listed = summary["assumptions"]
    shown = listed if everything else listed[:_SHOWN_ASSUMPTIONS]
    lines = [f"  {a['name']} = {a['value']}  ({a['source']})" for a in shown]
    if len(shown) < len(listed):
        lines.append(f"  and {len(listed) - len(shown)} more in summary.json")
    return ["assumptions:", *lines] if lines else []


def _checks(checks: dict[str, Any]) -> list[str]:
    lines = [
        *_compared("values", checks["values"], "the reference bit for bit", "(reference)"),
        *_compared("orders", checks["orders"], "those of the other functional order", "(orders)"),
    ]
    if checks["trace"] is not None:
        colour = "green" if checks["trace"] == "valid" else "red"
        lines.append(f"[{colour}]trace: {escape(checks['trace'])}[/{colour}]")
    return lines


def _compared(what: str, results: dict[str, str] | None, standard: str, against: str) -> list[str]:
    """One line about outputs that were compared with something."""
    if results is None:
        return []
    bad = {name: text for name, text in results.items() if text != "equal"}
    if bad:
        found = "; ".join(f"{name}: {text}" for name, text in bad.items())
        return [f"[red]{escape(f'{what}: {found} {against}')}[/red]"]
    return [f"[green]{what}: {len(results)} outputs equal {standard}[/green]"]


def _sentence(verdict: Any) -> str:
    """The verdict's sentence, whatever else it carries."""
    if isinstance(verdict, dict):
        return str(verdict.get("text") or verdict.get("sentence") or verdict)
    return str(verdict)
