"""Whole programs of kernels that only stream: tensors, UB areas, and every core's tiles."""

from collections.abc import Sequence
from typing import Any

from npusim.chips.model import Chip
from npusim.isa.builder import BlockFunction, ProgramBuilder
from npusim.isa.program import Program
from npusim.ops.common.grid_stream import GridTensor, GridTiling, place_grid
from npusim.ops.common.operator import TensorSpec
from npusim.ops.common.row_params import RowTiling, SplitTiling
from npusim.ops.common.row_pieces import place_pieces
from npusim.ops.common.row_stream import RowTensor, place_rows
from npusim.ops.common.tensors import declare
from npusim.ops.common.vector_stream import Areas, allocate_areas


def row_program(
    name: str,
    chip: Chip,
    params: Any,
    tensors: Sequence[TensorSpec],
    tiling: RowTiling | SplitTiling,
    areas: Areas,
    block: BlockFunction,
    *,
    rows: int,
    row_tensors: Sequence[RowTensor],
    prologue: BlockFunction | None = None,
    ahead: tuple[RowTensor, ...] = (),
) -> Program:
    """A kernel whose tiles are whole rows.

    Args:
        name: of the program and of its stage.
        params: first argument of ``block`` and ``prologue``; the stream follows.
        block, row_tensors, ahead: see `place_rows`.
        prologue: a block that each core runs once before its rows.
    """
    builder = ProgramBuilder.for_chip(name, chip)
    gm = declare(builder, tensors)
    stream = allocate_areas(builder, areas, tiling.buffers)
    place_rows(
        builder,
        name,
        rows=rows,
        tile_rows=tiling.tile_rows,
        cores=tiling.cores,
        stream=stream,
        block=block,
        args=(params,),
        tensors=gm,
        row_tensors=row_tensors,
        prologue=None if prologue is None else (prologue, (params, stream)),
        ahead=ahead,
    )
    return builder.finish()


def piece_program(
    name: str,
    chip: Chip,
    params: Any,
    tensors: Sequence[TensorSpec],
    tiling: SplitTiling,
    areas: Areas,
    block: BlockFunction,
    *,
    passes: int,
    rows: int,
    cols: int,
    row_tensors: Sequence[RowTensor],
) -> Program:
    """A kernel whose rows pass through UB in pieces; arguments as of `row_program`.

    Args:
        passes: how often a row passes; see `place_pieces`.
    """
    builder = ProgramBuilder.for_chip(name, chip)
    gm = declare(builder, tensors)
    place_pieces(
        builder,
        name,
        rows=rows,
        cols=cols,
        width=tiling.tile_cols,
        cores=tiling.cores,
        passes=passes,
        stream=allocate_areas(builder, areas, tiling.buffers),
        block=block,
        args=(params,),
        tensors=gm,
        row_tensors=row_tensors,
    )
    return builder.finish()


def grid_program(
    name: str,
    chip: Chip,
    params: Any,
    tensors: Sequence[TensorSpec],
    tiling: GridTiling,
    areas: Areas,
    block: BlockFunction,
    *,
    rows: int,
    cols: int,
    grid_tensors: Sequence[GridTensor],
) -> Program:
    """A kernel over two-dimensional tiles; arguments as of `row_program` and `place_grid`."""
    builder = ProgramBuilder.for_chip(name, chip)
    gm = declare(builder, tensors)
    place_grid(
        builder,
        name,
        rows=rows,
        cols=cols,
        tiling=tiling,
        stream=allocate_areas(builder, areas, tiling.buffers),
        block=block,
        args=(params,),
        tensors=gm,
        grid_tensors=grid_tensors,
    )
    return builder.finish()
