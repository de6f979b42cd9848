"""The tile program of the AdamW step.

Each AIV streams its share of four tensors in and of three out. Everything is computed in fp32:

    m = beta1 m + (1 - beta1) g
    v = beta2 v + (1 - beta2) g^2
    var = (1 - lr decay) var - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)

Flags: `vector_stream`.

Not modelled: published runs of a step whose factors are tensors of one element, by themselves and
on a million elements or more, take 20 to 25 us plus 0.92 cycles for each element of a core in
fp32 and bf16, and about 0.4 in fp16. The slopes look like 59 cycles for 256 bytes of every type,
several times what these formulas need: factors spread over whole tiles, and fp16 not widened.
Launch explains 9 us of the constant; steps inside networks, with factors by value, have no more
than that. One without the other would be worse than neither, so both are left out.
"""

from npusim.chips.model import Chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import Opcode, Operand
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.ops.blocks.apply_adamw.params import AdamWParams, areas, tensors
from npusim.ops.common.grid_stream import GridTiling, stream_grid
from npusim.ops.common.operator import Arrays
from npusim.ops.common.streaming_programs import grid_program
from npusim.ops.common.vector_stream import Stream
from npusim.ops.common.vector_writer import VectorWriter


def build(params: AdamWParams, tiling: GridTiling, chip: Chip, control: Arrays) -> Program:
    """The program of one AdamW step."""
    return grid_program(
        "apply_adamw",
        chip,
        params,
        tensors(params),
        tiling,
        areas(params, tiling.tile_rows, tiling.tile_cols),
        tiles,
        rows=1,
        cols=params.elements,
        grid_tensors=params.loads,
    )


def tiles(
    k: BlockBuilder,
    params: AdamWParams,
    stream: Stream,
    rows: int,
    cols: int,
    count: int,
    down: bool,
    turn: int,
) -> None:
    """``count`` tiles of ``cols`` elements."""

    def compute(v: VectorWriter, i: int) -> None:
        step(v, params, stream, cols, i)

    shape = (rows, cols, count, down)
    stream_grid(k, stream, params.loads, params.stores, shape, turn, compute)


def step(v: VectorWriter, params: AdamWParams, stream: Stream, cols: int, turn: int) -> None:
    """One tile in UB."""
    narrow = params.dtype is not DType.FP32
    row, raw = (patterns.linear(dtype, cols) for dtype in (DType.FP32, params.dtype))
    inputs = [stream.input(turn, i).at(raw) for i in range(len(params.loads))]
    outputs = [stream.output(turn, i).at(raw) for i in range(len(params.stores))]
    t, u, *areas = (area.at(row) for area in stream.scratch)
    results = outputs
    if narrow:
        for wide, source in zip(areas, inputs, strict=True):
            v.cast(wide, source)
        inputs, results = areas, areas[: len(outputs)]
    update(v, params, inputs, results, t, u)
    if narrow:
        for output, result in zip(outputs, results, strict=True):
            v.cast(output, result)


def update(
    v: VectorWriter,
    params: AdamWParams,
    inputs: list[Operand],
    results: list[Operand],
    t: Operand,
    u: Operand,
) -> None:
    """The formulas on fp32 operands.

    Args:
        inputs: parameter, moments, gradient.
        results: parameter and moments; may be the inputs.
        t, u: scratch.
    """
    var, m, v2, grad = inputs
    new_var, new_m, new_v = results
    f = params.factors
    # Two independent chains side by side: one barrier serves an instruction of each.
    v.op(Opcode.VMULS, t, grad, scalar=f.new_m)
    v.op(Opcode.VMUL, u, grad, grad)
    v.op(Opcode.VMULS, new_m, m, scalar=f.old_m)
    v.op(Opcode.VMULS, new_v, v2, scalar=f.old_v)
    v.op(Opcode.VMULS, u, u, scalar=f.new_v)
    v.op(Opcode.VADD, new_m, new_m, t)
    v.op(Opcode.VADD, new_v, new_v, u)
    v.op(Opcode.VMULS, t, new_m, scalar=f.rate)
    v.op(Opcode.VMULS, u, new_v, scalar=f.unbias_v)
    v.op(Opcode.VMULS, new_var, var, scalar=f.decay)
    v.op(Opcode.VSQRT, u, u)
    v.op(Opcode.VADDS, u, u, scalar=f.epsilon)
    v.op(Opcode.VDIV, t, t, u)
    v.op(Opcode.VADD, new_var, new_var, t)
