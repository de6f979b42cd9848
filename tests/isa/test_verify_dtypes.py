"""Which element types an instruction takes: every refusal verbatim, and what is legal passes."""

from collections.abc import Callable

import pytest
from small_programs import toy_builder

from npusim.architecture import Architecture
from npusim.chips.load import load_chip
from npusim.errors import ProgramError
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import (
    Atomic,
    CopyLayout,
    FixpipeMode,
    Instruction,
    Opcode,
    Operand,
)
from npusim.isa.program import TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.isa.verify import verify
from npusim.isa.verify_dtypes import verify_dtypes
from npusim.numerics.cast_pairs import PAIRS
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding

D = DType
TOY = load_chip("toy")
Emit = Callable[[BlockBuilder], None]


def at(space: Space, dtype: DType, elements: int = 64, offset: int = 0) -> Operand:
    return Operand(space, patterns.linear(dtype, elements), offset)


def ub(dtype: DType, offset: int = 0) -> Operand:
    return at(Space.UB, dtype, offset=offset)


def refusal(emit: Emit, kind: CoreKind = CoreKind.AIV) -> str:
    """What `verify` says of a block of one row, without the row's source line."""
    b = toy_builder()
    x = b.tensor("x", D.INT8, (4096,), TensorKind.INOUT)

    def one(k: BlockBuilder) -> None:
        emit(k)

    core = b.aiv(0) if kind is CoreKind.AIV else b.aic(0)
    b.place(core, one, stage="s", x=x.address)
    with pytest.raises(ProgramError) as error:
        verify(b.finish(), TOY)
    start, _, rest = str(error.value).partition(" (block one, row 0, test_verify_dtypes.py:")
    return f"{start}: {rest.partition('): ')[2]}"


def legal(emit: Emit, kind: CoreKind = CoreKind.AIV) -> None:
    """One row that `verify` lets pass."""
    b = toy_builder()
    x = b.tensor("x", D.INT8, (4096,), TensorKind.INOUT)

    def one(k: BlockBuilder) -> None:
        emit(k)

    b.place(b.aiv(0) if kind is CoreKind.AIV else b.aic(0), one, stage="s", x=x.address)
    verify(b.finish(), TOY)


def vector(opcode: Opcode, *types: DType, **rest: object) -> Emit:
    """A vector row on operands of these types, the destination first."""
    operands = [ub(dtype, 512 * i) for i, dtype in enumerate(types)]
    return lambda k: k.vector(opcode, *operands, **rest)


REFUSED = [
    (
        vector(Opcode.VADD, D.BF16, D.BF16, D.BF16),
        "VADD: src0 is BF16; VADD on architecture 2201 takes FP16, FP32, INT16, INT32",
    ),
    (
        vector(Opcode.VADD, D.FP32, D.FP32, D.FP16),
        "VADD: src1 is FP16 and src0 FP32; VADD on architecture 2201 takes operands of one type",
    ),
    (
        vector(Opcode.VEXP, D.INT32, D.INT32),
        "VEXP: src0 is INT32; VEXP on architecture 2201 takes FP16, FP32",
    ),
    (
        vector(Opcode.VCADD, D.FP32, D.FP16),
        "VCADD: dst is FP32 and src0 FP16; VCADD on architecture 2201 takes operands of one type",
    ),
    (
        vector(Opcode.VAND, D.UINT8, D.UINT8, D.UINT8),
        "VAND: src0 is UINT8; VAND on architecture 2201 takes INT16, UINT16",
    ),
    (
        vector(Opcode.VDUP, D.INT8, scalar=0.0),
        "VDUP: dst is INT8; VDUP on architecture 2201 takes FP16, BF16, INT16, UINT16, FP32, "
        "HF32, INT32, UINT32",
    ),
    (
        vector(Opcode.VAXPY, D.FP16, D.FP32, scalar=2.0),
        "VAXPY: dst is FP16 and src0 FP32; VAXPY on architecture 2201 adds FP16 to FP16 or FP32, "
        "FP32 to FP32",
    ),
    (
        vector(Opcode.VCAST, D.INT8, D.FP32, args=(Rounding.RINT, 0)),
        "VCAST: cast fp32 -> int8 does not exist on architecture 2201; from fp32 there are: fp16, "
        "bf16, int16, int32, int64; to int8 there are: fp16",
    ),
    (
        vector(Opcode.VCAST, D.BF16, D.FP32, args=(Rounding.ODD, 0)),
        "VCAST: cast fp32 -> bf16 on architecture 2201 has no rounding mode ODD; it has: NONE, "
        "RINT, ROUND, FLOOR, CEIL, TRUNC",
    ),
    (
        vector(Opcode.VCAST, D.FP16, D.FP32, args=(77, 0)),
        "VCAST: rounding is 77; there are: 0 NONE, 1 RINT, 2 ROUND, 3 FLOOR, 4 CEIL, 5 TRUNC, "
        "6 ODD, 7 HYBRID",
    ),
    (
        vector(Opcode.VCMP, D.INT8, D.FP32, D.FP32, args=(0,)),
        "VCMP: dst is INT8; the result of VCMP on architecture 2201 takes UINT8",
    ),
    (
        vector(Opcode.VSEL, D.FP32, D.FP32, D.FP32, D.INT32),
        "VSEL: src2 is INT32; the mask of VSEL on architecture 2201 takes UINT8",
    ),
    (
        vector(Opcode.VGATHER, D.FP32, D.FP32, D.FP32),
        "VGATHER: src1 is FP32; the offset of VGATHER on architecture 2201 takes UINT32, INT32",
    ),
    (
        lambda k: k.copy(ub(D.E4M3FN), k.gm("x", patterns.linear(D.E4M3FN, 64))),
        "COPY: src0 is E4M3FN; architecture 2201 has no such type, only architecture 3510 has",
    ),
    (
        lambda k: k.copy(
            k.gm("x", patterns.linear(D.INT64, 64)), ub(D.INT64), atomic=Atomic.ADD
        ),
        "COPY: dst is INT64; an atomic add takes FP32, FP16, BF16, INT32, INT16, INT8",
    ),
]  # fmt: skip


def mmad(acc: DType, a: DType, b: DType, bias: DType | None = None) -> Emit:
    operands = at(Space.L0C, acc, 256), at(Space.L0A, a, 1024), at(Space.L0B, b, 1024)
    start = 0 if bias is None else 2
    return lambda k: k.mmad(
        *operands, m=16, n=16, k=16, start=start,
        bias=None if bias is None else at(Space.BT, bias, 16),
    )  # fmt: skip


PAIRS_2201 = (
    "FP16 x FP16, BF16 x BF16, FP32 x FP32, HF32 x HF32, INT8 x INT8, INT4 x INT4"
)  # fmt: skip


def fixpipe(mode: FixpipeMode, dst: DType, src: DType, scale: DType | None = None) -> Emit:
    scales = None if scale is None else at(Space.FB, scale, 64)
    return lambda k: k.fixpipe(
        k.gm("x", patterns.linear(dst, 64)), at(Space.L0C, src), mode=mode, channel_scale=scales
    )


F = FixpipeMode
REFUSED_ON_AIC = [
    *[
        (
            mmad(D.FP32, a, b),
            f"MMAD: src0 is {a.name} and src1 {b.name}; MMAD on architecture 2201 takes "
            f"{PAIRS_2201}",
        )
        for a, b in (
            (D.E4M3FN, D.E4M3FN),
            (D.E5M2, D.E4M3FN),
            (D.HIFLOAT8, D.HIFLOAT8),
            (D.FP4_E2M1, D.FP4_E2M1),
            (D.FP16, D.BF16),
            (D.INT8, D.FP16),
        )  # fmt: skip
    ],
    (
        mmad(D.FP32, D.INT8, D.INT8),
        "MMAD: dst is FP32; MMAD of INT8 x INT8 accumulates in INT32",
    ),
    (
        mmad(D.INT32, D.INT8, D.INT8, D.FP32),
        "MMAD: src2 is FP32; MMAD of INT8 x INT8 takes a bias of INT32",
    ),
    (
        fixpipe(F.F322BF16, D.FP16, D.FP32),
        "FIXPIPE: dst is FP16; the result of mode F322BF16 takes BF16",
    ),
    (
        fixpipe(F.DEQF16, D.FP16, D.FP32),
        "FIXPIPE: src0 is FP32; mode DEQF16 takes INT32",
    ),
    (
        fixpipe(F.NO_QUANT, D.FP16, D.FP32),
        "FIXPIPE: dst is FP16; the result of mode NO_QUANT takes FP32",
    ),
    (
        fixpipe(F.REQ8, D.FP16, D.INT32),
        "FIXPIPE: dst is FP16; the result of mode REQ8 takes INT8, UINT8",
    ),
    (
        fixpipe(F.QS322BF16_PRE, D.BF16, D.INT32),
        "FIXPIPE: mode QS322BF16_PRE does not exist on architecture 2201; it has NO_QUANT, "
        "F322F16, F322BF16, DEQF16, VDEQF16, REQ8, VREQ8, QF322B8_PRE, VQF322B8_PRE",
    ),
    (
        fixpipe(F.VDEQF16, D.FP16, D.INT32),
        "FIXPIPE: mode VDEQF16 needs per-channel scales",
    ),
    (
        fixpipe(F.VDEQF16, D.FP16, D.INT32, D.FP32),
        "FIXPIPE: src1 is FP32; the scale of mode VDEQF16 takes UINT64",
    ),
    (
        lambda k: k.copy(at(Space.L0A, D.UINT8, 512), at(Space.L1, D.UINT8, 512)),
        "COPY: dst is UINT8; L0A on architecture 2201 takes FP16, BF16, FP32, HF32, INT8, INT4",
    ),
    (
        lambda k: k.copy(at(Space.BT, D.FP16), at(Space.L1, D.FP16)),
        "COPY: dst is FP16; BT on architecture 2201 takes FP32, INT32",
    ),
    (
        lambda k: k.copy(at(Space.FB, D.FP32), at(Space.L1, D.FP32)),
        "COPY: dst is FP32; FB on architecture 2201 takes UINT64",
    ),
    (
        lambda k: k.copy(
            at(Space.L1, D.INT64),
            k.gm("x", patterns.linear(D.INT64, 64)),
            layout=CopyLayout.ND2NZ,
        ),
        "COPY: dst is INT64; ND2NZ takes types of at most 32 bits",
    ),
]


@pytest.mark.parametrize(("emit", "message"), REFUSED)
def test_an_aiv_row_of_a_wrong_type(emit: Emit, message: str) -> None:
    assert refusal(emit) == message


@pytest.mark.parametrize(("emit", "message"), REFUSED_ON_AIC)
def test_an_aic_row_of_a_wrong_type(emit: Emit, message: str) -> None:
    assert refusal(emit, CoreKind.AIC) == message


@pytest.mark.parametrize("pair", PAIRS[Architecture.A2201], ids=lambda p: f"{p[0]}-{p[1]}")
def test_every_cast_of_the_architecture_passes(pair: tuple[DType, DType]) -> None:
    src, dst = pair
    for rounding in PAIRS[Architecture.A2201][pair]:
        legal(vector(Opcode.VCAST, dst, src, args=(rounding, 0)))


@pytest.mark.parametrize(
    "types", [(D.FP32, D.FP32), (D.FP16, D.INT32)], ids=["whole numbers", "scaled"]
)
def test_the_casts_with_functions_of_their_own_pass(types: tuple[DType, ...]) -> None:
    legal(vector(Opcode.VCAST, *types, args=(Rounding.RINT, 0)))


@pytest.mark.parametrize(
    "emit",
    [
        mmad(D.FP32, D.BF16, D.BF16),
        mmad(D.FP32, D.FP16, D.FP16, D.FP32),
        mmad(D.INT32, D.INT8, D.INT8, D.INT32),
        fixpipe(F.NO_QUANT, D.INT32, D.INT32),
        fixpipe(F.VDEQF16, D.FP16, D.INT32, D.UINT64),
        fixpipe(F.QF322B8_PRE, D.INT8, D.FP32),
    ],
)
def test_what_the_cube_and_the_fixpipe_do(emit: Emit) -> None:
    legal(emit, CoreKind.AIC)


@pytest.mark.parametrize(
    "types", [(D.FP16, D.FP16), (D.FP32, D.FP32), (D.FP32, D.FP16)], ids=lambda t: f"{t[0]}-{t[1]}"
)
def test_a_multiply_add_may_widen(types: tuple[DType, ...]) -> None:
    legal(vector(Opcode.VAXPY, *types, scalar=2.0))


def product(a: DType, b: DType) -> Instruction:
    return Instruction(
        opcode=Opcode.MMAD,
        pipe=Pipe.CUBE,
        dst=at(Space.L0C, D.FP32),
        srcs=(at(Space.L0A, a), at(Space.L0B, b)),
        args={"m": 16, "n": 16, "k": 16, "start": 1, "unit_flag": 0},
        imms={},
        source="here:1",
    )


def test_the_newer_architecture_multiplies_8_bit_floats_and_no_int4() -> None:
    new = Architecture.A3510
    verify_dtypes(product(D.E4M3FN, D.E5M2), "MMAD", new)
    verify_dtypes(product(D.HIFLOAT8, D.HIFLOAT8), "MMAD", new)
    with pytest.raises(ProgramError) as error:
        verify_dtypes(product(D.INT4, D.INT4), "MMAD", new)
    assert str(error.value) == (
        "MMAD: src0 is INT4 and src1 INT4; MMAD on architecture 3510 takes FP16 x FP16, "
        "BF16 x BF16, FP32 x FP32, HF32 x HF32, INT8 x INT8, HIFLOAT8 x HIFLOAT8, "
        "E4M3FN x E4M3FN, E4M3FN x E5M2, E5M2 x E4M3FN, E5M2 x E5M2"
    )


def test_the_newer_architecture_adds_bf16() -> None:
    it = Instruction(
        Opcode.VADD, Pipe.VECTOR, ub(D.BF16), (ub(D.BF16), ub(D.BF16)), {}, {}, "here:1"
    )
    verify_dtypes(it, "VADD", Architecture.A3510)
    with pytest.raises(ProgramError) as error:
        verify_dtypes(it, "VADD", Architecture.A2201)
    assert str(error.value).startswith("VADD: src0 is BF16; ")
