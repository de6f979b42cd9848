"""MMAD and FIXPIPE from L0 to GM: sizes that leave padding, starts, modes."""

from collections.abc import Callable

import numpy as np
import pytest

from npusim.errors import ProgramError
from npusim.functional import run_program
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.builder import ProgramBuilder
from npusim.isa.instructions import (
    AccumulatorStart,
    CopyLayout,
    FixpipeMode,
    Operand,
)
from npusim.isa.patterns import linear
from npusim.isa.program import TensorKind
from npusim.isa.spaces import CoreKind, Space
from npusim.numerics.formats import Array, DType
from npusim.numerics.model import NumericsModel
from npusim.numerics.quant_parameter import pack
from npusim.ops.common import fractals
from npusim.ops.common.fractals import round_up

New = Callable[[], ProgramBuilder]
Areas = dict[Space, Buffer]


def product(
    k: BlockBuilder,
    spaces: tuple[tuple[Space, Buffer], ...],
    dtype: DType,
    out: DType,
    m: int,
    n: int,
    kk: int,
    mode: FixpipeMode,
    start: AccumulatorStart,
    packed: int,
) -> None:
    """c (m, n) = a (m, kk) b (kk, n) through every memory."""
    at = dict(spaces)
    acc = DType.INT32 if dtype is DType.INT8 else DType.FP32
    a_rows, b_rows = round_up(m, 16), round_up(kk, max(16, dtype.c0))
    a_l1 = at[Space.L1].part("a", 0, 16384)
    b_l1 = at[Space.L1].part("b", 16384, 16384)
    extra = at[Space.L1].part("extra", 32768, 8192)
    one = linear(dtype, 1)
    nd2nz = CopyLayout.ND2NZ
    fractals.emit(
        k, fractals.nd_to_l1(dtype, m, kk, kk, a_rows), a_l1.at(one), k.gm("a", one), layout=nd2nz
    )
    fractals.emit(
        k, fractals.nd_to_l1(dtype, kk, n, n, b_rows), b_l1.at(one), k.gm("b", one), layout=nd2nz
    )
    k.barrier_all()
    fractals.emit(k, fractals.l1_to_l0a(dtype, m, kk, a_rows), at[Space.L0A].at(one), a_l1.at(one))
    fractals.emit(k, fractals.l1_to_l0b(dtype, kk, n, b_rows), at[Space.L0B].at(one), b_l1.at(one))
    bias = None
    if start is AccumulatorStart.BIAS:
        bias = at[Space.BT].linear(acc, n)
        k.copy(extra.linear(acc, n), k.gm("extra", linear(acc, n)))
        k.barrier_all()
        k.copy(bias, extra.linear(acc, n))
    scales = None
    if mode is FixpipeMode.VDEQF16:
        scales = at[Space.FB].linear(DType.UINT64, n)
        k.copy(extra.linear(DType.UINT64, n), k.gm("extra", linear(DType.UINT64, n)))
        k.barrier_all()
        k.copy(scales, extra.linear(DType.UINT64, n))
    k.barrier_all()
    c = at[Space.L0C].linear(acc, fractals.l0c_bytes(m, n) // 4)
    a = at[Space.L0A].linear(dtype, fractals.l0a_bytes(dtype, m, kk) // dtype.size_bytes)
    b = at[Space.L0B].linear(dtype, fractals.l0b_bytes(dtype, kk, n) // dtype.size_bytes)
    k.mmad(c, a, b, m=m, n=n, k=kk, start=start, bias=bias)
    k.barrier_all()
    k.mmad(c, a, b, m=m, n=n, k=kk)
    k.barrier_all()
    for part in fractals.l0c_to_nd(acc, out, m, n, n):
        k.fixpipe(
            Operand(Space.GM, part.dst, part.dst_bytes, "c"),
            at[Space.L0C].at(part.src, part.src_bytes),
            mode=mode,
            packed_scale=packed,
            channel_scale=scales,
        )


def run(
    builder: ProgramBuilder,
    model: NumericsModel,
    a: Array,
    b: Array,
    dtype: DType,
    out: DType,
    mode: FixpipeMode = FixpipeMode.NO_QUANT,
    start: AccumulatorStart = AccumulatorStart.ZERO,
    extra: Array | None = None,
    packed: int = 0,
) -> Array:
    """start + 2 a b as the hardware leaves it in GM."""
    (m, kk), n = a.shape, b.shape[1]
    inputs = {"a": a, "b": b}
    bases = {
        "a": builder.tensor("a", dtype, a.shape, TensorKind.INPUT),
        "b": builder.tensor("b", dtype, b.shape, TensorKind.INPUT),
        "c": builder.tensor("c", out, (m, n), TensorKind.OUTPUT),
    }
    if extra is not None:
        kind = DType.UINT64 if extra.dtype == np.uint64 else DType.INT32
        kind = DType.FP32 if extra.dtype == np.float32 else kind
        bases["extra"] = builder.tensor("extra", kind, extra.shape, TensorKind.INPUT)
        inputs["extra"] = extra
    memory = builder.memory(CoreKind.AIC)
    sizes = {
        Space.L1: 65536, Space.L0A: 8192, Space.L0B: 8192, Space.L0C: 16384,
        Space.BT: 1024, Space.FB: 1024,
    }  # fmt: skip
    spaces = tuple((s, memory.alloc(s.name, s, size)) for s, size in sizes.items())
    args = (spaces, dtype, out, m, n, kk, mode, start, packed)
    builder.place(
        builder.aic(0), product, args, stage="s", **{name: t.address for name, t in bases.items()}
    )
    return run_program(builder.finish(), inputs, model=model)["c"]


def small(dtype: DType, rows: int, cols: int, seed: int) -> Array:
    raw = np.random.PCG64(seed).random_raw(rows * cols) % 15
    return (raw.astype(np.int64) - 7).reshape(rows, cols).astype(dtype.numpy)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 32, 32), (5, 33, 50), (1, 16, 7), (31, 47, 64)])
@pytest.mark.parametrize(
    ("dtype", "out"),
    [(DType.FP16, DType.FP32), (DType.BF16, DType.FP32), (DType.INT8, DType.INT32)],
)
def test_padding_in_the_fractals_does_not_matter(
    new_builder: New, model: NumericsModel, dtype: DType, out: DType, m: int, n: int, k: int
) -> None:
    a, b = small(dtype, m, k, 1), small(dtype, k, n, 2)
    c = run(new_builder(), model, a, b, dtype, out)
    np.testing.assert_array_equal(c, 2 * (a.astype(np.int64) @ b.astype(np.int64)))


def test_accumulation_starts_at_the_bias(new_builder: New, model: NumericsModel) -> None:
    a, b = small(DType.FP16, 16, 32, 1), small(DType.FP16, 32, 16, 2)
    bias = np.arange(16, dtype=np.float32) / 8
    c = run(
        new_builder(), model, a, b, DType.FP16, DType.FP32,
        start=AccumulatorStart.BIAS, extra=bias,
    )  # fmt: skip
    np.testing.assert_array_equal(c, 2 * (a.astype(np.int64) @ b.astype(np.int64)) + bias)


def test_fixpipe_rounds_to_nearest_even(new_builder: New, model: NumericsModel) -> None:
    a = np.full((1, 1), 2049 / 2, np.float16)  # not exact in fp16: becomes 1024
    a[0, 0] = 1024.0
    b = np.array([[1.0, 1 + 2**-10]], np.float16)
    c = run(new_builder(), model, a, b, DType.FP16, DType.FP16, FixpipeMode.F322F16)
    # 2 x 1024 x (1 + 2^-10) = 2050 is exact in fp16; 2048 is too.
    np.testing.assert_array_equal(c, np.array([[2048, 2050]], np.float16))
    c = run(new_builder(), model, a.astype(DType.BF16.numpy), b.astype(DType.BF16.numpy),
            DType.BF16, DType.BF16, FixpipeMode.F322BF16)  # fmt: skip
    np.testing.assert_array_equal(c.astype(np.float32), [[2048, 2048]])


def test_dequantising_modes(new_builder: New, model: NumericsModel) -> None:
    a, b = small(DType.INT8, 16, 32, 1), small(DType.INT8, 32, 32, 2)
    whole = 2 * (a.astype(np.int64) @ b.astype(np.int64))
    half = int(pack(np.asarray(0.5, np.float32)))
    c = run(new_builder(), model, a, b, DType.INT8, DType.FP16, FixpipeMode.DEQF16, packed=half)
    np.testing.assert_array_equal(c, (whole * 0.5).astype(np.float16))
    scales = np.float32(2.0) ** (np.arange(32) % 4 - 2)
    c = run(
        new_builder(), model, a, b, DType.INT8, DType.FP16, FixpipeMode.VDEQF16, extra=pack(scales)
    )
    np.testing.assert_array_equal(c, (whole * scales).astype(np.float16))


def test_a_mode_and_a_destination_that_do_not_fit(new_builder: New, model: NumericsModel) -> None:
    a, b = small(DType.FP16, 16, 16, 1), small(DType.FP16, 16, 16, 2)
    with pytest.raises(ProgramError) as caught:
        run(new_builder(), model, a, b, DType.FP16, DType.FP32, FixpipeMode.F322F16)
    assert str(caught.value).endswith(": mode F322F16 writes float16, the destination is float32")
