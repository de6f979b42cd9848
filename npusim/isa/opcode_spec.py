"""The instruction set: the operands and arguments of every opcode, and what they mean.

`SPEC` is the one description of the language: the builder lays out rows by it, `verify` checks
against it, `printer` prints and parses by it.
"""

from dataclasses import dataclass

from npusim.isa.instructions import Opcode
from npusim.isa.spaces import Pipe


@dataclass(frozen=True)
class OpcodeSpec:
    """The legal form of one opcode.

    Attributes:
        pipe: the pipe it runs on, or None where the row decides (copies, flags).
        sources: least and most number of source operands; a destination is implied by
            ``has_dst``.
        args: names of the integer arguments, in column order.
        imms: names of the floating-point immediates, in column order.
        vector_class: row of the chip's table of cycles per repeat, for vector opcodes.
    """

    pipe: Pipe | None
    has_dst: bool
    sources: tuple[int, int]
    args: tuple[str, ...]
    imms: tuple[str, ...]
    meaning: str
    vector_class: str | None = None


_SYNC = (0, 0)
_COPY_ARGS = ("layout", "atomic", "cache_hint", "atomic_key")


def _vector(
    vector_class: str,
    sources: int,
    meaning: str,
    args: tuple[str, ...] = (),
    imms: tuple[str, ...] = (),
) -> OpcodeSpec:
    return OpcodeSpec(Pipe.VECTOR, True, (sources, sources), args, imms, meaning, vector_class)


SPEC: dict[Opcode, OpcodeSpec] = {
    Opcode.LAUNCH: OpcodeSpec(
        Pipe.SCALAR,
        False,
        _SYNC,
        (),
        (),
        "the core starts: launch time and start skew pass",
    ),
    Opcode.END: OpcodeSpec(
        Pipe.SCALAR, False, _SYNC, (), (), "the core ends once all its pipes are empty"
    ),
    Opcode.SCALAR: OpcodeSpec(
        Pipe.SCALAR,
        False,
        _SYNC,
        ("cycles",),
        (),
        "address and loop work of the scalar unit",
    ),
    Opcode.SCALAR_LOAD: OpcodeSpec(
        Pipe.SCALAR,
        False,
        (1, 1),
        (),
        (),
        "the scalar unit reads a control value from GM",
    ),
    Opcode.SET_FLAG: OpcodeSpec(
        None,
        False,
        _SYNC,
        ("src_pipe", "dst_pipe", "event"),
        (),
        "in src_pipe: raise the event once all earlier work of src_pipe is visible",
    ),
    Opcode.WAIT_FLAG: OpcodeSpec(
        None,
        False,
        _SYNC,
        ("src_pipe", "dst_pipe", "event"),
        (),
        "in dst_pipe: hold the pipe until the event is raised, and lower it",
    ),
    Opcode.PIPE_BARRIER: OpcodeSpec(
        None,
        False,
        _SYNC,
        (),
        (),
        "hold the pipe until its own earlier work is visible",
    ),
    Opcode.BARRIER_ALL: OpcodeSpec(
        Pipe.SCALAR,
        False,
        _SYNC,
        (),
        (),
        "PIPE_ALL: stall issue until every pipe is empty",
    ),
    Opcode.CROSS_SET: OpcodeSpec(
        None,
        False,
        _SYNC,
        ("mode", "flag"),
        (),
        "once all earlier work of the pipe is visible, signal other cores",
    ),
    Opcode.CROSS_WAIT: OpcodeSpec(
        None,
        False,
        _SYNC,
        ("mode", "flag"),
        (),
        "hold the pipe until this core's counter of the flag is above 0, and lower it",
    ),
    Opcode.COPY: OpcodeSpec(None, True, (1, 1), _COPY_ARGS, (), "move elements in iteration order"),
    Opcode.COPY_PAD: OpcodeSpec(
        None,
        True,
        (1, 1),
        _COPY_ARGS,
        (),
        "move a few elements; the rest of the destination takes the first of them",
    ),
    Opcode.MMAD: OpcodeSpec(
        Pipe.CUBE,
        True,
        (2, 3),
        ("m", "n", "k", "start", "unit_flag"),
        (),
        "L0C (m, n) = start + L0A (m, k) x L0B (k, n); src2 is the bias in BT",
    ),
    Opcode.FIXPIPE: OpcodeSpec(
        Pipe.FIXP,
        True,
        (1, 2),
        ("mode", "relu", "unit_flag", "cache_hint", "atomic", "packed_scale"),
        (),
        "L0C to GM or L1 with conversion; src1 holds per-channel scales in FB",
    ),
    Opcode.VADD: _vector("add", 2, "dst = src0 + src1"),
    Opcode.VSUB: _vector("sub", 2, "dst = src0 - src1"),
    Opcode.VMUL: _vector("mul", 2, "dst = src0 * src1"),
    Opcode.VDIV: _vector("div", 2, "dst = src0 / src1"),
    Opcode.VMAX: _vector("max", 2, "dst = max(src0, src1), NaN propagates"),
    Opcode.VMIN: _vector("min", 2, "dst = min(src0, src1), NaN propagates"),
    Opcode.VADDS: _vector("adds", 1, "dst = src0 + scalar", imms=("scalar",)),
    Opcode.VMULS: _vector("muls", 1, "dst = src0 * scalar", imms=("scalar",)),
    Opcode.VMAXS: _vector("maxs", 1, "dst = max(src0, scalar)", imms=("scalar",)),
    Opcode.VMINS: _vector("mins", 1, "dst = min(src0, scalar)", imms=("scalar",)),
    Opcode.VABS: _vector("abs", 1, "dst = |src0|"),
    Opcode.VRELU: _vector("relu", 1, "dst = max(src0, 0)"),
    Opcode.VEXP: _vector("exp", 1, "dst = exp(src0)"),
    Opcode.VLN: _vector("ln", 1, "dst = ln(src0)"),
    Opcode.VSQRT: _vector("sqrt", 1, "dst = sqrt(src0)"),
    Opcode.VRSQRT: _vector("rsqrt", 1, "dst = 1 / sqrt(src0)"),
    Opcode.VREC: _vector("rec", 1, "dst = 1 / src0"),
    Opcode.VCAST: _vector(
        "cast",
        1,
        "convert; rounding is a numerics Rounding, saturate 0 means as the model says, 1 always; "
        "int32 to fp16 has scale 1",
        ("rounding", "saturate"),
    ),
    Opcode.VDUP: OpcodeSpec(
        Pipe.VECTOR, True, (0, 0), (), ("scalar",), "fill dst with a scalar", "dup"
    ),
    Opcode.VBRCB: _vector("brcb", 1, "repeat each element of src0 over one 32-byte block"),
    Opcode.VCOPY: _vector("copy", 1, "dst = src0"),
    Opcode.VCADD: _vector("cadd", 1, "sum of the inner level, adjacent-pair tree per repeat"),
    Opcode.VCMAX: _vector("cmax", 1, "maximum of the inner level"),
    Opcode.VCMIN: _vector("cmin", 1, "minimum of the inner level"),
    Opcode.VCGADD: _vector("cgadd", 1, "sum of each 32-byte block, adjacent-pair tree"),
    Opcode.VCGMAX: _vector("cgmax", 1, "maximum of each 32-byte block"),
    Opcode.VCGMIN: _vector("cgmin", 1, "minimum of each 32-byte block"),
    Opcode.VCPADD: _vector("cpadd", 1, "sum of each adjacent pair"),
    Opcode.VREDUCE_PATTERN: _vector(
        "reduce_pattern",
        1,
        "compact the elements a fixed mask selects (the source pattern)",
    ),
    Opcode.VAXPY: _vector("axpy", 1, "dst = src0 * scalar + dst", imms=("scalar",)),
    Opcode.VMADD: _vector("madd", 2, "dst = src0 * src1 + dst"),
    Opcode.VTRANSPOSE: _vector("transpose", 1, "dst = src0, elements paired in iteration order"),
    Opcode.VGATHER: _vector("gather", 2, "dst[i] = src0 at byte offset src1[i]"),
    Opcode.VAND: _vector("and", 2, "dst = src0 & src1"),
    Opcode.VOR: _vector("or", 2, "dst = src0 | src1"),
    Opcode.VNOT: _vector("not", 1, "dst = ~src0"),
    Opcode.VCMP: _vector("cmp", 2, "dst (uint8 0 or 1) = src0 Relation src1", ("relation",)),
    Opcode.VSEL: OpcodeSpec(
        Pipe.VECTOR,
        True,
        (3, 3),
        (),
        (),
        "dst = src0 where src2 (uint8) else src1",
        "sel",
    ),
}
