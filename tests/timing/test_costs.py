"""Costs of each unit against published figures and against sums worked out by hand."""

from collections.abc import Callable

import numpy as np
import pytest
from small_programs import toy_builder

from npusim.chips.load import load_chip
from npusim.chips.model import Chip
from npusim.errors import ChipError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import (
    AccumulatorStart,
    CopyLayout,
    FixpipeMode,
    Opcode,
    Operand,
)
from npusim.isa.patterns import Pattern
from npusim.isa.program import TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.timing.costs import CostTable, cost_table
from npusim.timing.costs.build import memory_limits
from npusim.timing.costs.gm import Path, sharing_factors
from npusim.timing.costs.table import SHARING_LEVELS, USE_ONE
from npusim.timing.memory_layout import L_REFILL, L_REFILL_CYCLES, L_WINDOW, L_WRITE_BACK_USE
from npusim.units import RATE_ONE

Body = Callable[[BlockBuilder], None]
A2 = load_chip("ascend910b1")


def price(
    body: Body, *, kind: CoreKind = CoreKind.AIV, chip: Chip = A2, base: int = 0
) -> CostTable:
    """Costs of a program with one block on one core; GM slot ``x`` starts at ``base``."""
    b = ProgramBuilder.for_chip("costs", chip)
    x = b.tensor("x", DType.FP16, (1 << 22,), TensorKind.INOUT)
    core = b.aic(0) if kind is CoreKind.AIC else b.aiv(0)
    b.place(core, body, stage="body", x=x.address + base)
    return cost_table(b.finish(), chip)


def busy(table: CostTable, opcode: Opcode) -> list[int]:
    """Busy cycles of all rows of an opcode, in order."""
    return [int(c) for c in table.rows["busy"][table.rows["opcode"] == int(opcode)]]


def latency(table: CostTable, opcode: Opcode) -> list[int]:
    """Latencies of all rows of an opcode, in order."""
    return [int(c) for c in table.rows["latency"][table.rows["opcode"] == int(opcode)]]


def ub(dtype: DType, count: int, offset: int = 0) -> Operand:
    return Operand(Space.UB, patterns.linear(dtype, count), offset)


# Cube


def mmad(k: BlockBuilder, m: int, n: int, depth: int, dtype: DType = DType.FP16) -> None:
    k.mmad(
        Operand(Space.L0C, patterns.linear(DType.FP32, m * n)),
        Operand(Space.L0A, patterns.linear(dtype, m * depth)),
        Operand(Space.L0B, patterns.linear(dtype, depth * n)),
        m=m,
        n=n,
        k=depth,
        start=AccumulatorStart.ZERO,
    )


def test_mmad_behind_a_wait_takes_522_cycles_for_512_fractals() -> None:
    """Published: 522 cycles for 128 x 256 x 64 half with flags."""
    table = price(lambda k: mmad(k, 128, 256, 64), kind=CoreKind.AIC)
    assert busy(table, Opcode.MMAD) == [522]
    assert latency(table, Opcode.MMAD) == [23 - 10]


def test_head_of_an_mmad_depends_on_what_comes_before_it_in_its_pipe() -> None:
    def body(k: BlockBuilder) -> None:
        mmad(k, 32, 32, 32)  # first of the block
        mmad(k, 32, 32, 32)  # queued
        k.set_flag(Pipe.CUBE, Pipe.MTE1, 0)
        mmad(k, 32, 32, 32)  # a set does not separate
        k.wait_flag(Pipe.MTE1, Pipe.CUBE, 0)
        mmad(k, 32, 32, 32)
        k.pipe_barrier(Pipe.CUBE)
        k.copy(_at(Space.L0A), _at(Space.L1))  # another pipe
        mmad(k, 32, 32, 32)

    table = price(body, kind=CoreKind.AIC)
    assert busy(table, Opcode.MMAD) == [18, 10, 10, 18, 18]
    assert latency(table, Opcode.MMAD) == [13, 21, 21, 13, 13]


def _at(space: Space, size: int = 512) -> Operand:
    return Operand(space, patterns.linear(DType.UINT8, size))


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "fractal_cycles"),
    [
        (DType.INT8, 128, 256, 64, 256),
        (DType.BF16, 17, 1, 1, 2),
        (DType.FP32, 16, 16, 16, 4),  # K0 8, 2 cycles each
        (DType.BF16, 128, 512, 128, 2048),
    ],
)
def test_fractals(dtype: DType, m: int, n: int, k: int, fractal_cycles: int) -> None:
    table = price(lambda b: mmad(b, m, n, k, dtype), kind=CoreKind.AIC)
    assert busy(table, Opcode.MMAD) == [10 + fractal_cycles]


def test_shortest_mmad() -> None:
    """Measured: 3 cycles for 16 x 16 x 16, queued."""
    table = price(lambda k: (mmad(k, 16, 16, 16), mmad(k, 16, 16, 16)), kind=CoreKind.AIC)
    assert busy(table, Opcode.MMAD)[1] == 3


def test_a_type_the_cube_does_not_multiply() -> None:
    with pytest.raises(ChipError) as error:
        price(lambda k: mmad(k, 16, 16, 32, DType.E4M3FN), kind=CoreKind.AIC)
    assert str(error.value) == (
        "the Cube of this chip does not multiply e4m3fn; it multiplies fp16, bf16, int8, int4, "
        "fp32, hf32"
    )


# MTE1 and FixPipe


def test_loads_from_l1() -> None:
    """Measured: 2 + bytes/256 into L0A, 2 + bytes/128 into L0B, 48 more behind a hand-shake."""

    def body(k: BlockBuilder) -> None:
        k.copy(_at(Space.L0A, 16384), _at(Space.L1, 16384))
        k.copy(_at(Space.L0B, 16384), _at(Space.L1, 16384))
        k.wait_flag(Pipe.CUBE, Pipe.MTE1, 0)
        k.copy(_at(Space.BT, 1024), _at(Space.L1, 1024))
        k.copy(_at(Space.FB, 1024), _at(Space.L1, 1024))

    table = price(body, kind=CoreKind.AIC)
    assert busy(table, Opcode.COPY) == [48 + 2 + 64, 2 + 128, 45 + 32, 45 + 15 + 32]


def fixpipe_cap(dtype: DType, mode: FixpipeMode) -> float:
    """Bytes per cycle of a 128 x 256 tile out of L0C."""

    def body(k: BlockBuilder) -> None:
        tile = Operand(Space.L0C, patterns.linear(DType.FP32, 128 * 256))
        k.fixpipe(k.gm("x", patterns.linear(dtype, 128 * 256)), tile, mode=mode)

    table = price(body, kind=CoreKind.AIC)
    return float(table.classes["cap"][table.accesses["hit_class"][0]] / RATE_ONE)


def test_fixpipe_under_load() -> None:
    """Published: 992 cycles for 128 x 256 fp32 to half, with the latency of the store."""
    moving = 128 * 256 * 2 / fixpipe_cap(DType.FP16, FixpipeMode.F322F16)
    assert 4 + moving + 155 == pytest.approx(992, rel=0.01)
    # 32-bit results are limited by the destination's port (117 B/cycle).
    assert fixpipe_cap(DType.FP32, FixpipeMode.NO_QUANT) == pytest.approx(117, abs=0.01)
    # 8-bit results by what is read out of L0C.
    assert fixpipe_cap(DType.INT8, FixpipeMode.QF322B8_PRE) == pytest.approx(157 / 4, abs=0.01)


# Vector


@pytest.mark.parametrize(
    ("second", "dst", "repeat_cycles", "published"),
    [
        (0x4100, 0x10000, 1.0, 88.4),  # other half of the groups, other bank
        (0x4000, 0x10100, 2.0, 154),  # both sources in the same groups
        (0x4100, 0x8000, 1.8, 139),  # written bank is read
    ],
)
def test_additions_and_bank_conflicts(
    second: int, dst: int, repeat_cycles: float, published: float
) -> None:
    """Published: 1000 additions of 4096 fp32 take 88.4, 154 and 139 cycles each."""
    count = 4096
    table = price(
        lambda k: k.vector(
            Opcode.VADD,
            ub(DType.FP32, count, dst),
            ub(DType.FP32, count, 0),
            ub(DType.FP32, count, second),
        )
    )
    assert busy(table, Opcode.VADD) == [int(np.ceil(64 * repeat_cycles))]
    total = busy(table, Opcode.VADD)[0] + latency(table, Opcode.VADD)[0]
    assert total == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("opcode", "dst", "src", "cycles"),
    [
        (Opcode.VEXP, DType.FP32, DType.FP32, 16 * 2),
        (Opcode.VEXP, DType.FP16, DType.FP16, 8 * 4),
        (Opcode.VCAST, DType.FP32, DType.BF16, 16),
        (Opcode.VCAST, DType.BF16, DType.FP32, 16),
        (Opcode.VCAST, DType.INT8, DType.FP16, 8 * 2),
        (Opcode.VMULS, DType.FP32, DType.FP32, 16),
        (Opcode.VABS, DType.FP16, DType.FP16, 8),
    ],
)
def test_one_source_instructions(opcode: Opcode, dst: DType, src: DType, cycles: int) -> None:
    """1024 elements: cycles per repeat of 256 B of the wider type."""
    args = (0, 0) if opcode is Opcode.VCAST else ()
    scalar = 2.0 if opcode is Opcode.VMULS else None
    table = price(
        lambda k: k.vector(opcode, ub(dst, 1024), ub(src, 1024, 8192), args=args, scalar=scalar)
    )
    assert busy(table, opcode) == [cycles]


def muls(pattern: Pattern) -> int:
    """Busy cycles of a multiplication of fp32 by a scalar, 1 for each repeat."""
    operand = Operand(Space.UB, pattern)
    table = price(lambda k: k.vector(Opcode.VMULS, operand, operand, scalar=2.0))
    return busy(table, Opcode.VMULS)[0]


def test_repeats_of_strided_operands() -> None:
    fp32 = DType.FP32
    assert muls(patterns.nd(fp32, 32, 64, 128)) == 32  # one repeat for each row
    assert muls(patterns.nd(fp32, 32, 32, 128)) == 16  # two rows of 128 B share one
    assert muls(patterns.nd(fp32, 33, 8, 128)) == 5  # eight rows of one block
    assert muls(patterns.nd(fp32, 10, 80, 128)) == 20  # a row begins with a repeat
    assert muls(patterns.linear(fp32, 65)) == 3  # 2 repeats, but the issue floor is 3
    assert muls(patterns.linear(fp32, 640)) == 10


def test_a_broadcast_source_does_not_break_repeats() -> None:
    one = Operand(Space.UB, patterns.pattern(DType.FP32, ((1024, 0),)), 0x8100)
    table = price(
        lambda k: k.vector(Opcode.VMUL, ub(DType.FP32, 1024, 0x10000), ub(DType.FP32, 1024), one)
    )
    assert busy(table, Opcode.VMUL) == [16]


# Scalar unit


def test_scalar_loads_pay_for_new_lines_of_the_data_cache_only() -> None:
    def body(k: BlockBuilder) -> None:
        for i in (0, 1, 7, 8, 0):
            k.scalar_load(k.gm("x", patterns.linear(DType.INT64, 1), 8 * i))

    assert busy(price(body), Opcode.SCALAR_LOAD) == [200, 8, 8, 200, 8]


def test_a_core_keeps_loaded_lines_from_block_to_block() -> None:
    chip = load_chip("toy")
    b = toy_builder("loads")
    x = b.tensor("x", DType.INT64, (64,), TensorKind.CONTROL)

    def body(k: BlockBuilder) -> None:
        k.scalar_load(k.gm("x", patterns.linear(DType.INT64, 1)))

    for core in (1, 2):
        for index in (0, 1, 8):
            b.place(core, body, stage="body", x=x.at(index))
    program = b.finish()
    table = cost_table(program, chip)
    cycles = []
    for instance in range(len(program.block)):
        row = table.rows[table.variant_row_start[table.variant[instance]]]
        if row["opcode"] == int(Opcode.SCALAR_LOAD):
            cycles.append(int(row["busy"]))
    assert cycles == [200, 8, 200, 200, 8, 200]


# GM


def gm_class(
    pattern: Pattern, *, layout: CopyLayout = CopyLayout.PLAIN, base: int = 0, hit: bool = False
) -> tuple[float, float, float]:
    """(port cap in B/cycle, L2 use, HBM use) of a load into L1."""

    def body(k: BlockBuilder) -> None:
        target = Operand(Space.L1, patterns.linear(pattern.dtype, pattern.elements))
        k.copy(target, k.gm("x", pattern), layout=layout)

    table = price(body, kind=CoreKind.AIC, base=base)
    access = table.accesses[0]
    assert access["path"] == Path.GM_L1
    served = table.classes[access["hit_class" if hit else "miss_class"]]
    uses = (served["l2_read_use"] / USE_ONE, served["hbm_use"] / USE_ONE)
    return float(served["cap"] / RATE_ONE), float(uses[0]), float(uses[1])


HALF = DType.FP16
L1_RATE = 1490 / 1410  # what a byte into L1 uses of HBM, relative to one into UB


def test_nz_bursts_are_limited_by_the_port() -> None:
    cap, l2, _ = gm_class(patterns.linear(HALF, 8192), hit=True)
    # 16 KiB in one burst: 1.4 + 16384/113 cycles.
    assert cap == pytest.approx(16384 / (1.4 + 16384 / 113), abs=0.01)
    assert l2 == 1


def test_nd2nz_rows_cost_at_least_their_floor() -> None:
    wide = patterns.nd_in_nz_order(HALF, 64, 256, 4096)
    narrow = patterns.nd_in_nz_order(HALF, 64, 64, 4096)
    cap, l2, _ = gm_class(wide, layout=CopyLayout.ND2NZ, hit=True)
    assert cap == pytest.approx(512 / (1.4 + 512 / 125), abs=0.01)
    assert l2 == 1
    cap, l2, _ = gm_class(narrow, layout=CopyLayout.ND2NZ, hit=True)
    assert cap == pytest.approx(128 / 3.6, abs=0.01)
    assert l2 == 1  # only the 128 B move through L2


def test_nd2nz_rows_inside_a_block_of_32_bytes_go_slower() -> None:
    """Published: all 24 cores of a 910B1 get 47.5 % less of odd rows, of 1410 GB/s."""
    even, odd = (
        gm_class(patterns.nd_in_nz_order(HALF, 64, 256, stride), layout=CopyLayout.ND2NZ, hit=True)
        for stride in (4096, 4097)
    )
    # Rows start 2 B further into a block each time: one of 16 starts with a block.
    mean = (15 * (512 / 17) + (1.4 + 512 / 125)) / 16
    assert odd[0] == pytest.approx(512 / mean, abs=0.01)
    assert even[0] > 5 * odd[0]
    # A tile that starts inside a block, its rows whole blocks apart: all are odd.
    shifted = gm_class(
        patterns.nd_in_nz_order(HALF, 64, 256, 4096), layout=CopyLayout.ND2NZ, base=2, hit=True
    )
    assert shifted[0] == pytest.approx(17, abs=0.01)
    assert 24 * shifted[0] * 1.85 == pytest.approx(0.525 * 1410, rel=0.03)  # GB/s at 1850 MHz


@pytest.mark.parametrize("rate", [1e-3, 58, 1e9])
@pytest.mark.parametrize("latency", [0, 550, 1e9])
def test_the_window_of_reads_in_flight_stays_inside_64_bits(rate: float, latency: float) -> None:
    settings = {"l2.core_miss_bytes_per_cycle": rate, "l2.miss_latency_cycles": latency}
    limits = memory_limits(load_chip("A2", settings))
    assert limits[L_REFILL] == round(rate * RATE_ONE)
    assert limits[L_WINDOW] == limits[L_REFILL] * limits[L_REFILL_CYCLES]
    wanted = round(rate * RATE_ONE) * round(latency)
    if wanted >= 1 << 61:
        wanted = (1 << 61) // int(limits[L_REFILL]) * int(limits[L_REFILL])
    assert limits[L_WINDOW] == wanted


def test_write_back_is_never_free() -> None:
    slow_reads = {"hbm.read_bw_gbps": 0.1, "hbm.write_bw_gbps": 1490}
    assert memory_limits(load_chip("A2", slow_reads))[L_WRITE_BACK_USE] == 1


def test_a_torn_write_is_never_without_a_rate() -> None:
    def body(k: BlockBuilder) -> None:
        k.copy(k.gm("x", patterns.linear(HALF, 1)), Operand(Space.UB, patterns.linear(HALF, 1)))

    table = price(body, chip=load_chip("A2", {"l2.core_miss_bytes_per_cycle": 1e-3}))
    assert table.classes["cap"].min() == 1


def test_misses_are_also_limited_by_the_requests_of_one_core() -> None:
    cap, _, hbm = gm_class(patterns.linear(HALF, 8192))
    assert cap == 58
    assert hbm == pytest.approx((1 + 22 / 16384) * L1_RATE, abs=0.001)


def test_unaligned_rows_use_more_of_hbm() -> None:
    aligned = gm_class(patterns.nd(HALF, 16, 1024, 2048))[2]
    shifted = gm_class(patterns.nd(HALF, 16, 1024, 2048), base=32)[2]
    assert aligned == pytest.approx((1 + 22 / 2048) * L1_RATE, abs=0.001)
    # Half the rate, and 5 lines for the bytes of 4.
    assert shifted == pytest.approx(2 * 1.25 * (1 + 22 / 2048) * L1_RATE, abs=0.002)


def test_a_short_row_on_its_own_boundary_is_aligned() -> None:
    rows = gm_class(patterns.nd(HALF, 16, 64, 2048), base=128)[2]
    # Each 128 B fetch a line; short rows reach 1 / (1 + 22/128) of the rate.
    assert rows == pytest.approx(4 * (1 + 22 / 128) * L1_RATE, abs=0.002)


@pytest.mark.parametrize("columns", [64, 256])
def test_sharers_of_a_line_wait_for_each_other_however_little_they_read(columns: int) -> None:
    pattern = patterns.nd_in_nz_order(HALF, 64, columns, 4096)

    def body(k: BlockBuilder) -> None:
        target = Operand(Space.L1, patterns.linear(HALF, pattern.elements))
        k.copy(target, k.gm("x", pattern), layout=CopyLayout.ND2NZ)

    table = price(body, kind=CoreKind.AIC)
    first = table.accesses[0]["hit_class"]
    row_bytes = 2 * columns
    for level, factor in enumerate(sharing_factors(A2)):
        cycles = table.classes[first + level]["l2_read_use"] / USE_ONE * row_bytes
        assert cycles == pytest.approx(row_bytes + 512 * (factor - 1), abs=0.2)


def test_many_cores_on_one_tile() -> None:
    """Published: 3.5 to 3.8 TB/s for 5 cores on a tile and 2.5 for 24, 6.0 for one."""
    factors = sharing_factors(A2)
    first, again = factors[:SHARING_LEVELS], factors[SHARING_LEVELS:]

    def total(cores: int) -> float:
        use = sum(first[(k - 1).bit_length()] for k in range(1, cores + 1))
        return 6.0 * cores / use

    assert total(1) == 6.0
    assert total(5) == pytest.approx(3.65, rel=0.04)
    assert total(24) == pytest.approx(2.5, rel=0.06)
    assert first == sorted(first)
    assert again == sorted(again)
    # All of 16 cores reading again cost about what they cost at first: half the powers' spread.
    assert 16 * again[4] == pytest.approx(16 * 6.0 / total(16), rel=2**0.14 - 1)
