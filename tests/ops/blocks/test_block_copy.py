"""Copies through UB and through L1."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program
from npusim.ops.common.operator import Validity
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
def test_ragged_rows(check_block: Check, dtype: str) -> None:
    raw = {"rows": 37, "cols": 101, "row_stride": 131, "dtype": dtype}
    check_block("copy", raw, tiling={"tile_rows": 5, "tile_cols": 48})


@pytest.mark.parametrize(
    ("cols", "stride", "copies"),
    [
        (31, 48, 2 * 6),  # cut out of longer rows, ends inside a block: row by row
        (32, 48, 2),  # whole blocks
        (31, 31, 2),  # not cut
    ],
)
def test_ragged_slices_go_row_by_row(
    check_block: Check, cols: int, stride: int, copies: int
) -> None:
    raw = {"rows": 6, "cols": cols, "row_stride": stride}
    program = check_block("copy", raw, tiling={"tile_rows": 6, "tile_cols": cols})
    assert sum((b.rows["opcode"] == Opcode.COPY).sum() for b in program.blocks) == copies


@lenient
@given(
    rows=st.integers(1, 40),
    cols=st.integers(1, 90),
    gap=st.integers(0, 9),
    tile_rows=st.integers(1, 9),
    tile_cols=st.integers(1, 90),
    buffers=st.integers(1, 4),
    seed=st.integers(0, 3),
)
def test_any_tile_gives_the_same_copy(
    check_block: Check,
    rows: int,
    cols: int,
    gap: int,
    tile_rows: int,
    tile_cols: int,
    buffers: int,
    seed: int,
) -> None:
    check_block(
        "copy",
        {"rows": rows, "cols": cols, "row_stride": cols + gap},
        tiling={"tile_rows": tile_rows, "tile_cols": tile_cols, "buffers": buffers},
        seed=seed,
    )


@lenient
@given(
    rows=st.integers(1, 40),
    blocks=st.integers(1, 5),
    gap=st.integers(0, 9),
    layout=st.sampled_from(["nd2nz", "plain"]),
    dtype=st.sampled_from(["fp16", "int8", "fp32"]),
    tile_rows=st.integers(1, 20),
    tile_blocks=st.integers(1, 5),
)
def test_through_l1(
    check_block: Check,
    rows: int,
    blocks: int,
    gap: int,
    layout: str,
    dtype: str,
    tile_rows: int,
    tile_blocks: int,
) -> None:
    c0 = {"fp16": 16, "int8": 32, "fp32": 8}[dtype]
    cols = blocks * c0
    check_block(
        "copy_l1",
        {"rows": rows, "cols": cols, "row_stride": cols + gap, "layout": layout, "dtype": dtype},
        tiling={"tile_rows": tile_rows, "tile_cols": tile_blocks * c0},
    )


@pytest.mark.parametrize("op", ["copy", "copy_l1"])
def test_reads_without_a_result_read_every_row(check_block: Check, op: str) -> None:
    program = check_block(op, {"rows": 64, "cols": 64, "store": False, "repeats": 3})
    assert copied_elements(program) == 3 * 64 * 64
    cores = 2 if op == "copy" else 1
    program = check_block(op, {"rows": 64, "cols": 64, "store": False, "stagger": True})
    assert copied_elements(program) == cores * 64 * 64


def copied_elements(program: Program) -> int:
    return sum(
        what.srcs[0].pattern.elements
        for core in range(program.cores)
        for _, _, what in program.walk(core)
        if what.opcode is Opcode.COPY
    )


def test_all_cores_of_a_real_chip(check_block: Check) -> None:
    program = check_block("copy", {"rows": 500, "cols": 999}, chip="A2", orders=0)
    assert len(set(program.core.tolist())) >= 45


def message(op: str, raw: dict[str, object], tiling: dict[str, object] | None = None) -> str:
    chip = load_chip("toy")
    found = operator(op)
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    assert message("copy", {"row": 3}) == ("copy has no parameter 'row'; near matches: rows")
    assert message("copy", {"rows": 0}) == (
        "copy: rows is 0, it must be a whole number from 1 to 2147483647"
    )
    assert message("copy", {"rows": "many"}) == (
        "copy: rows is 'many', it must be a whole number from 1 to 2147483647"
    )
    assert message("copy", {"dtype": "fp8"}) == (
        "copy: dtype is 'fp8', it must be one of: fp32, fp16, bf16, int8"
    )
    assert message("copy", {"cols": 64, "row_stride": 32}) == (
        "copy: row_stride 32 is below cols 64; rows would overlap"
    )
    assert message("copy", {"shared": True}) == (
        "copy: cores that share all of x cannot all write y; set store=false"
    )
    assert message("copy", {}, {"tile_row": 3}) == (
        "copy tiling has no knob 'tile_row'; near matches: tile_rows, tile_cols"
    )
    assert message("copy", {}, {"tile_rows": 0}) == (
        "copy tiling: tile_rows is 0, it must be a whole number from 1 on"
    )
    assert message("copy", {}, {"tile_rows": 20, "tile_cols": 256}) == (
        "copy tiling: 2 buffers of 10240 B need 20480 B of UB, 16384 B available; use a smaller "
        "tile or fewer buffers"
    )
    assert message("copy", {}, {"cores": 3}) == "copy tiling: cores is 3, chip toy has 2 AIV"
    assert message("copy_l1", {"cols": 40}) == (
        "copy_l1: cols is 40, it must be a multiple of 16: L1 holds whole 32-byte rows of fp16"
    )
    assert message("copy_l1", {}, {"tile_cols": 24}) == (
        "copy_l1 tiling: tile_cols is 24, it must be a multiple of 16 (32 bytes)"
    )
    assert message("copy_l1", {}, {"tile_rows": 128, "tile_cols": 256}) == (
        "copy_l1 tiling: 2 buffers of 65536 B need 131072 B of L1, 65536 B available; use a "
        "smaller tile or fewer buffers"
    )


def test_unknown_operator() -> None:
    with pytest.raises(ParameterError) as caught:
        operator("copyl1")
    assert str(caught.value) == "no operator 'copyl1'; near matches: copy_l1, copy"
