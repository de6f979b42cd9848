"""A first tile program: y = x + x on the vector cores, from an empty builder to a trace.

Run it with ``python examples/first_kernel.py``; it writes ``first_kernel.json.gz``, which opens in
Perfetto (ui.perfetto.dev) and chrome://tracing.
"""

from pathlib import Path

import numpy as np

from npusim import load_chip
from npusim.functional.interpreter import run_program
from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import Opcode
from npusim.isa.printer import print_program
from npusim.isa.program import TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.isa.verify import verify
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel
from npusim.timing.run import run_timing
from npusim.traces.chrome import write_chrome_trace

ROWS, COLS, TILE_ROWS = 64, 128, 4


# %% A block is a function that writes instructions. It depends on its arguments only.
def prime(k: BlockBuilder, tiles: PingPong) -> None:
    """Mark both tile buffers free before the first use."""
    tiles.prime(k)


def double_tile(k: BlockBuilder, tiles: PingPong, turn: int) -> None:
    """Load a tile, add it to itself, store it; two buffers let loads run ahead."""
    shape = patterns.nd(DType.FP32, TILE_ROWS, COLS)
    tile = tiles.buffer(turn).at(shape)
    tiles.wait_free(k, turn)
    k.copy(tile, k.gm("x", shape))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, turn)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, turn)
    k.vector(Opcode.VADD, tile, tile, tile)
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, turn)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, turn)
    k.copy(k.gm("y", shape), tile)
    tiles.release(k, turn)


def drain(k: BlockBuilder, tiles: PingPong) -> None:
    """Take the free marks back, so that every flag is balanced."""
    tiles.drain(k)


def main(folder: Path = Path()) -> None:
    """Build, check, compute, time and trace the kernel."""
    # %% Place the blocks: each core gets its rows, each instance its addresses.
    chip = load_chip("toy")
    builder = ProgramBuilder.for_chip("double", chip)
    x = builder.tensor("x", DType.FP32, (ROWS, COLS), TensorKind.INPUT)
    y = builder.tensor("y", DType.FP32, (ROWS, COLS), TensorKind.OUTPUT)
    memory = builder.memory(CoreKind.AIV)
    size = TILE_ROWS * COLS * 4
    tiles = PingPong(
        tuple(memory.alloc(f"tile{i}", Space.UB, size) for i in range(2)),
        producer=Pipe.MTE2,
        consumer=Pipe.MTE3,
        first_event=0,
    )
    per_core = ROWS // chip.cores.aiv
    for index in range(chip.cores.aiv):
        core = builder.aiv(index)
        builder.place(core, prime, (tiles,), stage="double")
        for turn, row in enumerate(range(index * per_core, (index + 1) * per_core, TILE_ROWS)):
            builder.place(
                core, double_tile, (tiles, turn % 2), stage="double", tile=turn,
                x=x.at(row), y=y.at(row),
            )  # fmt: skip
        builder.place(core, drain, (tiles,), stage="double")
    program = builder.finish()
    verify(program, chip)
    print(print_program(program).split("core 1")[0])

    # %% What it computes.
    values = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS)
    model = NumericsModel.default(chip.architecture)
    outputs = run_program(program, {"x": values}, model=model)
    print("values equal:", bool((outputs["y"] == values + values).all()))

    # %% When it happens, and how much of the time a second buffer hides.
    records = run_timing(program, chip)
    print(f"{records.time_us:.2f} us, of which {records.kernel_us:.2f} us in the kernel")
    path = folder / "first_kernel.json.gz"
    slices = write_chrome_trace(path, program, records, clock_mhz=chip.cores.clock_mhz)
    print(f"{slices} slices in {path.name}")


if __name__ == "__main__":
    main()
