"""The tile program for rows that are too long for UB in fp32.

Three passes over the pieces of a row. The first adds the summands, keeps the 16-bit sum in UB
and gathers the squares; the second normalises the sum and finds the largest magnitudes; the
third normalises again and quantises. Gamma and the smoothing scales come from GM with every
piece of the last two passes. The order of all operations is that of whole rows, so are the
bits.

| flags | meaning |
|---|---|
| rings of `vector_stream` | pieces of summands or shared rows; pieces of int8 rows and scales |
| VECTOR to MTE3, event ``buffers`` | the row's sum is complete; back: it is written |
"""

from collections.abc import Mapping, Sequence

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.program import Tensor
from npusim.isa.spaces import Pipe
from npusim.numerics.formats import DType
from npusim.ops.blocks.add_rms_norm_dynamic_quant.params import AddNormQuantParams
from npusim.ops.blocks.add_rms_norm_dynamic_quant.tiling import AddNormQuantTiling
from npusim.ops.common import vector_stream
from npusim.ops.common.fractals import ceil_div
from npusim.ops.common.row_formulas import (
    factors_of_largest,
    inverse,
    magnitude,
    root_of_sums,
    square,
    to_int8,
)
from npusim.ops.common.row_ops import (
    MAXIMUM,
    SUM,
    Rows,
    by_row_number,
    finish_lanes,
    fold_lanes,
    spread,
)
from npusim.ops.common.row_pieces import NumberAreas, PieceRow
from npusim.ops.common.tiles import share
from npusim.ops.common.vector_stream import Stream

F32 = DType.FP32


def place(
    builder: ProgramBuilder,
    stage: str,
    params: AddNormQuantParams,
    tiling: AddNormQuantTiling,
    stream: Stream,
    gm: Mapping[str, Tensor],
) -> None:
    """Give every core its rows, one instance each."""
    moving = {t.slot: t.row_bytes for t in (*params.loads, *params.stores)}
    pieces = ceil_div(params.cols, tiling.tile_cols)
    for core in range(min(tiling.cores, params.rows)):
        first, count = share(params.rows, tiling.cores, core)
        aiv = builder.aiv(core)
        builder.place(aiv, prime, (stream,), stage=stage)
        for i in range(count):
            turns = (3 * pieces * i % tiling.buffers, pieces * i % tiling.buffers)
            bases = {slot: t.address + (first + i) * moving.get(slot, 0) for slot, t in gm.items()}
            args = (params, stream, tiling.tile_cols, *turns)
            builder.place(aiv, row, args, stage=stage, tile=i, **bases)
        builder.place(aiv, drain, (stream,), stage=stage)


def prime(k: BlockBuilder, stream: Stream) -> None:
    """All buffers are free."""
    vector_stream.prime(k, stream)
    _total(stream).prime(k)


def drain(k: BlockBuilder, stream: Stream) -> None:
    """Wait until all buffers are free again."""
    vector_stream.drain(k, stream)
    _total(stream).drain(k)


def row(
    k: BlockBuilder, params: AddNormQuantParams, stream: Stream, width: int, turn: int, out: int
) -> None:
    """One row.

    Args:
        width: columns of a piece.
        turn, out: next turns of the input and the output ring.
    """
    pass_over = _Row(k, params, stream, width, turn, out)
    pass_over.add()
    pass_over.find_largest()
    pass_over.quantise()


def _total(stream: Stream) -> PingPong:
    """The sum of a row, handed to MTE3 once it is complete."""
    return PingPong((stream.scratch[2],), Pipe.VECTOR, Pipe.MTE3, len(stream.outputs.buffers))


class _Row(PieceRow):
    """Writes the passes over one row."""

    def __init__(
        self,
        k: BlockBuilder,
        params: AddNormQuantParams,
        stream: Stream,
        width: int,
        turn: int,
        out: int,
    ) -> None:
        super().__init__(k, stream, params.cols, width, turn, out)
        self.params = params
        self.size = params.dtype.size_bytes
        self.total = _total(stream)
        areas = stream.scratch[3:]
        self.root, *self.quants = (NumberAreas(*areas[i : i + 3]) for i in range(0, len(areas), 3))

    def add(self) -> None:
        """The sum, and the root of its mean square."""
        names = [t.slot for t in self.params.loads]
        self.total.wait_free(self.k, 0)
        for col, count in self.pieces:
            first, *others = self._load(names, col, count)
            x, t = self._wide(0, count), self._wide(1, count)
            self.v.cast(x.all(), first)
            for other in others:
                self.v.cast(t.all(), other)
                self.v.op(Opcode.VADD, x.all(), x.all(), t.all())
            self.release()
            rounded = self.total.buffer(0).linear(self.params.dtype, count, col * self.size)
            self.v.cast(rounded, x.all())
            self.v.cast(x.all(), rounded)
            square(self.v, t.all(), x.all())
            fold_lanes(self.v, SUM, t, self.root.lanes, started=col > 0)
        self.total.publish(self.k, 0)
        self.total.wait_full(self.k, 0)
        whole = self.params.sum.in_gm(1)
        self.k.copy(self.k.gm("x", whole), self.total.buffer(0).at(whole))
        self.total.release(self.k, 0)
        mean = self.root.number.linear(F32, 1)
        finish_lanes(self.v, SUM, 1, self.root.lanes, mean)
        self.v.read_back()
        root_of_sums(self.v, mean, self.params.cols, self.params.epsilon)
        inverse(self.v, mean, self.root.lanes.linear(F32, 1))
        spread(self.v, self.root.block, mean, 1)

    def find_largest(self) -> None:
        """Largest magnitude of every int8 row, and its factor."""
        for col, count in self.pieces:
            x, t = self._normalised(col, count)
            for i, quant in enumerate(self.quants):
                self._smoothed(x, t, i, count)
                magnitude(self.v, t.all(), t.all())
                fold_lanes(self.v, MAXIMUM, t, quant.lanes, started=col > 0)
            self.release()
        for quant in self.quants:
            largest = quant.number.linear(F32, 1)
            finish_lanes(self.v, MAXIMUM, 1, quant.lanes, largest)
            self.v.read_back()

    def quantise(self) -> None:
        """The int8 rows, and their scales with the first piece."""
        n = len(self.quants)
        for col, count in self.pieces:
            x, t = self._normalised(col, count)
            self.wait_free()
            if col == 0:
                self._factors()
            for i, quant in enumerate(self.quants):
                self._smoothed(x, t, i, count)
                by_row_number(self.v, Opcode.VMUL, t, t, quant.block)
                to_int8(self.v, self.stream.output(self.out, i).linear(DType.INT8, count), t)
            self.release()
            outs = [
                (y.slot, self.stream.output(self.out, i).linear(DType.INT8, count), col)
                for i, y in enumerate(self.params.ys)
            ]
            if col == 0:
                outs += [
                    (t.slot, self.stream.output(self.out, n + i).linear(F32, 1), 0)
                    for i, t in enumerate(self.params.scales)
                ]
            self.store(outs)

    def _factors(self) -> None:
        n = len(self.quants)
        for i, quant in enumerate(self.quants):
            largest, one = quant.number.linear(F32, 1), quant.lanes.linear(F32, 1)
            scale = self.stream.output(self.out, n + i).linear(F32, 1)
            factors_of_largest(self.v, largest, one, scale)
            spread(self.v, quant.block, largest, 1)

    def _normalised(self, col: int, count: int) -> tuple[Rows, Rows]:
        """A piece of the sum over its root, times gamma, and a second area as large."""
        gamma, *_ = self._load(self.params.shared, col, count)
        x, t = self._wide(0, count), self._wide(1, count)
        rounded = self.total.buffer(0).linear(self.params.dtype, count, col * self.size)
        self.v.cast(x.all(), rounded)
        by_row_number(self.v, Opcode.VMUL, x, x, self.root.block)
        self.v.cast(t.all(), gamma)
        self.v.op(Opcode.VMUL, x.all(), x.all(), t.all())
        return x, t

    def _smoothed(self, x: Rows, t: Rows, index: int, count: int) -> None:
        """t = x, smoothed if there are smoothing scales."""
        if not self.params.smooths:
            self.v.op(Opcode.VCOPY, t.all(), x.all())
            return
        narrow = self.stream.input(self.turn, 1 + index).linear(self.params.dtype, count)
        self.v.cast(t.all(), narrow)
        self.v.op(Opcode.VMUL, t.all(), x.all(), t.all())

    def _load(self, names: Sequence[str], col: int, count: int) -> list[Operand]:
        return self.load([(name, self.params.dtype) for name in names], col, count)

    def _wide(self, index: int, count: int) -> Rows:
        return self.wide(self.stream.scratch[index], count)
