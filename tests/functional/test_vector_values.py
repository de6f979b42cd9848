"""Every vector opcode on UB, against arithmetic written out here."""

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest

from npusim.errors import ProgramError
from npusim.functional import run_program
from npusim.functional.vector import PREPARE
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import VECTOR_OPCODES, Opcode, Relation
from npusim.isa.patterns import Pattern, broadcast_rows, linear, nd
from npusim.isa.program import TensorKind
from npusim.isa.spaces import CoreKind, Space
from npusim.numerics.formats import Array, DType, dtype_of
from npusim.numerics.model import NumericsModel
from npusim.numerics.rounding import Rounding

New = Callable[[], ProgramBuilder]
Patterns = tuple[Pattern, ...]


def compute(
    k: BlockBuilder,
    areas: tuple[Buffer, ...],
    whole: Patterns,
    patterns: Patterns,
    opcode: Opcode,
    args: tuple[int, ...],
    scalar: float | None,
) -> None:
    """Load all areas (the destination first), one instruction, store the destination."""
    for i, (area, pattern) in enumerate(zip(areas, whole, strict=True)):
        k.copy(area.at(pattern), k.gm(f"t{i}", pattern))
    k.barrier_all()
    operands = [area.at(p) for area, p in zip(areas, patterns, strict=True)]
    k.vector(opcode, operands[0], *operands[1:], args=args, scalar=scalar)
    k.barrier_all()
    k.copy(k.gm("t0", whole[0]), areas[0].at(whole[0]))


def run(
    builder: ProgramBuilder,
    model: NumericsModel,
    opcode: Opcode,
    arrays: Sequence[Array],
    patterns: Sequence[Pattern] | None = None,
    args: tuple[int, ...] = (),
    scalar: float | None = None,
) -> Array:
    """The destination (arrays[0]) after one instruction."""
    kinds = [TensorKind.INOUT] + [TensorKind.INPUT] * (len(arrays) - 1)
    gm = [
        builder.tensor(f"t{i}", dtype_of(a.dtype), a.shape, kind)
        for i, (a, kind) in enumerate(zip(arrays, kinds, strict=True))
    ]
    memory = builder.memory(CoreKind.AIV)
    areas = tuple(memory.alloc(t.name, Space.UB, t.size_bytes) for t in gm)
    whole = tuple(linear(t.dtype, a.size) for t, a in zip(gm, arrays, strict=True))
    builder.place(
        builder.aiv(0),
        compute,
        (areas, whole, tuple(patterns or whole), opcode, args, scalar),
        stage="s",
        **{t.name: t.address for t in gm},
    )
    program = builder.finish()
    return run_program(program, {f"t{i}": a for i, a in enumerate(arrays)}, model=model)["t0"]


X = np.array([1.5, -2.25, 0.1, 3e10, -7.0, 2.0, 8.0, 0.3], np.float32)
Y = np.array([0.7, 3.0, -0.1, 3e10, 2.0, 0.5, -8.0, 3.0], np.float32)
Z = np.zeros(8, np.float32)


def test_every_vector_opcode_has_a_meaning() -> None:
    assert set(PREPARE) == VECTOR_OPCODES


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (Opcode.VADD, X + Y),
        (Opcode.VSUB, X - Y),
        (Opcode.VMUL, X * Y),
        (Opcode.VDIV, X / Y),
        (Opcode.VMAX, [1.5, 3.0, 0.1, 3e10, 2.0, 2.0, 8.0, 3.0]),
        (Opcode.VMIN, [0.7, -2.25, -0.1, 3e10, -7.0, 0.5, -8.0, 0.3]),
    ],
)
def test_binary(new_builder: New, model: NumericsModel, opcode: Opcode, expected: Array) -> None:
    got = run(new_builder(), model, opcode, [Z, X, Y])
    np.testing.assert_array_equal(got, np.asarray(expected, np.float32))


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (Opcode.VADDS, X + np.float32(0.1)),
        (Opcode.VMULS, X * np.float32(0.1)),
        (Opcode.VMAXS, np.maximum(X, np.float32(0.1))),
        (Opcode.VMINS, np.minimum(X, np.float32(0.1))),
    ],
)
def test_scalar_is_rounded_to_the_element_type(
    new_builder: New, model: NumericsModel, opcode: Opcode, expected: Array
) -> None:
    got = run(new_builder(), model, opcode, [Z, X], scalar=0.1)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("opcode", "x", "expected"),
    [
        (Opcode.VABS, -2.5, 2.5),
        (Opcode.VRELU, -2.5, 0.0),
        (Opcode.VEXP, 0.0, 1.0),
        (Opcode.VLN, 1.0, 0.0),
        (Opcode.VSQRT, 2.25, 1.5),
        (Opcode.VRSQRT, 4.0, 0.5),
        (Opcode.VREC, -4.0, -0.25),
    ],
)
def test_unary(
    new_builder: New, model: NumericsModel, opcode: Opcode, x: float, expected: float
) -> None:
    got = run(new_builder(), model, opcode, [Z, np.full(8, x, np.float32)])
    np.testing.assert_array_equal(got, np.asarray(expected, np.float32))


def test_multiply_add_rounds_twice_on_2201(new_builder: New, model: NumericsModel) -> None:
    x = np.full(8, 1 + 2**-12, np.float32)
    c = np.full(8, -1.0, np.float32)
    # x * x = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11 before the add.
    np.testing.assert_array_equal(run(new_builder(), model, Opcode.VMADD, [c, x, x]), 2.0**-11)
    got = run(new_builder(), model, Opcode.VAXPY, [c, x], scalar=1 + 2**-12)
    np.testing.assert_array_equal(got, 2.0**-11)


def test_casts(new_builder: New, model: NumericsModel) -> None:
    half = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1.49, 7.5, -7.51], np.float32)
    integers = np.zeros(8, np.int32)
    got = run(new_builder(), model, Opcode.VCAST, [integers, half], args=(Rounding.RINT, 0))
    np.testing.assert_array_equal(got, [0, 2, 2, 0, -2, 1, 8, -8])
    got = run(new_builder(), model, Opcode.VCAST, [integers, half], args=(Rounding.ROUND, 0))
    np.testing.assert_array_equal(got, [1, 2, 3, -1, -2, 1, 8, -8])
    got = run(new_builder(), model, Opcode.VCAST, [Z, half], args=(Rounding.TRUNC, 0))
    np.testing.assert_array_equal(got, [0, 1, 2, 0, -1, 1, 7, -7])


def test_int32_to_fp16_has_scale_one(new_builder: New, model: NumericsModel) -> None:
    x = np.array([2049, -7, 65504, 0], np.int32)
    got = run(
        new_builder(), model, Opcode.VCAST, [np.zeros(4, np.float16), x], args=(Rounding.NONE, 0)
    )
    np.testing.assert_array_equal(got, np.array([2048, -7, 65504, 0], np.float16))


def test_a_saturating_cast(new_builder: New, model: NumericsModel) -> None:
    x = np.full(8, 1e6, np.float32)
    y = np.zeros(8, np.float16)
    plain = run(new_builder(), model, Opcode.VCAST, [y, x], args=(Rounding.RINT, 0))
    clamped = run(new_builder(), model, Opcode.VCAST, [y, x], args=(Rounding.RINT, 1))
    assert np.isinf(plain).all()
    np.testing.assert_array_equal(clamped, np.float16(65504))


def test_fill_and_block_broadcast(new_builder: New, model: NumericsModel) -> None:
    got = run(new_builder(), model, Opcode.VDUP, [np.zeros(16, ml_dtypes.bfloat16)], scalar=1.25)
    np.testing.assert_array_equal(got.astype(np.float32), 1.25)
    got = run(new_builder(), model, Opcode.VBRCB, [np.zeros(64, np.float32), X])
    np.testing.assert_array_equal(got, np.repeat(X, 8))


def test_moves_pair_in_iteration_order(new_builder: New, model: NumericsModel) -> None:
    x = np.arange(256, dtype=np.float16).reshape(16, 16)
    across = Pattern(DType.FP16, ((16, 1), (16, 16)))
    got = run(
        new_builder(),
        model,
        Opcode.VTRANSPOSE,
        [np.zeros((16, 16), np.float16), x],
        [linear(DType.FP16, 256), across],
    )
    np.testing.assert_array_equal(got, x.T)
    odd = Pattern(DType.FP16, ((128, 2),))
    got = run(
        new_builder(),
        model,
        Opcode.VREDUCE_PATTERN,
        [np.zeros(128, np.float16), x],
        [linear(DType.FP16, 128), odd],
    )
    np.testing.assert_array_equal(got, x.ravel()[::2])
    got = run(new_builder(), model, Opcode.VCOPY, [Z, X])
    np.testing.assert_array_equal(got, X)


def test_a_row_broadcast_over_rows(new_builder: New, model: NumericsModel) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    got = run(
        new_builder(),
        model,
        Opcode.VADD,
        [np.zeros((4, 8), np.float32), x, X],
        [nd(DType.FP32, 4, 8), nd(DType.FP32, 4, 8), broadcast_rows(DType.FP32, 4, 8)],
    )
    np.testing.assert_array_equal(got, x + X)


def test_a_destination_of_stride_0_accumulates_in_order(
    new_builder: New, model: NumericsModel
) -> None:
    x = np.array([[2**24] * 8, [1] * 8, [1] * 8, [-(2**24)] * 8], np.float32)
    same = Pattern(DType.FP32, ((4, 0), (8, 1)))
    got = run(
        new_builder(),
        model,
        Opcode.VADD,
        [np.zeros(8, np.float32), x, np.zeros(8, np.float32)],
        [same, linear(DType.FP32, 32), same],
    )
    # Not a sum: src1 is another area, so only the last repeat is left.
    np.testing.assert_array_equal(got, -(2.0**24))
    builder = new_builder()
    source = builder.tensor("x", DType.FP32, (4, 8), TensorKind.INPUT)
    sums = builder.tensor("y", DType.FP32, (8,), TensorKind.OUTPUT)
    area = builder.memory(CoreKind.AIV).alloc("area", Space.UB, 256)
    bases = {"x": source.address, "y": sums.address}
    builder.place(builder.aiv(0), column_sums, (area,), stage="s", **bases)
    got = run_program(builder.finish(), {"x": x}, model=model)["y"]
    # ((2^24 + 1) + 1) - 2^24 loses both ones.
    np.testing.assert_array_equal(got, 0.0)


def column_sums(k: BlockBuilder, area: Buffer) -> None:
    acc = area.at(Pattern(DType.FP32, ((4, 0), (8, 1))), 128)
    rows = area.linear(DType.FP32, 32)
    k.copy(rows, k.gm("x", linear(DType.FP32, 32)))
    k.vector(Opcode.VDUP, area.linear(DType.FP32, 8, 128), scalar=0.0)
    k.barrier_all()
    k.vector(Opcode.VADD, acc, rows, acc)
    k.barrier_all()
    k.copy(k.gm("y", linear(DType.FP32, 8)), area.linear(DType.FP32, 8, 128))


# Adjacent pairs: 1 + 2^-24 loses the small term, 2^-24 + 2^-24 keeps both.
PAIRS = np.array([1, 2**-24, 2**-24, 2**-24] + [0.0] * 60, np.float32)


@pytest.mark.parametrize(
    ("opcode", "x", "groups", "expected"),
    [
        (Opcode.VCADD, PAIRS, 1, [np.float32(1) + np.float32(2**-23)]),
        (Opcode.VCGADD, PAIRS, 8, [np.float32(1) + np.float32(2**-23)] + [0.0] * 7),
        (Opcode.VCADD, np.ones(16, np.float32), 2, [8.0, 8.0]),
        (Opcode.VCMAX, X, 1, [3e10]),
        (Opcode.VCMIN, X, 1, [-7.0]),
        (Opcode.VCGMAX, np.concatenate([X, -X]), 2, [3e10, 7.0]),
        (Opcode.VCGMIN, np.concatenate([X, -X]), 2, [-7.0, -3e10]),
        (Opcode.VCPADD, np.arange(8, dtype=np.float32), 4, [1.0, 5.0, 9.0, 13.0]),
    ],
)
def test_reductions(
    new_builder: New,
    model: NumericsModel,
    opcode: Opcode,
    x: Array,
    groups: int,
    expected: list[float],
) -> None:
    got = run(new_builder(), model, opcode, [np.zeros(groups, np.float32), x])
    np.testing.assert_array_equal(got, np.asarray(expected, np.float32))


def test_a_reduction_of_more_than_a_repeat_is_refused(
    new_builder: New, model: NumericsModel
) -> None:
    with pytest.raises(ProgramError) as caught:
        run(new_builder(), model, Opcode.VCADD, [np.zeros(1, np.float32), np.zeros(65, np.float32)])
    where, _, what = str(caught.value).partition(": ")
    assert where.startswith("block compute row ") and "VCADD at test_vector_values.py:" in where
    assert what == "65 elements into 1 results; each result takes 1 to 64 elements of FP32"


def test_logic(new_builder: New, model: NumericsModel) -> None:
    x = np.array([0b1100] * 16, np.uint16)
    y = np.array([0b1010] * 16, np.uint16)
    z = np.zeros(16, np.uint16)
    assert run(new_builder(), model, Opcode.VAND, [z, x, y])[0] == 0b1000
    assert run(new_builder(), model, Opcode.VOR, [z, x, y])[0] == 0b1110
    assert run(new_builder(), model, Opcode.VNOT, [z, x])[0] == 0xFFF3


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        (Relation.LT, [1, 0, 0, 0]),
        (Relation.GT, [0, 1, 0, 0]),
        (Relation.EQ, [0, 0, 1, 0]),
        (Relation.LE, [1, 0, 1, 0]),
        (Relation.GE, [0, 1, 1, 0]),
        (Relation.NE, [1, 1, 0, 1]),
    ],
)
def test_compare_and_select(
    new_builder: New, model: NumericsModel, relation: Relation, expected: list[int]
) -> None:
    x = np.array([1, 2, 3, np.nan], np.float32)
    y = np.array([2, 1, 3, 0], np.float32)
    mask = run(new_builder(), model, Opcode.VCMP, [np.zeros(4, np.uint8), x, y], args=(relation,))
    np.testing.assert_array_equal(mask, expected)
    chosen = run(new_builder(), model, Opcode.VSEL, [np.zeros(4, np.float32), x, y, mask])
    np.testing.assert_array_equal(
        chosen, [a if m else b for a, b, m in zip(x, y, mask, strict=True)]
    )


def test_gather(new_builder: New, model: NumericsModel) -> None:
    at = np.array([28, 0, 4, 4], np.uint32)
    got = run(new_builder(), model, Opcode.VGATHER, [np.zeros(4, np.float32), X, at])
    np.testing.assert_array_equal(got, X[[7, 0, 1, 1]])
    with pytest.raises(ProgramError, match="gather offsets reach element 8, the table has 8$"):
        run(new_builder(), model, Opcode.VGATHER, [np.zeros(1, np.float32), X, at[:1] + 4])


def test_repeats_accumulate_however_the_source_is_cut(
    new_builder: New, model: NumericsModel
) -> None:
    # Eight rows in two groups, so that the destination's one outer level is cut in two.
    x = np.zeros((2, 5, 8), np.float32)
    x[:, :4] = np.arange(1, 65, dtype=np.float32).reshape(2, 4, 8)
    rows = Pattern(DType.FP32, ((2, 40), (4, 8), (8, 1)))
    same = Pattern(DType.FP32, ((8, 0), (8, 1)))
    got = run(
        new_builder(),
        model,
        Opcode.VMADD,
        [np.zeros(8, np.float32), x, np.full(8, 2, np.float32)],
        [same, rows, same],
    )
    np.testing.assert_array_equal(got, 2 * x.sum(axis=(0, 1)))
    got = run(
        new_builder(),
        model,
        Opcode.VAXPY,
        [np.zeros(8, np.float32), x],
        [same, rows],
        scalar=2.0,
    )
    np.testing.assert_array_equal(got, 2 * x.sum(axis=(0, 1)))
    builder = new_builder()
    source = builder.tensor("x", DType.FP32, (2, 5, 8), TensorKind.INPUT)
    sums = builder.tensor("y", DType.FP32, (8,), TensorKind.OUTPUT)
    area = builder.memory(CoreKind.AIV).alloc("area", Space.UB, 512)
    bases = {"x": source.address, "y": sums.address}
    builder.place(builder.aiv(0), grouped_sums, (area, rows), stage="s", **bases)
    got = run_program(builder.finish(), {"x": x}, model=model)["y"]
    np.testing.assert_array_equal(got, x.sum(axis=(0, 1)))


def grouped_sums(k: BlockBuilder, area: Buffer, rows: Pattern) -> None:
    acc = area.at(Pattern(DType.FP32, ((8, 0), (8, 1))), 384)
    whole = linear(DType.FP32, 80)
    k.copy(area.at(whole), k.gm("x", whole))
    k.vector(Opcode.VDUP, area.linear(DType.FP32, 8, 384), scalar=0.0)
    k.barrier_all()
    k.vector(Opcode.VADD, acc, area.at(rows), acc)
    k.barrier_all()
    k.copy(k.gm("y", linear(DType.FP32, 8)), area.linear(DType.FP32, 8, 384))
