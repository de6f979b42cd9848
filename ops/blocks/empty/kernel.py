"""The tile program of nothing."""

from npusim.chips.model import Chip
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Program
from npusim.ops.blocks.empty.params import EmptyParams, EmptyTiling, KernelKind
from npusim.ops.common.operator import Arrays


def build(params: EmptyParams, tiling: EmptyTiling, chip: Chip, control: Arrays) -> Program:
    """One scalar instruction on every core."""
    builder = ProgramBuilder.for_chip(f"empty {params.kind.value}", chip)
    if params.kind is not KernelKind.VECTOR:
        for i in range(tiling.cores):
            builder.place(builder.aic(i), nothing, stage="empty")
    aivs = {
        KernelKind.VECTOR: tiling.cores,
        KernelKind.CUBE: 0,
        KernelKind.MIXED: tiling.cores * chip.aiv_per_aic,
    }[params.kind]
    for i in range(aivs):
        builder.place(builder.aiv(i), nothing, stage="empty")
    return builder.finish()


def nothing(k: BlockBuilder) -> None:
    """One cycle of the scalar unit."""
    k.scalar(1)
