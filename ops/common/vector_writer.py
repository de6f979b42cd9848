"""Vector instructions with the barriers that their dependencies need.

The vector pipe starts an instruction before the result of the one before it is visible. A
kernel therefore puts a PIPE_V barrier between an instruction and a later one that reads or
overwrites its result; `VectorWriter` does that from the addresses, and only there.
"""

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.spaces import Pipe
from npusim.numerics.rounding import Rounding

Extent = tuple[int, int]

READ_BACK_CYCLES = 30
"""The scalar unit reads a number out of UB and computes a factor from it (inferred: published
times of row-by-row quantisations have about 300 cycles for each row, of which the vector
instructions explain 250)."""
_READ_BACK_EVENT = 0


class VectorWriter:
    """Emits vector instructions into a block.

    Args:
        k: the block.
    """

    def __init__(self, k: BlockBuilder) -> None:
        self.k = k
        self._written: list[Extent] = []

    def op(
        self,
        opcode: Opcode,
        dst: Operand,
        *srcs: Operand,
        args: tuple[int, ...] = (),
        scalar: float | None = None,
    ) -> None:
        """One instruction; a barrier first if it touches what was written since the last one."""
        touched = [_extent(o) for o in (dst, *srcs)]
        if any(a < d and c < b for a, b in touched for c, d in self._written):
            self.barrier()
        self.k.vector(opcode, dst, *srcs, args=args, scalar=scalar)
        self._written.append(touched[0])

    def cast(
        self,
        dst: Operand,
        src: Operand,
        rounding: Rounding = Rounding.RINT,
        saturate: bool = False,
    ) -> None:
        """Convert; exact conversions take no rounding mode.

        Args:
            saturate: always, else as the numerics model says.
        """
        wider = dst.pattern.dtype.bits > src.pattern.dtype.bits
        mode = Rounding.NONE if wider else rounding
        self.op(Opcode.VCAST, dst, src, args=(mode, int(saturate)))

    def barrier(self) -> None:
        """Wait until everything written is visible."""
        self.k.pipe_barrier(Pipe.VECTOR)
        self._written.clear()

    def read_back(self) -> None:
        """Let the scalar unit read a number that the vector unit has just computed.

        Kernels that go row by row do so once for each row, and issue nothing meanwhile. What
        they compute from the number is computed on the vector unit here: the instruction set
        has no arithmetic of the scalar unit.
        """
        self.k.set_flag(Pipe.VECTOR, Pipe.SCALAR, _READ_BACK_EVENT)
        self.k.wait_flag(Pipe.VECTOR, Pipe.SCALAR, _READ_BACK_EVENT)
        self.k.scalar(READ_BACK_CYCLES)
        self.k.set_flag(Pipe.SCALAR, Pipe.VECTOR, _READ_BACK_EVENT)
        self.k.wait_flag(Pipe.SCALAR, Pipe.VECTOR, _READ_BACK_EVENT)
        self._written.clear()


def _extent(operand: Operand) -> Extent:
    return operand.offset, operand.offset + operand.pattern.span_bytes
