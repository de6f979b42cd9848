"""Small legal programs that the tests of the instruction set share."""

from npusim.isa import patterns
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer, PingPong
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import CrossMode, Opcode
from npusim.isa.program import Program, TensorKind
from npusim.isa.spaces import CoreKind, Pipe, Space
from npusim.numerics.formats import DType

TOY_SIZES = {
    Space.L1: 65536,
    Space.L0A: 8192,
    Space.L0B: 8192,
    Space.L0C: 16384,
    Space.BT: 1024,
    Space.FB: 7168,
    Space.UB: 16384,
}


def toy_builder(name: str = "test") -> ProgramBuilder:
    """A builder for a machine of one AIC and two AIVs."""
    return ProgramBuilder(name, architecture=2201, aic=1, aiv=2, sizes=TOY_SIZES)


def prime(k: BlockBuilder, pingpong: PingPong) -> None:
    """Mark both buffers free."""
    pingpong.prime(k)


def drain(k: BlockBuilder, pingpong: PingPong) -> None:
    """Take the marks back."""
    pingpong.drain(k)


def double_tile(k: BlockBuilder, pingpong: PingPong, turn: int, rows: int, cols: int) -> None:
    """GM to UB, add the tile to itself, UB to GM."""
    buffer = pingpong.buffer(turn)
    tile = patterns.nd(DType.FP32, rows, cols)
    pingpong.wait_free(k, turn)
    k.copy(buffer.at(tile), k.gm("x", tile))
    k.set_flag(Pipe.MTE2, Pipe.VECTOR, turn)
    k.wait_flag(Pipe.MTE2, Pipe.VECTOR, turn)
    k.vector(Opcode.VADD, buffer.at(tile), buffer.at(tile), buffer.at(tile))
    k.set_flag(Pipe.VECTOR, Pipe.MTE3, turn)
    k.wait_flag(Pipe.VECTOR, Pipe.MTE3, turn)
    k.copy(k.gm("y", tile), buffer.at(tile))
    pingpong.release(k, turn)


def double_program(rows: int = 32, cols: int = 64, tile_rows: int = 4) -> Program:
    """y = x + x over both AIVs of the toy machine, double buffered."""
    b = toy_builder("double")
    x = b.tensor("x", DType.FP32, (rows, cols), TensorKind.INPUT)
    y = b.tensor("y", DType.FP32, (rows, cols), TensorKind.OUTPUT)
    ub = b.memory(CoreKind.AIV)
    size = tile_rows * cols * 4
    buffers = tuple(ub.alloc(f"tile{i}", Space.UB, size) for i in range(2))
    pingpong = PingPong(buffers, Pipe.MTE2, Pipe.MTE3, first_event=0)
    per_core = rows // 2
    for v in range(2):
        core = b.aiv(v)
        b.place(core, prime, (pingpong,), stage="double")
        for turn, row in enumerate(range(v * per_core, (v + 1) * per_core, tile_rows)):
            args = (pingpong, turn % 2, tile_rows, cols)
            b.place(core, double_tile, args, stage="double", tile=turn, x=x.at(row), y=y.at(row))
        b.place(core, drain, (pingpong,), stage="double")
    return b.finish()


def all_aiv_barrier(k: BlockBuilder, flag: int) -> None:
    """Barrier over all AIVs through a mode-0 flag."""
    k.cross_set(CrossMode.ALL_OF_KIND, flag, Pipe.MTE3)
    k.cross_wait(CrossMode.ALL_OF_KIND, flag, Pipe.MTE3)


def one_row(k: BlockBuilder, buffer: Buffer, write: str) -> None:
    """A block of a single instruction chosen by name, for error tests."""
    tile = patterns.linear(DType.FP32, 64)
    if write == "set_flag":
        k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
    elif write == "set_event_9":
        k.set_flag(Pipe.MTE2, Pipe.VECTOR, 9)
        k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 9)
    elif write == "copy":
        k.copy(buffer.at(tile), k.gm("x", tile))
    elif write == "unaligned":
        k.vector(Opcode.VABS, buffer.at(tile, 4), buffer.at(tile))
    elif write == "cross_wait":
        k.cross_wait(CrossMode.ALL_OF_KIND, 3, Pipe.MTE3)
