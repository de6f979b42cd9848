"""The summary as people read it."""

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from npusim.reports.summary import print_summary


def printed(summary: dict[str, Any], folder: Path | None = None, **more: Any) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=100, soft_wrap=True)
    print_summary(summary, folder, console, **more)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_every_line(summary: dict[str, Any]) -> None:
    assert printed(summary, Path("out/run")) == [
        "matmul tiny on toy (M=64)",
        "predicted 10.00 us: kernel 8.00 us, launch and tail 2.00 us; 41% of the HBM roofline",
        "10,000 cycles, 1,234 instructions, workspace 2,048 B, L2 cold, engine simpy, seed 7",
        "stage       us  from    to",
        "load      4.00  1.00  5.00  ····████████████████····················",
        "multiply  6.00  3.00  9.00  ············████████████████████████····",
        "pipe       busy  active  waits",
        "AIC MTE2  50.0%   60.0%  25.0%  ████████████████████░░░░░░░░░░··········",
        "path      bytes  GB/s",
        "GM > L1  32,768   4.1",
        "assumptions:",
        "  l2 at start = cold  (given)",
        "values: 1 outputs equal the reference bit for bit",
        "trace: valid",
        "written to out/run",
    ]


def test_what_differs_is_named(summary: dict[str, Any]) -> None:
    summary["checks"] = {
        "values": {"c": "3 of 4096 differ", "d": "equal"},
        "orders": None,
        "trace": "2 x overlap",
    }
    assert printed(summary)[-2:] == [
        "values: c: 3 of 4096 differ (reference)",
        "trace: 2 x overlap",
    ]


def test_a_values_only_run_says_no_times(summary: dict[str, Any]) -> None:
    for name in ("time_us", "kernel_us", "cycles", "engine"):
        summary[name] = None
    summary |= {"stages": [], "pipes": [], "paths": [], "assumptions": []}
    summary["checks"] = {"values": {"c": "equal"}, "orders": {"c": "equal"}, "trace": None}
    assert printed(summary) == [
        "matmul tiny on toy (M=64)",
        "values: 1 outputs equal the reference bit for bit",
        "orders: 1 outputs equal those of the other functional order",
    ]


def test_long_lists_of_assumptions_are_cut_unless_asked_for(summary: dict[str, Any]) -> None:
    summary["assumptions"] = [
        {"name": f"p{i}", "value": i, "source": "inferred"} for i in range(20)
    ]
    lines = printed(summary)
    assert "  p7 = 7  (inferred)" in lines and "  p8 = 8  (inferred)" not in lines
    assert "  and 12 more in summary.json" in lines
    assert "  p19 = 19  (inferred)" in printed(summary, everything=True)


def test_markup_in_names_is_plain_text(summary: dict[str, Any]) -> None:
    summary["stages"][0]["name"] = "[red]load[/red]"
    assert any(line.startswith("[red]load[/red]") for line in printed(summary))


def test_a_verdict_is_printed(summary: dict[str, Any]) -> None:
    summary["verdict"] = "bound by HBM"
    assert "verdict: bound by HBM" in printed(summary)
