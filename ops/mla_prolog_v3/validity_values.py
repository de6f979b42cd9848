"""Rules about values that only the device sees: real hardware checks none of them.

A simulator has the values on the host, and refuses what would corrupt memory there.
"""

from collections.abc import Mapping
from typing import cast

import numpy as np

from npusim.chips.model import Chip
from npusim.numerics.formats import Array, type_name
from npusim.ops.common.operator import TensorRole, Validity
from npusim.ops.common.tensors import total_bytes
from npusim.ops.mla_prolog_v3.api_call import ApiCall
from npusim.ops.mla_prolog_v3.params import MlaPrologParams, Shape
from npusim.ops.mla_prolog_v3.status import INVALID, RUNTIME, refusal


def check_values(call: ApiCall, p: MlaPrologParams, validity: Validity) -> None:
    """Sequence lengths and the number of cache blocks."""
    if p.actual_seq_len is not None:
        _check_prefix_sums(p.actual_seq_len, p.T)
        got, wanted = call.tensors["cache_index"].shape, cast(Shape, p.cache_index_shape)
        if got != wanted:
            raise refusal(
                INVALID,
                f"cache_index has {got[0]} entries; the sequences of actual_seq_len have "
                f"{wanted[0]} blocks of {p.BlockSize}",
            )
    if p.cache_mode.is_paged and p.BlockNum and validity is Validity.DOCUMENTED:
        blocks = -(-p.T // p.BlockSize)
        if p.cache_mode.indexes_blocks:
            blocks = sum(-(-length // p.BlockSize) for length in p.sequence_lengths)
        if p.BlockNum < blocks:
            raise refusal(
                INVALID,
                f"BlockNum = {p.BlockNum}: the tokens need at least {blocks} blocks of "
                f"{p.BlockSize} (0 skips the caches; --validity wide admits fewer)",
            )


def _check_prefix_sums(ends: tuple[int, ...], tokens: int) -> None:
    for b, (before, end) in enumerate(zip((0, *ends), ends, strict=False)):
        if end < before:
            raise refusal(
                INVALID,
                f"actual_seq_len[{b}] = {end} is below its predecessor {before}; it holds "
                "prefix sums of the sequence lengths",
            )
    last = ends[-1] if ends else 0
    if last != tokens:
        raise refusal(
            INVALID, f"actual_seq_len ends at {last}; its last value must equal T = {tokens}"
        )


def check_memory(p: MlaPrologParams, chip: Chip) -> None:
    """The tensors must fit the chip's memory."""
    need = total_bytes(p.tensors)
    limit = chip.hbm.size_gib * 2**30
    if need > limit:
        raise refusal(
            RUNTIME,
            f"the tensors take {need / 2**30:,.0f} GiB, chip '{chip.name}' has "
            f"{chip.hbm.size_gib:g} GiB; lower T, BlockNum or N",
        )


def check_controls(p: MlaPrologParams, controls: Mapping[str, Array]) -> None:
    """Refuse control values that would make the device write outside the caches.

    Negative entries of ``cache_index`` are valid: their tokens are not stored. Entries that
    name the same slot twice are not refused; which of them survives is not defined.

    Args:
        p: the call.
        controls: ``cache_index`` and ``actual_seq_len`` where the call has them.

    Raises:
        ParameterError: a missing or misshapen control tensor, an index outside the cache, or
            sequence lengths that are not those the params object was made for.
    """
    for spec in p.tensors:
        if spec.role is not TensorRole.CONTROL:
            continue
        array = controls.get(spec.name)
        if array is None:
            raise refusal(INVALID, f"{spec.name} is missing; the program depends on its values")
        if array.shape != spec.shape or array.dtype != spec.dtype.numpy:
            raise refusal(
                INVALID,
                f"{spec.name} is {array.dtype} {array.shape}; it must be "
                f"{type_name(spec.dtype)} {spec.shape}",
            )
    if p.actual_seq_len is not None:
        lengths = tuple(int(end) for end in controls["actual_seq_len"])
        if lengths != p.actual_seq_len:
            raise refusal(
                INVALID,
                f"actual_seq_len holds {lengths}; the call was made for {p.actual_seq_len}",
            )
    if p.cache_mode.is_paged and not p.is_empty_cache:
        _check_cache_index(p, controls["cache_index"])


def _check_cache_index(p: MlaPrologParams, index: Array) -> None:
    blocks = p.cache_mode.indexes_blocks
    limit = p.BlockNum if blocks else p.BlockNum * p.BlockSize
    outside = np.flatnonzero(index.reshape(-1) >= limit)
    if not outside.size:
        return
    entry = int(outside[0])
    value = int(index.reshape(-1)[entry])
    if not blocks:
        raise refusal(
            INVALID,
            f"cache_index of token {entry} is {value}; the cache has slots 0 to {limit - 1} "
            "(negative skips the token)",
        )
    first, last = tokens_of_entry(p, entry)
    raise refusal(
        INVALID,
        f"cache_index[{entry}] (tokens {first} to {last}) is {value}; the cache has blocks 0 to "
        f"{limit - 1} (negative skips the tokens)",
    )


def tokens_of_entry(p: MlaPrologParams, entry: int) -> tuple[int, int]:
    """First and last token that a block entry of ``cache_index`` (flat number) is for."""
    start = 0
    for length in p.sequence_lengths:
        entries = -(-length // p.BlockSize)
        if entry < entries:
            first = start + entry * p.BlockSize
            return first, min(first + p.BlockSize, start + length) - 1
        entry -= entries
        start += length
    raise IndexError(entry)
