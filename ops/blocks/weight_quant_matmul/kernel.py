"""The tile program: cube cores multiply what the vector cores of their group have widened.

A group owns output tiles. For each of them its AIVs bring the int8 columns of ``b`` in chunks
of K into a workspace in 16 bits, which stays in L2; its AIC reads them as an ordinary matmul
reads B. Flags beside those of `matmul_loop` and `vector_stream`, between cores in mode 2: FULL
(both AIVs to the AIC) says that a chunk is written, FREE (AIC to AIVs) that it was read. The
AIVs run ``ahead`` chunks ahead.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from npusim.chips.model import Chip
from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Program, Tensor
from npusim.isa.spaces import CoreKind
from npusim.ops.blocks.weight_quant_matmul import cube, widen
from npusim.ops.blocks.weight_quant_matmul.params import WeightQuantParams, tensors
from npusim.ops.blocks.weight_quant_matmul.tiling import WeightQuantTiling, widen_areas
from npusim.ops.blocks.weight_quant_matmul.widen import Widener
from npusim.ops.common import matmul_loop
from npusim.ops.common.fractals import ceil_div
from npusim.ops.common.matmul_loop import MatmulLoop
from npusim.ops.common.matmul_walk import Place, Visit, visits_of
from npusim.ops.common.operator import Arrays
from npusim.ops.common.tensors import declare
from npusim.ops.common.tiles import share
from npusim.ops.common.vector_stream import Stream, allocate_areas

STAGE = "weight_quant_matmul"
_CHUNKS_PER_BLOCK = 8


@dataclass(frozen=True)
class Kernel:
    """What the placement of one group needs."""

    builder: ProgramBuilder
    params: WeightQuantParams
    tiling: WeightQuantTiling
    gm: dict[str, Tensor]
    work: Tensor
    loop: MatmulLoop
    stream: Stream
    aivs: int


def build(
    params: WeightQuantParams, tiling: WeightQuantTiling, chip: Chip, control: Arrays
) -> Program:
    """The program of one matmul with int8 weights."""
    builder = ProgramBuilder.for_chip(STAGE, chip)
    gm = declare(builder, tensors(params))
    shape = (tiling.cores, tiling.ahead, tiling.chunk_k, tiling.base_n)
    size = 2 * tiling.cores * tiling.ahead * tiling.chunk_k * tiling.base_n
    work = builder.workspace(size, {"weights": (0, params.dtype, shape)})["weights"]
    loop = matmul_loop.allocate(
        builder.memory(CoreKind.AIC),
        params.a,
        params.widened(tiling.base_n),
        base=(tiling.base_m, tiling.base_n, tiling.base_k),
        steps=(tiling.step_k, tiling.step_k),
        l1_buffers=2,
        l0c_buffers=tiling.l0c_buffers,
    )
    stream = allocate_areas(builder, widen_areas(params, tiling.base_n, tiling.rows), 2)
    kernel = Kernel(builder, params, tiling, gm, work, loop, stream, chip.aiv_per_aic)
    across, down = ceil_div(params.N, tiling.base_n), ceil_div(params.M, tiling.base_m)
    for core in range(tiling.cores):
        first, count = share(across * down, tiling.cores, core)
        if count:
            places = [_place_of(kernel, number, down) for number in range(first, first + count)]
            visits = visits_of(loop, places)
            _place_aic(kernel, core, visits)
            for part in range(kernel.aivs):
                _place_aiv(kernel, core, part, visits)
    return builder.finish()


def _place_of(kernel: Kernel, number: int, down: int) -> Place:
    """Output tiles are numbered down the columns: a group's tiles share their columns."""
    params, tiling = kernel.params, kernel.tiling
    row, col = number % down * tiling.base_m, number // down * tiling.base_n
    return Place(
        number=number,
        row=row,
        col=col,
        m=min(tiling.base_m, params.M - row),
        n=min(tiling.base_n, params.N - col),
        a=kernel.gm["a"].at(row),
        b=0,
    )


def _chunks(kernel: Kernel, core: int, turn: int) -> dict[str, int]:
    """Where the chunks of a group's tile are in the workspace."""
    count, ahead = kernel.loop.left.chunks, kernel.tiling.ahead
    return {f"w{i}": kernel.work.at(core, (turn * count + i) % ahead) for i in range(count)}


def _place_aic(kernel: Kernel, core: int, visits: list[Visit]) -> None:
    builder, params, loop = kernel.builder, kernel.params, kernel.loop
    aic = builder.aic(core)
    builder.place(aic, matmul_loop.prime, (loop,), stage=STAGE)
    for turn, visit in enumerate(visits):
        builder.place(
            aic,
            cube.tile,
            (loop, visit.m, visit.n, params.N, params.dtype, visit.turns),
            stage=STAGE,
            tile=visit.number,
            a=visit.bases["a"],
            y=kernel.gm["y"].at(visit.row, visit.col),
            **_chunks(kernel, core, turn),
        )
    builder.place(aic, matmul_loop.drain, (loop,), stage=STAGE)


def _place_aiv(kernel: Kernel, core: int, part: int, visits: list[Visit]) -> None:
    builder, t = kernel.builder, kernel.tiling
    aiv = builder.aiv(core * kernel.aivs + part)
    side = Widener(kernel.params, kernel.stream, part, kernel.aivs, t.base_n, t.chunk_k, t.rows)
    total, turn = kernel.loop.left.chunks, 0
    builder.place(aiv, widen.prime, (side,), stage="widen")
    for number, visit in enumerate(visits):
        vectors = {name: kernel.gm[name].at(visit.col) for name in kernel.params.vectors}
        builder.place(aiv, widen.load_vectors, (side, visit.n), stage="widen", **vectors)
        where = list(_chunks(kernel, core, number).values())
        for first, count, waits in _runs(kernel, t.ahead - number * total):
            length = min(t.chunk_k, kernel.params.K - first * t.chunk_k)
            builder.place(
                aiv,
                widen.chunks,
                (side, visit.n, length, count, turn % 2, waits),
                stage="widen",
                tile=visit.number,
                b=kernel.gm["b"].at(first * t.chunk_k, visit.col),
                **{f"w{i}": where[first + i] for i in range(count)},
            )
            turn += count * widen.pieces(side, length)
        builder.place(aiv, widen.release_vectors, (side,), stage="widen")
    left = min(t.ahead, total * len(visits))
    builder.place(aiv, widen.drain, (side, left), stage="widen")


def _runs(kernel: Kernel, unread: int) -> Iterator[tuple[int, int, bool]]:
    """A tile's chunks in runs of equal blocks: (first, count, whether they wait for the AIC).

    Args:
        unread: chunks that may be written without waiting.
    """
    total = kernel.loop.left.chunks
    whole = kernel.params.K // kernel.tiling.chunk_k
    first = 0
    while first < total:
        waits = first >= unread
        end = total if waits else min(total, unread)
        end = min(end, first + _CHUNKS_PER_BLOCK, whole if first < whole else total)
        yield first, end - first, waits
        first = end
