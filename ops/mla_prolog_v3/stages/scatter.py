"""Where a token's key goes in the caches, and the copies that put it there.

The AIV reads the index it needs as a scalar, one read per token and stage. A negative index
skips the copies and nothing else.
"""

from typing import NamedTuple

import numpy as np

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.buffers import Buffer
from npusim.isa.patterns import linear, pattern
from npusim.numerics.formats import DType
from npusim.ops.mla_prolog_v3.modes import CacheMode
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.stages.context import Context, OuterStep, VectorCore

STAGE = "scatter_index"


class Target(NamedTuple):
    """How a token's row is written.

    Attributes:
        indexed: the AIV reads an index (base ``index``).
        skip: the index is negative.
        nz_rows: rows of a block of an NZ cache, 0 for row-major caches.
    """

    indexed: bool
    skip: bool
    nz_rows: int


def read_index(k: BlockBuilder, target: Target) -> None:
    """The scalar read of the token's index."""
    if target.indexed:
        k.scalar_load(k.gm("index", linear(DType.INT64, 1)))


def scatter(
    k: BlockBuilder, target: Target, slot: str, src: Buffer, dtype: DType, count: int
) -> None:
    """MTE3: ``count`` elements of one row to base ``slot``, 32 bytes at a time in NZ."""
    if target.skip:
        return
    if target.nz_rows:
        c0 = dtype.c0
        to = pattern(dtype, ((count // c0, target.nz_rows * c0), (c0, 1)))
    else:
        to = linear(dtype, count)
    k.copy(k.gm(slot, to), src.linear(dtype, count))


def read_lengths(k: BlockBuilder, count: int) -> None:
    """Scalar reads of ``count`` prefix sums from base ``lengths`` on."""
    for i in range(count):
        k.scalar_load(k.gm("lengths", linear(DType.INT32, 1), 4 * i))


class CacheAddresses:
    """Addresses of every token's rows in both caches, and of the index entry that decides them.

    Attributes:
        kv, kr: (T,) int64 GM byte addresses of the token's row; undefined where ``skip``.
        skip: (T,) bool, the token's index is negative.
        index: (T,) int64 GM byte address of the index entry, or None without index.
        batch: (T,) sequence number, or None where sequences do not matter.
    """

    def __init__(self, c: Context) -> None:
        p = c.p
        block, row, self.skip, entry, self.batch = _slots(p, c)
        self.index = None if entry is None else c.address("cache_index") + 8 * entry
        kv_width = p.kv_dtype.c0 if p.cache_mode.is_nz else p.Dtile
        kr_width = p.kr_dtype.c0 if p.cache_mode.is_nz else p.Dr
        kv = block * p.kv_stride0 + row * kv_width
        kr = block * p.kr_stride0 + row * kr_width
        self.kv = c.address("kv_cache") + p.kv_dtype.size_bytes * kv
        self.kr = c.address("kr_cache") + p.kr_dtype.size_bytes * kr

    def index_address(self, token: int) -> int:
        """GM address of the index entry a token needs; 0 where there is none."""
        return 0 if self.index is None else int(self.index[token])

    def target(self, p: MlaPrologParams, token: int) -> Target:
        """How the token's rows are written."""
        nz_rows = p.BlockSize if p.cache_mode.is_nz else 0
        return Target(self.index is not None, bool(self.skip[token]), nz_rows)


Slots = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]


def _slots(p: MlaPrologParams, c: Context) -> Slots:
    """Per token: (block, row in it, skip, index entry or None, sequence or None)."""
    token = np.arange(p.T, dtype=np.int64)
    if not p.cache_mode.is_paged:
        rows = p.S if p.cache_mode is CacheMode.BSND else 1
        return token // rows, token % rows, np.zeros(p.T, dtype=bool), None, None
    index = np.asarray(c.control["cache_index"], dtype=np.int64).reshape(-1)
    if not p.cache_mode.indexes_blocks:
        return index // p.BlockSize, index % p.BlockSize, index < 0, token, None
    batch, inside, first_entry = _sequences(p, c, token)
    entry = first_entry[batch] + inside // p.BlockSize
    block = index[entry]
    return block, inside % p.BlockSize, block < 0, entry, batch


def _sequences(
    p: MlaPrologParams, c: Context, token: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sequence of each token, position in it, first index entry of each sequence).

    Tokens past the last prefix sum belong to the last sequence, as in the device code.
    """
    if p.actual_seq_len is None:
        blocks = -(-p.S // p.BlockSize)
        return token // p.S, token % p.S, np.arange(p.B, dtype=np.int64) * blocks
    ends = np.asarray(c.control["actual_seq_len"], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    batch = np.minimum(np.searchsorted(ends, token, side="right"), len(ends) - 1)
    blocks_of = -(-(ends - starts) // p.BlockSize)
    return batch, token - starts[batch], np.concatenate([[0], np.cumsum(blocks_of)[:-1]])


class LengthsWalk:
    """An AIV's walk along the prefix sums: it reads on from the sequence it last was in."""

    def __init__(self, core: VectorCore, addresses: CacheAddresses) -> None:
        self._core, self._addresses = core, addresses
        self._next = 0

    def place(self, step: OuterStep, first: int, rows: int) -> None:
        """Read the prefix sums that the AIV's tokens of a step need."""
        c, batch = self._core.context, self._addresses.batch
        if not rows or batch is None or c.p.actual_seq_len is None:
            return
        last = int(batch[step.start + first + rows - 1])
        count = last + 1 - self._next
        if count > 0:
            at = c.address("actual_seq_len", self._next)
            c.builder.place(self._core.core, read_lengths, (count,), stage=STAGE, lengths=at)
            self._next = last + 1
