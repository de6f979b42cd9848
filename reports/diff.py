"""``npusim diff``: what differs between two runs, and which stage it comes from."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from npusim.errors import ParameterError

_SAME = 5e-4
"""Relative difference of times below which two runs count as equally fast."""

Pair = list[float | None]

SHARES = ("busy_share", "active_share", "wait_share")


def diff_runs(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Compare two summaries of timed runs.

    Returns:
        ``time_us`` and ``kernel_us`` (of a and b), ``stages`` and ``pipes`` with a pair for every
        figure (None where a run does not have the stage or pipe), ``paths``, ``settings`` (what
        else differs between the runs), and ``verdict``, one sentence.

    Raises:
        ParameterError: a run without a time.
    """
    for name, summary in (("first", a), ("second", b)):
        if summary["time_us"] is None:
            raise ParameterError(
                f"the {name} run has no time (mode {summary['mode']}); "
                "run it again with --mode time or both"
            )
    times: list[float] = [a["time_us"], b["time_us"]]
    stages = _paired(a["stages"], b["stages"], "name", ("time_us", "start_us", "end_us"))
    for stage in stages:
        before, after = stage["time_us"]
        stage["delta_us"] = (after or 0.0) - (before or 0.0)
    return {
        "time_us": times,
        "kernel_us": [a["kernel_us"], b["kernel_us"]],
        "stages": stages,
        "pipes": _paired(a["pipes"], b["pipes"], "pipe", SHARES),
        "paths": _paired(a["paths"], b["paths"], "path", ("bytes", "gbps")),
        "settings": _settings(a, b),
        "verdict": _verdict(times, stages),
    }


def print_diff(difference: dict[str, Any], console: Console | None = None) -> None:
    """Print what `diff_runs` found."""
    out = console or Console(soft_wrap=True)
    out.print(f"[bold]{escape(difference['verdict'])}[/bold]")
    for setting in difference["settings"]:
        out.print(escape(f"  {setting['name']}: {setting['a']} against {setting['b']}"))
    out.print(_table(difference["stages"], "name", "stage", "time_us", "us", "{:.2f}"))
    out.print(_table(difference["pipes"], "pipe", "busy", "busy_share", "share", "{:.1%}"))
    out.print(_table(difference["paths"], "path", "path", "bytes", "bytes", "{:,.0f}"))


def _paired(
    a: list[dict[str, Any]], b: list[dict[str, Any]], key: str, figures: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Entries of both by name, in the order of the first run, then what only the second has."""
    first, second = ({entry[key]: entry for entry in run} for run in (a, b))
    return [
        {
            key: name,
            **{f: [first.get(name, {}).get(f), second.get(name, {}).get(f)] for f in figures},
        }
        for name in dict.fromkeys([*first, *second])
    ]


def _settings(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """What the runs were asked for and where that differs; chip parameters included."""
    one, two = _flat(a), _flat(b)
    return [
        {"name": name, "a": one.get(name), "b": two.get(name)}
        for name in dict.fromkeys([*one, *two])
        if one.get(name) != two.get(name)
    ]


def _flat(summary: dict[str, Any]) -> dict[str, Any]:
    asked = {name: summary[name] for name in ("op", "case", "chip", "mode", "l2", "seed")}
    params = {f"param {name}": value for name, value in summary.get("params", {}).items()}
    params |= {f"knob {name}": value for name, value in summary.get("tiling", {}).items()}
    assumed = {entry["name"]: entry["value"] for entry in summary["assumptions"]}
    return asked | params | {n: v for n, v in assumed.items() if n != "l2 at start"}


def _verdict(times: list[float], stages: list[dict[str, Any]]) -> str:
    before, after = times
    if abs(after - before) <= _SAME * before:
        return f"equally fast: {before:.2f} us and {after:.2f} us"
    change = abs(after - before) / before
    if after > 2 * before:
        what = f"the second takes {after / before:.3g} times as long"
    else:
        what = f"the second is {change:.1%} {'faster' if after < before else 'slower'}"
    text = f"{what}: {after:.2f} us against {before:.2f} us"
    moved = [s for s in stages if s["delta_us"] * (after - before) > 0]
    if not moved:
        return text
    most = max(moved, key=lambda s: abs(s["delta_us"]))
    return f"{text}; stage {most['name']} changes most ({most['delta_us']:+.2f} us)"


def _table(
    entries: list[dict[str, Any]], key: str, heading: str, figure: str, unit: str, form: str
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(heading)
    for column in (f"first {unit}", f"second {unit}", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry in entries:
        pair: Pair = entry[figure]
        if not any(pair):
            continue
        a, b = pair
        cells = ["-" if v is None else form.format(v) for v in pair]
        change = "" if not a or b is None else f"{(b - a) / a:+.1%}"
        table.add_row(escape(str(entry[key])), *cells, change)
    return table
