"""Programs of a few rows for the tests of findings."""

from collections.abc import Callable

from small_programs import toy_builder

from npusim.chips.load import load_chip
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import (
    Operand,
)
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType
from npusim.sanitize.check import check_program
from npusim.sanitize.findings import Finding, Report

TOY = load_chip("toy")
TILE = patterns.linear(DType.FP32, 64)
Writes = Callable[[BlockBuilder], None]


def ub(offset: int = 0, pattern: patterns.Pattern = TILE) -> Operand:
    return Operand(Space.UB, pattern, offset)


def program_of(blocks: dict[str, Writes], kind: TensorKind = TensorKind.INOUT) -> Program:
    """One instance for each named core, such as ``aiv 0``; GM base ``x``, 8 KiB."""
    b = toy_builder("small")
    x = b.tensor("x", DType.FP32, (2048,), kind)
    b.memory(CoreKind.AIV).alloc("tile", Space.UB, 256)
    for name, write in blocks.items():
        core = b.aic(0) if name == "aic" else b.aiv(int(name[-1]))
        b.place(core, write, stage=name.replace(" ", "_"), x=x.address)
    return b.finish()


def check(blocks: dict[str, Writes], kind: TensorKind = TensorKind.INOUT) -> Report:
    return check_program(program_of(blocks, kind), TOY)


def only(report: Report) -> Finding:
    """The one error of a report."""
    assert len(report.errors) == 1, [str(f) for f in report.errors]
    return report.errors[0]


def load(k: BlockBuilder) -> None:
    k.copy(ub(), k.gm("x", TILE))


def flag(k: BlockBuilder, src: Pipe, dst: Pipe, event: int = 0) -> None:
    k.set_flag(src, dst, event)
    k.wait_flag(src, dst, event)


def store(k: BlockBuilder) -> None:
    load(k)
    flag(k, Pipe.MTE2, Pipe.MTE3)
    k.copy(k.gm("x", TILE, 1024), ub())


def fetch(k: BlockBuilder) -> None:
    k.copy(ub(), k.gm("x", TILE, 1024))
