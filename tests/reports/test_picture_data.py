"""What the pictures show, held against the records."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npusim.chips.load import load_chip
from npusim.isa.instructions import SYNC_OPCODES, Opcode
from npusim.isa.spaces import Pipe
from npusim.reports import gantt_rows
from npusim.reports.bandwidth import bandwidth_picture
from npusim.reports.figures import si_bytes, stage_colours
from npusim.reports.gantt import draw_gantt, gantt
from npusim.reports.gantt_rows import SLOTS, WAIT, PipeRow, representative_cores
from npusim.reports.pictures import (
    draw_pictures,
    gather_pictures,
    read_pictures,
    write_pictures,
)
from npusim.reports.roofline import roofline_picture
from npusim.roofline import roofline
from npusim.simulate import Run
from npusim.summary import summarise
from npusim.timing.records import Records

Runs = Callable[..., Run]
WORK_OF_PIPE = {
    Pipe.MTE1: (Opcode.COPY,),
    Pipe.MTE2: (Opcode.COPY,),
    Pipe.CUBE: (Opcode.MMAD,),
    Pipe.FIXP: (Opcode.FIXPIPE,),
}


def records_of(run: Run) -> Records:
    assert run.records is not None
    return run.records


def busy_cycles(records: Records, core: int, pipe: Pipe) -> int:
    """Cycles of the work of a pipe, from a walk through the stream."""
    program, total = records.program, 0
    for instance, row, instruction in program.walk(core):
        if instruction.pipe == pipe and instruction.opcode in WORK_OF_PIPE[pipe]:
            id_ = int(program.first_id[instance]) + row
            total += int(records.end[id_] - records.start[id_])
    return total


def drawn_us(row: PipeRow, *, waits: bool) -> float:
    """Area of the bars of a row."""
    return sum((b.end_us - b.start_us) * b.height for b in row.bars if (b.stage == WAIT) == waits)


def test_each_instruction_is_a_bar_in_a_small_run(run_of: Runs) -> None:
    records = records_of(run_of("matmul", "tiny"))
    data = gantt("title", records)
    assert data.each
    assert [(r.core, r.pipe) for r in data.rows] == [
        ("AIC 0", p) for p in ("MTE1", "MTE2", "CUBE", "FIXP")
    ]
    assert data.rows[0].why == "first, slowest"
    for row in data.rows:
        cycles = busy_cycles(records, 0, Pipe[row.pipe])
        assert drawn_us(row, waits=False) == pytest.approx(records.clock.us(cycles))
        assert row.busy_share == pytest.approx(cycles / records.kernel_cycles, abs=1e-4)
        assert all(a.end_us <= b.start_us for a, b in zip(row.bars, row.bars[1:], strict=False))
    assert {b.label for b in data.rows[2].bars if b.stage != WAIT} == {"MMAD"}


def test_a_large_run_is_drawn_with_bounded_bars(
    run_of: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut into slots, the areas stay what they are, up to the steps of the height."""
    records = records_of(run_of("matmul", "tiny"))
    exact = gantt("title", records)
    monkeypatch.setattr(gantt_rows, "EXACT_BARS", 0)
    data = gantt("title", records)
    assert not data.each
    for row, before in zip(data.rows, exact.rows, strict=True):
        assert len(row.bars) <= 3 * SLOTS
        assert (row.busy_share, row.wait_share) == (before.busy_share, before.wait_share)
        assert all(b.base >= 0 and b.base + b.height <= 1.001 for b in row.bars)
        for waits in (False, True):
            got, want = drawn_us(row, waits=waits), drawn_us(before, waits=waits)
            assert got == pytest.approx(want, rel=0.1, abs=0.02 * records.time_us)
    draw_gantt(data)


def test_stages_are_those_of_the_summary(run_of: Runs) -> None:
    run = run_of("mla_prolog_v3", "tiny_int8")
    data = gantt("title", records_of(run))
    expected = {
        s["name"]: (s["start_us"], s["end_us"])
        for s in summarise(run)["stages"]
        if s["name"] != "end"
    }
    assert dict(zip(data.stages, data.spans, strict=True)) == expected
    assert list(data.spans) == sorted(data.spans, key=lambda s: s[0])


def test_representative_cores(run_of: Runs) -> None:
    records = records_of(run_of("matmul", None, chip="A2"))
    program = records.program
    finish = {
        c: int(records.end[program.first_id[program.core_start[c + 1]] - 1])
        for c in range(program.aic)
        if len(program.instances_of(c))
    }
    chosen = representative_cores(program, records.end)
    assert chosen[0].startswith("first")
    slowest = [c for c, why in chosen.items() if "slowest" in why]
    assert [finish[c] for c in slowest] == [max(finish.values())]


def test_bandwidth_adds_up_to_the_bytes(run_of: Runs) -> None:
    run = run_of("matmul", "tiny")
    records = records_of(run)
    data = bandwidth_picture("title", records, run.job.chip)
    moved = {p["path"]: p["bytes"] for p in summarise(run)["paths"]}
    for path, rates in data.paths.items():
        assert data.path_bytes[path] == moved[path]
        assert sum(rates) * data.bucket_us * 1000 == pytest.approx(moved[path], rel=1e-3)
    assert data.hbm_read_bytes == int(records.miss_bytes.sum())
    assert data.limits["HBM read"] == run.job.chip.hbm.read_bw_gbps


def test_cube_peaks_by_hand(run_of: Runs) -> None:
    """24 AICs at 1800 MHz, 16 x 16 x 16 fp16 products a cycle, two operations each."""
    run = run_of("matmul", "tiny")
    chip = load_chip("A2")
    roof = roofline(run.program, chip, cold=True)
    data = roofline_picture("title", run.program, chip, roof, 10.0)
    assert data.peaks_tops["fp16"] == pytest.approx(24 * 1800e6 * 16**3 * 2 / 1e12)
    assert data.used == ["fp16"]
    assert data.macs == 64 * 64 * 128
    assert data.share == pytest.approx(max(data.ideal_us.values()) / 10.0)


def test_data_survives_the_file(run_of: Runs, tmp_path: Path) -> None:
    run = run_of("matmul", "tiny")
    pictures = gather_pictures(run, summarise(run))
    write_pictures(pictures, tmp_path)
    assert read_pictures(tmp_path) == pictures
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
    draw_pictures(pictures, tmp_path / "once")
    names = draw_pictures(read_pictures(tmp_path), tmp_path / "again")
    assert names == ["gantt.png", "bandwidth.png", "roofline.png"]
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize(("op", "case"), [("elementwise", "tiny_add"), ("copy", "tiny")])
def test_a_run_without_cube_is_drawn_too(run_of: Runs, tmp_path: Path, op: str, case: str) -> None:
    run = run_of(op, case)
    pictures = gather_pictures(run, summarise(run))
    assert pictures.roofline is not None and pictures.roofline.macs == 0
    assert len(draw_pictures(pictures, tmp_path)) == 3


def test_drawing_does_not_touch_pyplot() -> None:
    """Nor does anything choose a backend for the whole process."""
    script = (
        "import sys; import npusim.reports.pictures; "
        "print('matplotlib.pyplot' in sys.modules, 'matplotlib.figure' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False True\n"


def test_colours_tell_stages_apart() -> None:
    stages = ["launch", *(f"s{i}" for i in range(16)), "end"]
    colours = stage_colours(stages)
    assert len(set(colours.values())) == 18
    # Launch and end do not shift the others.
    assert stage_colours(["s0"])["s0"] == colours["s0"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (28_770_304, "28.8 MB"), (5e12, "5e+03 GB")],
)
def test_si_bytes(size: float, text: str) -> None:
    assert si_bytes(size) == text


def test_waits_and_work_fill_what_was_issued(run_of: Runs) -> None:
    """On a pipe no two bars overlap, and none lies outside the run."""
    records = records_of(run_of("mla_prolog_v3", "tiny_int8"))
    for row in gantt("title", records).rows:
        edges = np.array([(b.start_us, b.end_us) for b in row.bars])
        assert edges.min() >= 0 and edges.max() <= records.time_us + 1e-9


def test_activity_is_when_some_pipe_works(run_of: Runs) -> None:
    """Held against every work row of every stage, up to one slot of time."""
    records = records_of(run_of("mla_prolog_v3", "tiny_int8"))
    program = records.program
    data = gantt("title", records)
    slot_us = records.clock.us(-(-records.cycles // SLOTS))
    inside = dict.fromkeys(data.stages, 0)
    for core in range(program.cores):
        for instance, row, instruction in program.walk(core):
            stage = program.stages[program.stage[instance]]
            id_ = int(program.first_id[instance]) + row
            first, last = (records.clock.us(int(t[id_])) for t in (records.start, records.end))
            if instruction.opcode in SYNC_OPCODES or stage == "end" or first == last:
                continue
            pieces = data.activity[data.stages.index(stage)]
            assert any(a - 1e-9 <= first and last <= b + 1e-9 for a, b in pieces)
            inside[stage] += 1
    for stage, (start, end), pieces in zip(data.stages, data.spans, data.activity, strict=True):
        assert bool(pieces) == bool(inside[stage])
        assert all(start - slot_us <= a < b <= end + slot_us for a, b in pieces)
