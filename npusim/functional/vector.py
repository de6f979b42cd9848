"""Values of the vector unit: one small function per group of opcodes.

Arithmetic comes from ``npusim.numerics``; here operands meet it. Element-wise operands pair in
iteration order. A reduction's source is taken as ``dst elements`` groups of equal length, in
iteration order. An instruction with two sources, or one that adds to its destination, is carried
out repeat by repeat where its destination has outer levels of stride 0: with the destination as a
source too it accumulates, as the hardware's repeats do.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from npusim.errors import ProgramError
from npusim.functional.memory import Array, CoreMemory
from npusim.functional.rows import Row, Run
from npusim.functional.views import Bases, access, paired, word
from npusim.isa.instructions import Opcode, Relation
from npusim.numerics import casts, functions, reduce, transcendental
from npusim.numerics.cast_paths import cast_int32_to_fp16
from npusim.numerics.formats import DType
from npusim.numerics.rounding import Rounding

Elementwise = Callable[..., Array]

UNARY: Mapping[Opcode, Elementwise] = {
    Opcode.VABS: functions.absolute,
    Opcode.VRELU: functions.relu,
    Opcode.VEXP: transcendental.exp,
    Opcode.VLN: transcendental.ln,
    Opcode.VSQRT: functions.sqrt,
    Opcode.VRSQRT: transcendental.rsqrt,
    Opcode.VREC: functions.reciprocal,
}
BINARY: Mapping[Opcode, Elementwise] = {
    Opcode.VADD: functions.add,
    Opcode.VSUB: functions.sub,
    Opcode.VMUL: functions.mul,
    Opcode.VDIV: functions.div,
    Opcode.VMAX: functions.maximum,
    Opcode.VMIN: functions.minimum,
    Opcode.VADDS: functions.add,
    Opcode.VMULS: functions.mul,
    Opcode.VMAXS: functions.maximum,
    Opcode.VMINS: functions.minimum,
}
REPEAT_REDUCTIONS: Mapping[Opcode, Elementwise] = {
    Opcode.VCADD: reduce.repeat_sum,
    Opcode.VCMAX: reduce.repeat_max,
    Opcode.VCMIN: reduce.repeat_min,
}
BLOCK_REDUCTIONS: Mapping[Opcode, Elementwise] = {
    Opcode.VCGADD: reduce.block_sum,
    Opcode.VCGMAX: reduce.block_max,
    Opcode.VCGMIN: reduce.block_min,
}
LOGIC: Mapping[Opcode, Callable[..., Any]] = {
    Opcode.VAND: np.bitwise_and,
    Opcode.VOR: np.bitwise_or,
    Opcode.VNOT: np.bitwise_not,
}
_RELATIONS: Mapping[Relation, Callable[[Array, Array], Any]] = {
    Relation.LT: np.less,
    Relation.GT: np.greater,
    Relation.EQ: np.equal,
    Relation.LE: np.less_equal,
    Relation.GE: np.greater_equal,
    Relation.NE: np.not_equal,
}


def unary(row: Row) -> Run:
    """dst = f(src0)."""
    to, x = paired(row.operands, row.slots)
    function, model = UNARY[row.opcode], row.model

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = function(x(core, bases), model=model)

    return run


def binary(row: Row) -> Run:
    """dst = f(src0, src1), or f(src0, scalar) with the scalar rounded to the element type."""
    function, model = BINARY[row.opcode], row.model
    if len(row.srcs) == 1:
        to, x = paired(row.operands, row.slots)
        scalar = np.asarray(row.imms["scalar"], dtype=row.srcs[0].pattern.dtype.numpy)

        def run_scalar(core: CoreMemory, bases: Bases) -> None:
            to(core, bases)[...] = function(x(core, bases), scalar, model=model)

        return run_scalar
    to, x, y = paired(row.operands, row.slots)
    if row.dst.pattern.levels and row.dst.pattern.levels[0][1] == 0:

        def run_repeats(core: CoreMemory, bases: Bases) -> None:
            target, a, b = to(core, bases), x(core, bases), y(core, bases)
            for i in _repeats(target):
                target[i] = function(a[i], b[i], model=model)

        return run_repeats

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = function(x(core, bases), y(core, bases), model=model)

    return run


def multiply_add(row: Row) -> Run:
    """dst = src0 * src1 + dst (VMADD) or src0 * scalar + dst (VAXPY)."""
    model = row.model
    if row.opcode is Opcode.VAXPY:
        to, x = paired(row.operands, row.slots)
        scalar = np.asarray(row.imms["scalar"], dtype=row.srcs[0].pattern.dtype.numpy)

        def run_axpy(core: CoreMemory, bases: Bases) -> None:
            target, a = to(core, bases), x(core, bases)
            for i in _repeats(target):
                target[i] = functions.multiply_add(a[i], scalar, target[i], model=model)

        return run_axpy
    to, x, y = paired(row.operands, row.slots)

    def run(core: CoreMemory, bases: Bases) -> None:
        target, a, b = to(core, bases), x(core, bases), y(core, bases)
        for i in _repeats(target):
            target[i] = functions.multiply_add(a[i], b[i], target[i], model=model)

    return run


def cast(row: Row) -> Run:
    """dst = src0 in the destination's type; fp32 to fp32 rounds to whole numbers."""
    src, dst = row.srcs[0].pattern.dtype, row.dst.pattern.dtype
    rounding = Rounding(row.args["rounding"])
    saturate = True if row.args["saturate"] else None
    model = row.model
    to, x = paired(row.operands, row.slots)

    def convert(values: Array) -> Array:
        if src is dst is DType.FP32:
            return casts.round_to_whole_fp32(values, rounding, model=model)
        if src is DType.INT32 and dst is DType.FP16:
            return cast_int32_to_fp16(values, np.float16(1), saturate, model=model)
        return casts.cast(values, dst, rounding, saturate, src=src, model=model)

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = convert(x(core, bases))

    return run


def move(row: Row) -> Run:
    """VCOPY, VTRANSPOSE, VREDUCE_PATTERN: bits unchanged, paired in iteration order."""
    to, x = paired(row.operands, row.slots, raw=True)

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = x(core, bases)

    return run


def fill(row: Row) -> Run:
    """VDUP: the scalar, rounded to the element type, everywhere."""
    to = access(row.dst, row.slots)
    scalar = np.asarray(row.imms["scalar"]).astype(row.dst.pattern.dtype.numpy)

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = scalar

    return run


def broadcast_blocks(row: Row) -> Run:
    """VBRCB: each element of src0 over one 32-byte block of dst."""
    lanes = row.dst.pattern.dtype.c0
    _require_ratio(row, row.dst.pattern.elements, row.srcs[0].pattern.elements, lanes)
    size = row.dst.pattern.dtype.size_bytes
    to = access(row.dst, row.slots, dtype=word(size))
    x = access(row.srcs[0], row.slots, dtype=word(size))

    def run(core: CoreMemory, bases: Bases) -> None:
        target = to(core, bases)
        target[...] = x(core, bases).repeat(lanes).reshape(target.shape)

    return run


def reduction(row: Row) -> Run:
    """Sum, maximum or minimum of groups of at most a repeat (VC*) or a 32-byte block (VCG*).

    Lanes that a short group lacks count as masked.
    """
    in_blocks = row.opcode in BLOCK_REDUCTIONS
    dtype = row.srcs[0].pattern.dtype
    lanes = dtype.c0 if in_blocks else reduce.REPEAT_BYTES // dtype.size_bytes
    groups = row.dst.pattern.elements
    length = row.srcs[0].pattern.elements // groups
    if not 1 <= length <= lanes or length * groups != row.srcs[0].pattern.elements:
        raise ProgramError(
            f"{row.where}: {row.srcs[0].pattern.elements} elements into {groups} results; each "
            f"result takes 1 to {lanes} elements of {dtype.name}"
        )
    function = (BLOCK_REDUCTIONS if in_blocks else REPEAT_REDUCTIONS)[row.opcode]
    to, x = access(row.dst, row.slots), access(row.srcs[0], row.slots)
    model = row.model

    def run(core: CoreMemory, bases: Bases) -> None:
        target = to(core, bases)
        grouped = x(core, bases).reshape(groups, length)
        target[...] = function(grouped, model=model).reshape(target.shape)

    return run


def pair_sum(row: Row) -> Run:
    """VCPADD: sums of adjacent pairs."""
    _require_ratio(row, row.srcs[0].pattern.elements, row.dst.pattern.elements, 2)
    to, x = access(row.dst, row.slots), access(row.srcs[0], row.slots)
    model = row.model

    def run(core: CoreMemory, bases: Bases) -> None:
        target = to(core, bases)
        flat = x(core, bases).reshape(-1)
        target[...] = reduce.pair_sum(flat, model=model).reshape(target.shape)

    return run


def logic(row: Row) -> Run:
    """Bitwise operations on the elements' words."""
    function = LOGIC[row.opcode]
    to, *sources = paired(row.operands, row.slots, raw=True)

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = function(*(x(core, bases) for x in sources))

    return run


def compare(row: Row) -> Run:
    """VCMP: 1 where the relation holds, else 0; false with NaN except for NE."""
    relation = _RELATIONS[Relation(row.args["relation"])]
    to, x, y = paired(row.operands, row.slots)

    def run(core: CoreMemory, bases: Bases) -> None:
        to(core, bases)[...] = relation(x(core, bases), y(core, bases))

    return run


def select(row: Row) -> Run:
    """VSEL: src0 where src2 is not 0, else src1."""
    to, x, y = paired(row.operands[:3], row.slots)
    mask, _ = paired((row.srcs[2], row.dst), row.slots)

    def run(core: CoreMemory, bases: Bases) -> None:
        target = to(core, bases)
        chosen = mask(core, bases).reshape(target.shape) != 0
        target[...] = np.where(chosen, x(core, bases), y(core, bases))

    return run


def gather(row: Row) -> Run:
    """VGATHER: dst[i] = the element of src0 at byte offset src1[i]."""
    size = row.dst.pattern.dtype.size_bytes
    to = access(row.dst, row.slots, dtype=word(size))
    table = access(row.srcs[0], row.slots, dtype=word(size))
    offsets = access(row.srcs[1], row.slots)

    def run(core: CoreMemory, bases: Bases) -> None:
        target = to(core, bases)
        index = offsets(core, bases).reshape(-1) // size
        source = table(core, bases).reshape(-1)
        if index.size and not 0 <= int(index.min()) <= int(index.max()) < source.size:
            raise ProgramError(
                f"{row.where}: gather offsets reach element {int(index.max())}, the table has "
                f"{source.size}"
            )
        target[...] = source[index].reshape(target.shape)

    return run


def _repeats(target: Array) -> Iterator[tuple[int, ...]]:
    """Indices of the repeats that write the same elements: the outer levels of stride 0."""
    outer = 0
    while outer < target.ndim and target.strides[outer] == 0:
        outer += 1
    return np.ndindex(target.shape[:outer])


def _require_ratio(row: Row, many: int, few: int, ratio: int) -> None:
    if many != few * ratio:
        raise ProgramError(
            f"{row.where}: {many} elements against {few}; there must be {ratio} for each"
        )


PREPARE: Mapping[Opcode, Callable[[Row], Run]] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys((Opcode.VAXPY, Opcode.VMADD), multiply_add),
    Opcode.VCAST: cast,
    **dict.fromkeys((Opcode.VCOPY, Opcode.VTRANSPOSE, Opcode.VREDUCE_PATTERN), move),
    Opcode.VDUP: fill,
    Opcode.VBRCB: broadcast_blocks,
    **dict.fromkeys((*REPEAT_REDUCTIONS, *BLOCK_REDUCTIONS), reduction),
    Opcode.VCPADD: pair_sum,
    **dict.fromkeys(LOGIC, logic),
    Opcode.VCMP: compare,
    Opcode.VSEL: select,
    Opcode.VGATHER: gather,
}
"""How each vector opcode is prepared."""
