"""Key-value caches of the three operators: where a token's row lies, and how it is written.

Every cache mode is one storage scheme, blocks of rows with a stride between blocks, in which
a row is contiguous (ND) or cut into 32-byte pieces one block apart (NZ), plus a rule that
turns control tensors into slots (row numbers over all blocks). A negative slot means that
the token is not written. Addresses are element offsets.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import NumericsError
from npusim.numerics.formats import Array, DType

Offsets = npt.NDArray[np.int64]
PREPROCESS_BLOCK_SIZE = 128
NOPE_WIDTH, ROPE_WIDTH = 512, 64


class CacheMode(Enum):
    """Cache layouts that MlaPrologV3 names; the gradient's dense layouts are the first two."""

    BSND = "BSND"
    TND = "TND"
    PA_BSND = "PA_BSND"
    PA_NZ = "PA_NZ"
    PA_BLK_BSND = "PA_BLK_BSND"
    PA_BLK_NZ = "PA_BLK_NZ"

    @property
    def is_paged(self) -> bool:
        """The cache is made of blocks found through an index tensor."""
        return self not in (CacheMode.BSND, CacheMode.TND)

    @property
    def indexes_blocks(self) -> bool:
        """One index per block of a sequence, not one per token."""
        return self in (CacheMode.PA_BLK_BSND, CacheMode.PA_BLK_NZ)

    @property
    def is_nz(self) -> bool:
        """Rows of a block are cut into 32-byte pieces."""
        return self in (CacheMode.PA_NZ, CacheMode.PA_BLK_NZ)


class PreprocessCacheMode(Enum):
    """``cacheMode`` of MlaPreprocess."""

    KVCACHE = 0
    KROPE_CTKV = 1
    INT8_NZCACHE = 2
    NZCACHE = 3


@dataclass(frozen=True)
class CacheLayout:
    """Storage of a cache.

    Attributes:
        block_num: blocks. 0 is an empty cache.
        block_size: rows of a block; a dense BSND cache has one block per batch, TND one row
            per block.
        width: elements of a row.
        c0: elements of a 32-byte NZ piece, None for contiguous rows.
        block_stride: elements from one block to the next, None for contiguous blocks.

    Raises:
        NumericsError: a stride below the block, or a row that NZ pieces do not divide.
    """

    block_num: int
    block_size: int
    width: int
    c0: int | None = None
    block_stride: int | None = None

    def __post_init__(self) -> None:
        if self.c0 is not None and self.width % self.c0:
            raise NumericsError(
                f"cache: rows of {self.width} elements do not divide into NZ pieces of "
                f"{self.c0}; use an ND cache mode"
            )
        if self.stride < self.block_size * self.width:
            raise NumericsError(
                f"cache: block stride {self.stride} is below the {self.block_size} x "
                f"{self.width} elements of a block"
            )

    @property
    def stride(self) -> int:
        """Elements from one block to the next."""
        dense = self.block_size * self.width
        return dense if self.block_stride is None else self.block_stride

    @property
    def rows(self) -> int:
        """Slots of the whole cache."""
        return self.block_num * self.block_size

    @property
    def size(self) -> int:
        """Elements of storage, gaps between blocks included."""
        return self.block_num * self.stride

    def address_of(self, slot: Any, dim: Any) -> Offsets:
        """Element offset of element ``dim`` of row ``slot``; arrays broadcast.

        Raises:
            NumericsError: a slot or dim outside the cache. The device does not check slots
                and would write outside the tensor.
        """
        slots, dims = np.asarray(slot, np.int64), np.asarray(dim, np.int64)
        for what, values, limit in (("slot", slots, self.rows), ("dim", dims, self.width)):
            outside = (values < 0) | (values >= limit)
            if outside.any():
                raise NumericsError(
                    f"cache: {what} {int(values[outside].flat[0])} is outside the cache's "
                    f"{limit} ({self.block_num} blocks of {self.block_size} rows of "
                    f"{self.width}); the device would access memory outside the tensor"
                )
        block, row = np.divmod(slots, self.block_size)
        if self.c0 is None:
            return np.asarray(block * self.stride + row * self.width + dims)
        piece, within = np.divmod(dims, self.c0)
        inside = piece * (self.block_size * self.c0) + row * self.c0 + within
        return np.asarray(block * self.stride + inside)

    def pack(self, x: Array) -> Array:
        """(rows, width) to (size,) storage, gaps zero."""
        stored = np.zeros((self.block_num, self.stride), dtype=x.dtype)
        dense = self.block_size * self.width
        if self.c0 is None:
            stored[:, :dense] = x.reshape(self.block_num, dense)
        else:
            count = self.width // self.c0
            pieces = x.reshape(self.block_num, self.block_size, count, self.c0)
            stored[:, :dense] = pieces.transpose(0, 2, 1, 3).reshape(self.block_num, dense)
        return stored.reshape(-1)

    def unpack(self, stored: Array) -> Array:
        """Inverse of ``pack``: (size,) or any shape of that many elements to (rows, width)."""
        if stored.size != self.size:
            raise NumericsError(
                f"cache: storage {stored.shape} has {stored.size} elements; {self.block_num} "
                f"blocks with stride {self.stride} have {self.size}"
            )
        dense = self.block_size * self.width
        blocks = stored.reshape(self.block_num, self.stride)[:, :dense]
        if self.c0 is not None:
            count = self.width // self.c0
            pieces = blocks.reshape(self.block_num, count, self.block_size, self.c0)
            blocks = pieces.transpose(0, 2, 1, 3)
        return blocks.reshape(self.rows, self.width).copy()

    def write(self, stored: Array, x: Array, slots: Array) -> Array:
        """A copy of ``stored`` with row t of ``x`` at slot ``slots[t]``.

        Args:
            stored: (size,) or any shape of that many elements.
            x: (T, width).
            slots: (T,) integers, negative ones skipped; of equal slots the last row wins,
                which on the device is not defined.
        """
        result = stored.reshape(-1).copy()
        kept = slots >= 0
        offsets = self.address_of(slots[kept][:, None], np.arange(self.width))
        result[offsets] = x[kept]
        return result.reshape(stored.shape)


def prolog_cache(
    mode: CacheMode,
    dtype: DType,
    width: int,
    *,
    block_num: int,
    block_size: int,
    block_stride: int | None = None,
) -> CacheLayout:
    """Layout of an MlaPrologV3 cache, or of a dense BSND or TND tensor of the gradient.

    Args:
        mode: cache mode. For BSND ``block_num`` is B and ``block_size`` S, for TND they are
            T and 1.
        dtype: element type of the cache; sets the NZ piece.
        width: elements of a row (512 or 656 for kv, 64 for kr).
        block_num: first dimension. block_size: second dimension.
        block_stride: elements between blocks of a non-contiguous cache.
    """
    c0 = dtype.c0 if mode.is_nz else None
    return CacheLayout(block_num, block_size, width, c0, block_stride)


def preprocess_caches(
    mode: PreprocessCacheMode,
    block_num: int,
    block_size: int = PREPROCESS_BLOCK_SIZE,
) -> tuple[CacheLayout, CacheLayout]:
    """Layouts of the (nope, rope) caches of MlaPreprocess.

    ``KVCACHE`` keeps both in one row of 576: the two layouts are the same and the rope part
    starts at element 512. The NZ pieces are 32 bytes of the cache's element type.

    Args:
        mode: cacheMode.
        block_num: blocks.
        block_size: rows of a block; kernels before mid-2026 fix it at 128 for NZ.
    """
    match mode:
        case PreprocessCacheMode.KVCACHE:
            both = CacheLayout(block_num, block_size, NOPE_WIDTH + ROPE_WIDTH)
            return both, both
        case PreprocessCacheMode.KROPE_CTKV:
            nope_c0, rope_c0 = None, None
        case PreprocessCacheMode.INT8_NZCACHE:
            nope_c0, rope_c0 = DType.INT8.c0, DType.FP16.c0
        case PreprocessCacheMode.NZCACHE:
            nope_c0, rope_c0 = DType.FP16.c0, DType.FP16.c0
    nope = CacheLayout(block_num, block_size, NOPE_WIDTH, nope_c0)
    return nope, CacheLayout(block_num, block_size, ROPE_WIDTH, rope_c0)


def slots_by_token(cache_index: Array) -> Offsets:
    """Slots of PA_BSND and PA_NZ, and of MlaPreprocess: one index per token, flattened."""
    return cache_index.reshape(-1).astype(np.int64)


def slots_dense(tokens: int) -> Offsets:
    """Slots of BSND and TND: token t is row t."""
    return np.arange(tokens, dtype=np.int64)


def slots_by_block(block_index: Array, tokens_per_batch: int, block_size: int) -> Offsets:
    """Slots of PA_BLK modes for tokens (B, S).

    Args:
        block_index: (B, ceil(S / block_size)) block of each run of block_size tokens;
            negative blocks are not written.
        tokens_per_batch: S.
        block_size: rows of a block.

    Returns:
        (B * S,) slots, -1 where skipped.
    """
    token = np.arange(tokens_per_batch, dtype=np.int64)
    blocks = block_index[:, token // block_size].astype(np.int64)
    slots = np.where(blocks < 0, -1, blocks * block_size + token % block_size)
    return slots.reshape(-1)


def slots_by_block_ragged(
    block_index: Array, last_token: Array, tokens: int, block_size: int
) -> Offsets:
    """Slots of PA_BLK modes for tokens (T,) of batches of unequal length.

    Args:
        block_index: flat block indices, ceil(length / block_size) per batch in order.
        last_token: (B,) inclusive prefix sums of the lengths (actualSeqLen). Tokens beyond
            the last sum belong to the last batch.
        tokens: T.
        block_size: rows of a block.

    Returns:
        (T,) slots, -1 where skipped.

    Raises:
        NumericsError: a token needs an index beyond the end of ``block_index``.
    """
    if not tokens:
        return np.empty(0, dtype=np.int64)
    ends = last_token.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    counts = -(-(ends - starts) // block_size)
    first_index = np.concatenate([[0], np.cumsum(counts)[:-1]])
    token = np.arange(tokens, dtype=np.int64)
    batch = np.minimum(np.searchsorted(ends, token, side="right"), len(ends) - 1)
    within = token - starts[batch]
    position = first_index[batch] + within // block_size
    if int(position.max()) >= block_index.size:
        raise NumericsError(
            f"cache: token {int(position.argmax())} needs block index {int(position.max())}, "
            f"but there are {block_index.size}; give ceil(length / {block_size}) per batch"
        )
    blocks = block_index.reshape(-1)[position].astype(np.int64)
    return np.where(blocks < 0, -1, blocks * block_size + within % block_size)


def rows_of_sequence(
    mode: CacheMode, batch: int, *, length: int | None = None, cu_seqlens: Array | None = None
) -> slice:
    """Rows of one batch in a dense tensor of the gradient, flattened over its token axes.

    Args:
        mode: BSND or TND.
        batch: index of the batch.
        length: S of a BSND tensor.
        cu_seqlens: (B + 1,) prefix sums of a TND tensor, starting with 0.

    Raises:
        NumericsError: a paged mode, or the argument that the mode needs is missing.
    """
    if mode is CacheMode.BSND and length is not None:
        return slice(batch * length, (batch + 1) * length)
    if mode is CacheMode.TND and cu_seqlens is not None:
        return slice(int(cu_seqlens[batch]), int(cu_seqlens[batch + 1]))
    raise NumericsError(
        f"rows of a sequence: {mode.value} with length={length} and "
        f"{'no ' if cu_seqlens is None else ''}cu_seqlens; BSND needs length, TND cu_seqlens"
    )
