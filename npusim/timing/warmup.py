"""Compiles everything once, so that the first real run starts at once."""

from npusim.chips.load import load_chip
from npusim.code_cache import drop_stale
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Space
from npusim.numerics.formats import DType
from npusim.timing.options import Engine, Level
from npusim.timing.run import run_timing

CHIP = "toy"
ELEMENTS = 64


def warmup() -> str:
    """Compile the fast engine into its cache.

    Returns:
        one line that says where the machine code is, or why there is none.
    """
    try:
        from npusim.timing import engine_compiled
    except ImportError as missing:
        return f"nothing to compile: {missing}; runs use the simpy engine, which is slower"
    chip = load_chip(CHIP)
    run_timing(_program(), chip, engine=Engine.COMPILED, level=Level.SUMMARY)
    folder = engine_compiled.code_folder()
    if folder is None:
        return "compiled, but no folder is writable: every process has to compile again"
    drop_stale(folder)
    return f"the compiled engine is ready in {folder}"


def _program() -> Program:
    """One copy: machine code does not depend on the program, so the smallest will do."""
    sizes = dict.fromkeys(Space, 1 << 14)
    builder = ProgramBuilder("warmup", architecture=2201, aic=1, aiv=2, sizes=sizes)
    source = builder.tensor("x", DType.FP32, (ELEMENTS,), TensorKind.INPUT)
    core = builder.aiv(0)
    buffer = builder.memory(CoreKind.AIV).alloc("x", Space.UB, source.size_bytes)
    builder.place(core, _load, (buffer,), stage="load", x=source.address)
    return builder.finish()


def _load(k: BlockBuilder, buffer: Buffer) -> None:
    k.copy(buffer.linear(DType.FP32, ELEMENTS), k.gm("x", patterns.linear(DType.FP32, ELEMENTS)))
