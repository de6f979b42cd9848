"""The matmul against whole matrices, its tiling and its order of tiles."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusim.chips.load import load_chip
from npusim.errors import CapacityError, ParameterError
from npusim.isa.instructions import Opcode
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import Pipe, Space
from npusim.numerics.layouts import to_nz
from npusim.ops.common.operator import Validity
from npusim.ops.common.tile_order import Split, deal, swizzled
from npusim.ops.registry import operator

Check = Callable[..., Program]
lenient = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int8"])
@pytest.mark.parametrize("b_format", ["nd", "nz"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 128), (1, 17, 33), (50, 70, 90)])
def test_small_sizes(check_block: Check, dtype: str, b_format: str, m: int, n: int, k: int) -> None:
    raw = {"M": m, "N": n, "K": k, "dtype": dtype, "b_format": b_format}
    check_block("matmul", raw, orders=2)


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "int8"])
@pytest.mark.parametrize(("ta", "tb"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("b_format", ["nd", "nz"])
def test_transposed_operands(
    check_block: Check, dtype: str, ta: bool, tb: bool, b_format: str
) -> None:
    raw = {"M": 45, "N": 50, "K": 77, "dtype": dtype, "b_format": b_format}
    check_block("matmul", {**raw, "transpose_a": ta, "transpose_b": tb})


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_fp32_result(check_block: Check, dtype: str) -> None:
    check_block("matmul", {"M": 33, "N": 65, "K": 100, "dtype": dtype, "out": "fp32"})


@lenient
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(1, 130),
    base_m=st.sampled_from([16, 32, 48]),
    base_n=st.sampled_from([16, 32, 64]),
    base_k=st.sampled_from([16, 32]),
    step_k=st.integers(1, 3),
    step_kb=st.integers(1, 3),
    passes=st.integers(1, 3),
    preload=st.booleans(),
    across=st.booleans(),
    unit_flag=st.booleans(),
    l1_buffers=st.integers(1, 3),
    l0c_buffers=st.integers(1, 2),
    swizzle=st.integers(1, 4),
    split=st.sampled_from(["interleaved", "blocks"]),
    transposed=st.booleans(),
)
def test_any_tiling_gives_the_same_bits(check_block: Check, transposed: bool, **k: Any) -> None:
    raw = {"M": k.pop("m"), "N": k.pop("n"), "K": k.pop("k"), "transpose_b": transposed}
    if k["base_m"] * k["base_n"] * 4 * k["l0c_buffers"] > 16384:
        k["l0c_buffers"] = 1
    k["across"] |= k["l1_buffers"] > 2  # no event is left
    check_block("matmul", raw, tiling=k)


@lenient
@given(m=st.integers(1, 300), n=st.integers(1, 300), k=st.integers(1, 200))
def test_default_tilings(check_block: Check, m: int, n: int, k: int) -> None:
    check_block("matmul", {"M": m, "N": n, "K": k}, chip="A2", orders=0)


# One row of tiles: 14 cores that read whole lines finish before 23 that do not.
@pytest.mark.parametrize(
    ("m", "n", "k", "least"), [(1024, 1024, 1024, 20), (16, 7168, 2048, 14), (4096, 256, 512, 20)]
)
def test_default_tilings_use_most_cores(m: int, n: int, k: int, least: int) -> None:
    found, chip = operator("matmul"), load_chip("A2")
    params = found.parse({"M": m, "N": n, "K": k}, chip, Validity.DOCUMENTED)
    program = found.build(params, found.tiling(params, chip, {}), chip, {})
    assert len(set(program.core.tolist())) >= least


def test_cores_get_equal_squarest_rectangles_where_the_tiles_allow_it() -> None:
    """The grid of published tuned kernels: 4 x 6 cores for square matrices on 24."""
    found, chip = operator("matmul"), load_chip("A2")
    for side in (1536, 3072, 6144):
        params = found.parse({"M": side, "N": side, "K": side}, chip, Validity.DOCUMENTED)
        tiling = found.tiling(params, chip, {"base_m": 128, "base_n": 256})
        assert (tiling.split, tiling.down) == (Split.BLOCKS, 4)
    params = found.parse({"M": 4096, "N": 4096, "K": 512}, chip, Validity.DOCUMENTED)
    tiling = found.tiling(params, chip, {"base_m": 128, "base_n": 256})
    assert tiling.split is Split.INTERLEAVED


def test_what_is_needed_first_is_loaded_first() -> None:
    """A in chunks of 4 steps, B of 2: MTE2 must not bring A's next chunk before B's."""
    found, chip = operator("matmul"), load_chip("A2")
    params = found.parse({"M": 32, "N": 64, "K": 256}, chip, Validity.DOCUMENTED)
    knobs = {"base_m": 32, "base_n": 64, "base_k": 16, "step_k": 4, "step_kb": 2, "cores": 1}
    program = found.build(params, found.tiling(params, chip, knobs), chip, {})
    slots = [
        what.srcs[0].slot
        for _, _, what in program.walk(0)
        if what.opcode is Opcode.COPY and what.dst is not None and what.dst.space is Space.L1
    ]
    assert slots[:8] == ["next_a", "next_b", "b", "a", "b", "b", "a", "b"]


@pytest.mark.parametrize(
    ("n", "knobs", "flagged"),
    [
        (512, {}, False),
        (512, {"unit_flag": False}, True),
        (520, {}, True),  # a store of odd columns is two FIXPIPEs
        (512, {"base_n": 128, "l0c_buffers": 2}, True),
    ],
)
def test_a_single_accumulator_changes_hands_by_unit_flag(
    n: int, knobs: dict[str, Any], flagged: bool
) -> None:
    found, chip = operator("matmul"), load_chip("A2")
    params = found.parse({"M": 256, "N": n, "K": 128}, chip, Validity.DOCUMENTED)
    tiling = found.tiling(params, chip, {"base_m": 128, "base_n": 256, "cores": 1, **knobs})
    rows = [what for _, _, what in found.build(params, tiling, chip, {}).walk(0)]
    units = {w.args["unit_flag"] for w in rows if w.opcode in (Opcode.MMAD, Opcode.FIXPIPE)}
    events = [
        w
        for w in rows
        if w.opcode is Opcode.SET_FLAG
        and {w.args["src_pipe"], w.args["dst_pipe"]} == {Pipe.CUBE, Pipe.FIXP}
    ]
    assert (units, bool(events)) == ({int(not flagged)}, flagged)


@lenient
@given(
    m=st.integers(1, 100),
    n=st.integers(1, 100),
    k=st.integers(1, 150),
    dtype=st.sampled_from(["fp16", "fp32", "int8"]),
    transposed=st.tuples(st.booleans(), st.booleans()),
    which=st.sampled_from([(True, False), (False, True), (True, True)]),
    unit_flag=st.booleans(),
)
def test_operands_may_be_rearranged_first(
    check_block: Check,
    m: int,
    n: int,
    k: int,
    dtype: str,
    transposed: tuple[bool, bool],
    which: tuple[bool, bool],
    unit_flag: bool,
) -> None:
    raw = {"M": m, "N": n, "K": k, "dtype": dtype}
    raw |= {"transpose_a": transposed[0], "transpose_b": transposed[1]}
    knobs = {"rearrange_a": which[0], "rearrange_b": which[1], "unit_flag": unit_flag}
    program = check_block("matmul", raw, tiling=knobs)
    moved = {t.name for t in program.tensors if t.kind is TensorKind.WORKSPACE}
    assert moved == {f"{x}_nz" for x, moves in zip("ab", which, strict=True) if moves}


def test_vector_cores_without_a_tile_help_to_rearrange(check_block: Check) -> None:
    raw = {"M": 16, "N": 32, "K": 3000}
    tiling = {"rearrange_b": True, "base_n": 32}
    program = check_block("matmul", raw, chip="A2", tiling=tiling, orders=0)
    used = set(program.core.tolist())
    assert (min(used), len(used)) == (0, 1 + 48)


@pytest.mark.parametrize(("m", "n", "rows"), [(128, 256, 2), (256, 128, 12)])
def test_few_cores_share_a_tile_of_the_larger_operand(m: int, n: int, rows: int) -> None:
    found, chip = operator("matmul"), load_chip("A2")
    params = found.parse({"M": 4096, "N": 4096, "K": 512}, chip, Validity.DOCUMENTED)
    tiling = found.tiling(params, chip, {"base_m": m, "base_n": n})
    assert (tiling.split, tiling.swizzle) == (Split.INTERLEAVED, rows)


def test_a_tile_that_does_not_load_ahead_waits_for_the_one_before() -> None:
    found, chip = operator("matmul"), load_chip("A2")
    params = found.parse({"M": 256, "N": 256, "K": 512}, chip, Validity.DOCUMENTED)
    waits = {}
    for across in (True, False):
        knobs = {"base_m": 128, "base_n": 256, "cores": 1, "across": across}
        program = found.build(params, found.tiling(params, chip, knobs), chip, {})
        events = [
            what.args["event"]
            for _, _, what in program.walk(0)
            if what.opcode is Opcode.WAIT_FLAG
            and (what.args["src_pipe"], what.args["dst_pipe"]) == (Pipe.MTE1, Pipe.MTE2)
        ]
        waits[across] = Counter(events)
    assert waits[False] - waits[True] == {6: 3}  # two tiles, and the end


def test_nz_weights_may_be_given_as_such(check_block: Check) -> None:
    raw = {"M": 20, "N": 40, "K": 50, "dtype": "bf16", "b_format": "nz"}
    found, chip = operator("matmul"), load_chip("toy")
    params = found.parse(raw, chip, Validity.DOCUMENTED)
    b = found.make_inputs(params, 0, frozenset({"b"}))["b"]
    check_block("matmul", raw, inputs={"b": to_nz(b, params.dtype)})


def test_macs_are_those_of_the_product(check_block: Check) -> None:
    program = check_block("matmul", {"M": 70, "N": 90, "K": 110})
    macs = sum(
        what.args["m"] * what.args["n"] * what.args["k"]
        for core in range(program.cores)
        for _, _, what in program.walk(core)
        if what.opcode is Opcode.MMAD
    )
    assert macs == 70 * 90 * 110


def test_a_large_cube_is_a_few_thousand_instances() -> None:
    found, chip = operator("matmul"), load_chip("A3")
    params = found.parse({"M": 8192, "N": 8192, "K": 8192}, chip, Validity.DOCUMENTED)
    program = found.build(params, found.tiling(params, chip, {}), chip, {})
    assert len(program.block) < 4000
    assert len(program.blocks) < 40


@pytest.mark.parametrize("split", Split)
@settings(deadline=None)
@given(
    m=st.integers(1, 12),
    n=st.integers(1, 12),
    cores=st.integers(1, 25),
    group=st.integers(1, 5),
    passes=st.integers(1, 4),
)
def test_every_tile_is_dealt_once(
    split: Split, m: int, n: int, cores: int, group: int, passes: int
) -> None:
    dealt = deal(split, m, n, cores, group, passes)
    assert len(dealt) == cores
    counts = Counter(tile for tiles in dealt for tile in tiles)
    assert counts == Counter({(i, j): 1 for i in range(m) for j in range(n)})


def test_swizzled_order_walks_bands_back_and_forth() -> None:
    assert swizzled(3, 3, 2) == [
        (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0),
    ]  # fmt: skip


def message(raw: dict[str, Any], tiling: dict[str, Any] | None = None) -> str:
    chip, found = load_chip("A2"), operator("matmul")
    with pytest.raises((ParameterError, CapacityError)) as caught:
        params = found.parse(raw, chip, Validity.DOCUMENTED)
        found.tiling(params, chip, tiling or {})
    return str(caught.value)


def test_messages() -> None:
    cube = {"M": 1024, "N": 1024, "K": 1024}
    assert message({"m": 4}) == "matmul has no parameter 'm'; known: " + ", ".join(
        operator("matmul").defaults
    )
    assert message({**cube, "dtype": "int8", "out": "fp16"}) == (
        "matmul: out is fp16, int8 operands give: int32"
    )
    assert message({"transpose_a": 1}) == "matmul: transpose_a is 1, it must be true or false"
    assert message(cube, {"base_m": 100}) == (
        "matmul tiling: base_m is 100, it must be a multiple of 16 up to 4080"
    )
    assert message(cube, {"base_m": 256, "base_n": 256}) == (
        "matmul tiling: 1 x base_m 256 x base_n 256 needs 262144 B of L0C, 131072 B available; "
        "use smaller base sizes or fewer buffers"
    )
    assert message(cube, {"base_m": 128, "base_n": 256, "base_k": 128, "step_k": 1}) == (
        "matmul tiling: 2 x base_n 256 x base_k 128 needs 131072 B of L0B, 65536 B available; "
        "use smaller base sizes or fewer buffers"
    )
    assert message(cube, {"base_m": 256, "base_n": 128, "base_k": 256, "step_k": 1}) == (
        "matmul tiling: 2 x base_m 256 x base_k 256 needs 262144 B of L0A, 65536 B available; "
        "use smaller base sizes or fewer buffers"
    )
    assert message(cube, {"base_m": 128, "base_n": 256, "base_k": 64, "step_k": 8}) == (
        "matmul tiling: 2 x (base_m 128 x 512 of K + base_n 256 x 512 of K) needs 786432 B of L1, "
        "524288 B available; use smaller base sizes or fewer buffers"
    )
    assert message(cube, {"l1_buffers": 5}) == (
        "matmul tiling: 5 L1 and 1 L0C buffers; 8 events allow 4 and 8"
    )
    assert message(cube, {"across": False, "l1_buffers": 3}) == (
        "matmul tiling: across=false takes one more event, 3 L1 buffers leave none; use fewer"
    )
    assert message(cube, {"split": "random"}) == (
        "matmul tiling: split is 'random', it must be one of: interleaved, blocks"
    )
    assert message(cube, {"cores": 25}) == (
        "matmul tiling: cores is 25, chip ascend910b2 has 24 AIC"
    )


def test_subnormals_and_infinities_pass_through(check_block: Check) -> None:
    a = np.array([[6e-8, np.inf, 1.0], [65504.0, 0.0, np.nan]], np.float16)
    b = np.array([[1.0, 65504.0], [0.0, 1.0], [2.0, 2.0]], np.float16)
    check_block("matmul", {"M": 2, "N": 2, "K": 3}, inputs={"a": a, "b": b})
