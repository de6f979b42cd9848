"""Which element types each instruction takes on each architecture.

Sources: the types for which the vendor's prediction tool lists an instruction of architecture
2201 (its measured curves), the Cast table of `numerics.cast_pairs`, the Cube and FixPipe tables of
`numerics`. Types that only those of architecture 3510 have are bf16 arithmetic, 8-bit floats and
4-bit floats; where a type of 3510 is not stated, it takes what 2201 takes (inferred).
"""

from collections.abc import Callable, Iterable

from npusim.architecture import Architecture
from npusim.errors import NumericsError, ProgramError
from npusim.isa.fixpipe_modes import PER_CHANNEL, conversion_of
from npusim.isa.instructions import (
    Atomic,
    CopyLayout,
    FixpipeMode,
    Instruction,
    Opcode,
    Operand,
)
from npusim.isa.spaces import Space
from npusim.numerics.cast_pairs import check_pair
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding

Types = tuple[DType, ...]
D = DType

_ONLY_3510: Types = (D.E4M3FN, D.E5M2, D.E8M0, D.HIFLOAT8, D.FP4_E2M1, D.FP4_E1M2)

# Accumulator type by the types of the two factors.
_FACTORS: dict[tuple[DType, DType], DType] = {
    (D.FP16, D.FP16): D.FP32,
    (D.BF16, D.BF16): D.FP32,
    (D.FP32, D.FP32): D.FP32,
    (D.HF32, D.HF32): D.FP32,
    (D.INT8, D.INT8): D.INT32,
}
MMAD_TYPES: dict[Architecture, dict[tuple[DType, DType], DType]] = {
    Architecture.A2201: _FACTORS | {(D.INT4, D.INT4): D.INT32},
    Architecture.A3510: _FACTORS
    | {(D.HIFLOAT8, D.HIFLOAT8): D.FP32}
    | {(a, b): D.FP32 for a in (D.E4M3FN, D.E5M2) for b in (D.E4M3FN, D.E5M2)},
}

_FLOATS: Types = (D.FP16, D.FP32)
_NUMBERS: Types = (D.FP16, D.FP32, D.INT16, D.INT32)
_WORDS_16: Types = (D.INT16, D.UINT16)
# Instructions that move bits take every type of their widths.
_MOVED: Types = (D.FP16, D.BF16, D.INT16, D.UINT16, D.FP32, D.HF32, D.INT32, D.UINT32)
_MOVED_BYTES: Types = (*_MOVED, D.INT8, D.UINT8)

_ARITHMETIC = (Opcode.VADD, Opcode.VSUB, Opcode.VMUL, Opcode.VMAX, Opcode.VMIN)
_WITH_SCALAR = (Opcode.VADDS, Opcode.VMULS, Opcode.VMAXS, Opcode.VMINS)
_ONE_TYPE: dict[Opcode, Types] = {
    **dict.fromkeys((*_ARITHMETIC, *_WITH_SCALAR), _NUMBERS),
    **dict.fromkeys((Opcode.VDIV, Opcode.VABS, Opcode.VEXP, Opcode.VLN), _FLOATS),
    **dict.fromkeys((Opcode.VSQRT, Opcode.VRSQRT, Opcode.VREC), _FLOATS),
    Opcode.VRELU: (*_FLOATS, D.INT32),
    **dict.fromkeys((Opcode.VCADD, Opcode.VCMAX, Opcode.VCMIN), _FLOATS),
    **dict.fromkeys((Opcode.VCGADD, Opcode.VCGMAX, Opcode.VCGMIN, Opcode.VCPADD), _FLOATS),
    **dict.fromkeys((Opcode.VAND, Opcode.VOR, Opcode.VNOT), _WORDS_16),
    **dict.fromkeys((Opcode.VDUP, Opcode.VBRCB, Opcode.VCOPY, Opcode.VREDUCE_PATTERN), _MOVED),
    Opcode.VTRANSPOSE: _MOVED_BYTES,
}
"""Instructions whose operands all have one type, on architecture 2201."""

_BFLOAT_ON_3510 = frozenset(_ARITHMETIC + _WITH_SCALAR)
_ATOMIC: Types = (D.FP32, D.FP16, D.BF16, D.INT32, D.INT16, D.INT8)
_BIAS: Types = (D.FP32, D.INT32)
_SCALES: Types = (D.UINT64,)


def verify_dtypes(instruction: Instruction, where: str, architecture: Architecture) -> None:
    """Check the element types of one row; its operands are known to be complete.

    Args:
        where: names the row in messages.

    Raises:
        ProgramError: names the operand, its type and what the instruction takes.
    """
    opcode = instruction.opcode
    allowed = _ONE_TYPE.get(opcode)
    if allowed is not None:
        _verify_one_type(instruction, where, allowed, architecture)
        return
    check = _SPECIFIC.get(opcode)
    if check is not None:
        check(instruction, where, architecture)


def _names(types: Iterable[DType]) -> str:
    return ", ".join(t.name for t in types)


def _require(operand: Operand, name: str, types: Types, where: str, what: str) -> None:
    if operand.pattern.dtype not in types:
        raise ProgramError(
            f"{where}: {name} is {operand.pattern.dtype.name}; {what} takes {_names(types)}"
        )


def _named(instruction: Instruction) -> tuple[tuple[str, Operand], ...]:
    """The operands with their names, the destination last: a wrong type begins at a source."""
    sources = [(f"src{i}", operand) for i, operand in enumerate(instruction.srcs)]
    return (*sources, *([] if instruction.dst is None else [("dst", instruction.dst)]))


def _on(instruction: Instruction, architecture: Architecture) -> str:
    return f"{instruction.opcode.name} on architecture {int(architecture)}"


def _verify_one_type(
    instruction: Instruction, where: str, types: Types, architecture: Architecture
) -> None:
    what = _on(instruction, architecture)
    if architecture is Architecture.A3510 and instruction.opcode in _BFLOAT_ON_3510:
        types = (*types, D.BF16)
    named = _named(instruction)
    for name, operand in named:
        _require(operand, name, types, where, what)
    _verify_equal(named, where, what)


def _verify_equal(named: tuple[tuple[str, Operand], ...], where: str, what: str) -> None:
    first, reference = named[0]
    for name, operand in named[1:]:
        if operand.pattern.dtype != reference.pattern.dtype:
            raise ProgramError(
                f"{where}: {name} is {operand.pattern.dtype.name} and {first} "
                f"{reference.pattern.dtype.name}; {what} takes operands of one type"
            )


def _verify_multiply_add(instruction: Instruction, where: str, architecture: Architecture) -> None:
    """Equal types, or fp16 factors onto fp32."""
    what = _on(instruction, architecture)
    named = _named(instruction)
    for name, operand in named:
        _require(operand, name, _FLOATS, where, what)
    _verify_equal(named[:-1], where, what)
    _, dst = named[-1]
    if dst.pattern.dtype == D.FP16 and named[0][1].pattern.dtype == D.FP32:
        raise ProgramError(
            f"{where}: dst is FP16 and src0 FP32; {what} adds FP16 to FP16 or FP32, FP32 to FP32"
        )


def _verify_cast(instruction: Instruction, where: str, architecture: Architecture) -> None:
    assert instruction.dst is not None
    src, dst = instruction.srcs[0].pattern.dtype, instruction.dst.pattern.dtype
    if (src, dst) in ((D.INT32, D.FP16), (D.FP32, D.FP32)):
        return  # with a scale of its own, and rounding to whole numbers
    try:
        check_pair(src, dst, Rounding(instruction.args["rounding"]), architecture)
    except NumericsError as error:
        raise ProgramError(f"{where}: {error}") from None


def _verify_compare(instruction: Instruction, where: str, architecture: Architecture) -> None:
    assert instruction.dst is not None
    what = _on(instruction, architecture)
    named = _named(instruction)[:2]
    for name, operand in named:
        _require(operand, name, (*_FLOATS, D.INT32), where, what)
    _verify_equal(named, where, what)
    _require(instruction.dst, "dst", (D.UINT8,), where, f"the result of {what}")


def _verify_select(instruction: Instruction, where: str, architecture: Architecture) -> None:
    assert instruction.dst is not None
    what = _on(instruction, architecture)
    named = (*_named(instruction)[:2], ("dst", instruction.dst))
    for name, operand in named:
        _require(operand, name, _FLOATS, where, what)
    _verify_equal(named, where, what)
    _require(instruction.srcs[2], "src2", (D.UINT8,), where, f"the mask of {what}")


def _verify_gather(instruction: Instruction, where: str, architecture: Architecture) -> None:
    assert instruction.dst is not None
    what = _on(instruction, architecture)
    table, offsets = instruction.srcs
    named = (("src0", table), ("dst", instruction.dst))
    for name, operand in named:
        _require(operand, name, _MOVED, where, what)
    _verify_equal(named, where, what)
    _require(offsets, "src1", (D.UINT32, D.INT32), where, f"the offset of {what}")


def _verify_copy(instruction: Instruction, where: str, architecture: Architecture) -> None:
    assert instruction.dst is not None
    for name, operand in _named(instruction):
        dtype = operand.pattern.dtype
        if dtype in _ONLY_3510 and architecture is Architecture.A2201:
            raise ProgramError(
                f"{where}: {name} is {dtype.name}; architecture 2201 has no such type, only "
                "architecture 3510 has"
            )
    if instruction.args["atomic"] != Atomic.NONE:
        _require(instruction.dst, "dst", _ATOMIC, where, "an atomic add")
    if instruction.args["layout"] == CopyLayout.ND2NZ and instruction.dst.pattern.dtype.bits > 32:
        raise ProgramError(
            f"{where}: dst is {instruction.dst.pattern.dtype.name}; ND2NZ takes types of at most "
            "32 bits"
        )
    wanted = {
        Space.L0A: _factor_types(architecture),
        Space.L0B: _factor_types(architecture),
        Space.BT: _BIAS,
        Space.FB: _SCALES,
    }.get(instruction.dst.space)
    if wanted is not None:
        what = f"{instruction.dst.space.name} on architecture {int(architecture)}"
        _require(instruction.dst, "dst", wanted, where, what)


def _factor_types(architecture: Architecture) -> Types:
    return tuple(dict.fromkeys(t for pair in MMAD_TYPES[architecture] for t in pair))


def _verify_mmad(instruction: Instruction, where: str, architecture: Architecture) -> None:
    assert instruction.dst is not None
    a, b, *bias = instruction.srcs
    pair = (a.pattern.dtype, b.pattern.dtype)
    known = MMAD_TYPES[architecture]
    if pair not in known:
        pairs = ", ".join(f"{x.name} x {y.name}" for x, y in known)
        raise ProgramError(
            f"{where}: src0 is {pair[0].name} and src1 {pair[1].name}; "
            f"{_on(instruction, architecture)} takes {pairs}"
        )
    of_pair = f"MMAD of {pair[0].name} x {pair[1].name}"
    for name, operand in (("dst", instruction.dst), *(("src2", o) for o in bias)):
        if operand.pattern.dtype != known[pair]:
            role = "accumulates in" if name == "dst" else "takes a bias of"
            raise ProgramError(
                f"{where}: {name} is {operand.pattern.dtype.name}; {of_pair} {role} "
                f"{known[pair].name}"
            )


def _verify_fixpipe(instruction: Instruction, where: str, architecture: Architecture) -> None:
    assert instruction.dst is not None
    mode = FixpipeMode(instruction.args["mode"])
    it = conversion_of(mode)
    if architecture not in it.architectures:
        modes = (m.name for m in FixpipeMode if architecture in conversion_of(m).architectures)
        raise ProgramError(
            f"{where}: mode {mode.name} does not exist on architecture {int(architecture)}; it "
            f"has {', '.join(modes)}"
        )
    src, dst = instruction.srcs[0], instruction.dst
    what = f"mode {mode.name}"
    _require(src, "src0", (it.accumulator,) if it.accumulator else _BIAS, where, what)
    if it.output is not None:
        outputs: Types = (it.output,)
    elif it.scaled:
        outputs = (D.INT8, D.UINT8)
    else:
        outputs = (src.pattern.dtype,)
    _require(dst, "dst", outputs, where, f"the result of {what}")
    if instruction.args["atomic"] != Atomic.NONE:
        _require(dst, "dst", _ATOMIC, where, "an atomic add")
    scales = instruction.srcs[1:]
    if bool(scales) != (mode in PER_CHANNEL):
        raise ProgramError(
            f"{where}: {what} "
            + ("takes no per-channel scales" if scales else "needs per-channel scales")
        )
    for operand in scales:
        _require(operand, "src1", _SCALES, where, f"the scale of {what}")


_SPECIFIC: dict[Opcode, Callable[[Instruction, str, Architecture], None]] = {
    **dict.fromkeys((Opcode.VAXPY, Opcode.VMADD), _verify_multiply_add),
    Opcode.VCAST: _verify_cast,
    Opcode.VCMP: _verify_compare,
    Opcode.VSEL: _verify_select,
    Opcode.VGATHER: _verify_gather,
    **dict.fromkeys((Opcode.COPY, Opcode.COPY_PAD), _verify_copy),
    Opcode.MMAD: _verify_mmad,
    Opcode.FIXPIPE: _verify_fixpipe,
}
