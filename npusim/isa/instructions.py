"""Opcodes, the choices that their arguments stand for, and rows.

What operands and arguments an opcode has is in `opcode_spec`. A row is stored by column (`ROW`);
`Instruction` is the reader's view of one row, never made on a hot path.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from npusim.isa.patterns import Pattern
from npusim.isa.spaces import Pipe, Space

OPERANDS = 4  # dst, src0, src1, src2
ARGUMENTS = 6
IMMEDIATES = 2
NONE = -1


class Opcode(IntEnum):
    """All opcodes, grouped by the unit that carries them out."""

    # Scalar unit and the run itself
    LAUNCH = 0
    END = 1
    SCALAR = 2
    SCALAR_LOAD = 3
    # Synchronisation
    SET_FLAG = 10
    WAIT_FLAG = 11
    PIPE_BARRIER = 12
    BARRIER_ALL = 13
    CROSS_SET = 14
    CROSS_WAIT = 15
    # Data movement
    COPY = 20
    COPY_PAD = 21
    # Cube and fixpipe
    MMAD = 30
    FIXPIPE = 31
    # Vector
    VADD = 40
    VSUB = 41
    VMUL = 42
    VDIV = 43
    VMAX = 44
    VMIN = 45
    VADDS = 46
    VMULS = 47
    VMAXS = 48
    VMINS = 49
    VABS = 50
    VRELU = 51
    VEXP = 52
    VLN = 53
    VSQRT = 54
    VRSQRT = 55
    VREC = 56
    VCAST = 57
    VDUP = 58
    VBRCB = 59
    VCOPY = 60
    VCADD = 61
    VCMAX = 62
    VCMIN = 63
    VCGADD = 64
    VCGMAX = 65
    VCGMIN = 66
    VCPADD = 67
    VREDUCE_PATTERN = 68
    VAXPY = 69
    VMADD = 70
    VTRANSPOSE = 71
    VGATHER = 72
    VAND = 73
    VOR = 74
    VNOT = 75
    VCMP = 76
    VSEL = 77


class CopyLayout(IntEnum):
    """How a GM to L1 copy changes the layout; decides the row cost, not the values."""

    PLAIN = 0
    ND2NZ = 1


class CacheHint(IntEnum):
    """What a GM access does with L2."""

    NORMAL = 0
    BYPASS = 1


class Atomic(IntEnum):
    """What a GM write does with the old value."""

    NONE = 0
    ADD = 1


class AccumulatorStart(IntEnum):
    """Where an MMAD's accumulator starts."""

    ACCUMULATE = 0
    ZERO = 1
    BIAS = 2


class CrossMode(IntEnum):
    """Reach of a cross-core set."""

    ALL_OF_KIND = 0
    AIV_PAIR = 1
    GROUP = 2
    ONE_TO_ONE = 4


class Relation(IntEnum):
    """Relations of a vector compare, in the order of the hardware's compare modes."""

    LT = 0
    GT = 1
    EQ = 2
    LE = 3
    GE = 4
    NE = 5


class FixpipeMode(IntEnum):
    """Conversions of the fixpipe on its way out of L0C."""

    NO_QUANT = 0
    F322F16 = 1
    F322BF16 = 2
    DEQF16 = 3
    VDEQF16 = 4
    REQ8 = 5
    VREQ8 = 6
    QF322B8_PRE = 7
    VQF322B8_PRE = 8
    QS322BF16_PRE = 9
    VQS322BF16_PRE = 10
    QF322F16_PRE = 11
    VQF322F16_PRE = 12
    QF322BF16_PRE = 13
    VQF322BF16_PRE = 14
    QF322F32_PRE = 15
    VQF322F32_PRE = 16
    QF322FP8_PRE = 17
    VQF322FP8_PRE = 18
    QF322HIF8_PRE = 19
    VQF322HIF8_PRE = 20
    QF322HIF8_PRE_HYBRID = 21
    VQF322HIF8_PRE_HYBRID = 22


SYNC_OPCODES = frozenset(op for op in Opcode if Opcode.SET_FLAG <= op <= Opcode.CROSS_WAIT)
VECTOR_OPCODES = frozenset(op for op in Opcode if op >= Opcode.VADD)

ROW = np.dtype(
    [
        ("opcode", np.int16),
        ("pipe", np.int8),
        ("space", np.int8, OPERANDS),
        ("slot", np.int16, OPERANDS),
        ("offset", np.int64, OPERANDS),
        ("pattern", np.int32, OPERANDS),
        ("args", np.int64, ARGUMENTS),
        ("imm", np.float64, IMMEDIATES),
        ("source", np.int32),
    ]
)
"""One instruction of a block. Operand 0 is the destination; NONE (-1) in ``space`` marks an
operand that is absent, in ``slot`` an address that needs no instance base. ``pattern`` and
``source`` index the program's tables."""


@dataclass(frozen=True)
class Operand:
    """One operand: where it starts and what it touches from there.

    Attributes:
        space: memory it lies in.
        pattern: elements touched.
        offset: byte offset from the base.
        slot: name of the instance base it is relative to, or None for an absolute address.
    """

    space: Space
    pattern: Pattern
    offset: int = 0
    slot: str | None = None

    def shifted(self, offset_bytes: int) -> "Operand":
        """The same operand, ``offset_bytes`` further on."""
        return Operand(self.space, self.pattern, self.offset + offset_bytes, self.slot)


@dataclass(frozen=True)
class Instruction:
    """The reader's view of one row.

    Attributes:
        args: integer arguments by the names of `opcode_spec.SPEC`.
        imms: immediates by the names of `opcode_spec.SPEC`.
        source: ``file:line`` of the kernel line that emitted it, relative to the package.
    """

    opcode: Opcode
    pipe: Pipe
    dst: Operand | None
    srcs: tuple[Operand, ...]
    args: dict[str, int]
    imms: dict[str, float]
    source: str
