"""Arguments and tiling of the grouped matmul."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.errors import ParameterError
from npusim.numerics.formats import Array, DType, type_name
from npusim.numerics.layouts import to_nz
from npusim.ops.blocks.matmul.params import FORMATS, OUT_OF, OUT_TYPES, TYPES, MatmulParams
from npusim.ops.blocks.matmul.tiling import Limits, MatmulTiling
from npusim.ops.blocks.matmul.tiling import tiling as matmul_tiling
from npusim.ops.common.arguments import Arguments
from npusim.ops.common.fractals import FRACTAL, l0c_bytes, padded_n, round_up
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec, Validity
from npusim.ops.common.raw_inputs import raw_words, values
from npusim.ops.common.tile_order import Split

DEFAULTS: dict[str, Any] = {
    "groups": 8,
    "tokens": 256,
    "N": 256,
    "K": 256,
    "dtype": "bf16",
    "out": None,
    "b_format": "nd",
    "transpose_b": False,
    "ends": None,
}
_LARGEST = 2**24
_BASE = (128, 256)  # with 32-bit sums it fills L0C


@dataclass(frozen=True)
class GroupedMatmulParams:
    """c = a times the weight of the row's group.

    Attributes:
        groups: weights; rows of a group follow each other, ``group_list`` says where each ends.
        product: sizes and types of the matmul over all rows.
        ends: what `make_inputs` puts into ``group_list``; None deals the rows at random.
    """

    groups: int
    product: MatmulParams
    ends: tuple[int, ...] | None = None


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> GroupedMatmulParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name, impossible value or pair of types.
    """
    given = Arguments("grouped_matmul", raw, DEFAULTS)
    dtype = given.choice("dtype", TYPES)
    out = OUT_OF[dtype][0]
    if raw.get("out") is not None:
        out = given.choice("out", OUT_TYPES)
    if out not in OUT_OF[dtype]:
        raise ParameterError(
            f"grouped_matmul: out is {type_name(out)}, {type_name(dtype)} operands give: "
            + ", ".join(type_name(t) for t in OUT_OF[dtype])
        )
    product = MatmulParams(
        M=given.integer("tokens", 1, _LARGEST),
        N=given.integer("N", 1, _LARGEST),
        K=given.integer("K", 1, _LARGEST),
        dtype=dtype,
        out=out,
        b_nz=given.choice("b_format", FORMATS),
        transpose_a=False,
        transpose_b=given.flag("transpose_b"),
    )
    groups = given.integer("groups", 1, 4096)
    return GroupedMatmulParams(groups, product, given.optional_integers("ends", groups))


def tensors(params: GroupedMatmulParams) -> tuple[TensorSpec, ...]:
    """``a``, ``b`` (groups, K, N), ``group_list`` (int64 ends of the groups, control); ``c``.

    With ``transpose_b`` the weights are (groups, N, K).
    """
    p = params.product
    return (
        TensorSpec("a", p.dtype, (p.M, p.K), TensorRole.INPUT),
        TensorSpec("b", p.dtype, (params.groups, *p.b.stored), TensorRole.INPUT),
        TensorSpec("group_list", DType.INT64, (params.groups,), TensorRole.CONTROL),
        TensorSpec("c", p.out, (p.M, p.N), TensorRole.OUTPUT),
    )


def make_inputs(params: GroupedMatmulParams, seed: int, names: frozenset[str]) -> Arrays:
    """Random operands; every row falls into a random group where ``ends`` does not say more."""
    made: Arrays = {}
    for t in tensors(params):
        if t.name not in names or t.role is TensorRole.OUTPUT:
            continue
        if t.role is TensorRole.CONTROL:
            made[t.name] = _group_list(params, seed)
        else:
            made[t.name] = values(seed, t.name, t.dtype, t.shape)
    return made


def _group_list(params: GroupedMatmulParams, seed: int) -> Array:
    if params.ends is not None:
        return np.array(params.ends, np.int64)
    group = raw_words(seed, "group_list", params.product.M) % np.uint64(params.groups)
    counts = np.bincount(group.astype(np.int64), minlength=params.groups)
    return np.cumsum(counts).astype(np.int64)


def to_storage(params: GroupedMatmulParams, inputs: Arrays) -> Arrays:
    """``b`` in NZ where the program wants it so; it may be given so."""
    stored = dict(inputs)
    if params.product.b_nz and stored["b"].ndim == 3:
        stored["b"] = to_nz(stored["b"], params.product.dtype)
    return stored


def group_ranges(params: GroupedMatmulParams, ends: Array) -> list[tuple[int, int]]:
    """First row and rows of each group.

    Raises:
        ParameterError: ends that fall, or do not reach the last row.
    """
    starts = [0, *(int(end) for end in ends)]
    for group, (start, end) in enumerate(zip(starts, starts[1:], strict=False)):
        if end < start:
            raise ParameterError(
                f"grouped_matmul: group_list[{group}] is {end}, the group before ends at {start}"
            )
    if starts[-1] != params.product.M:
        raise ParameterError(
            f"grouped_matmul: group_list ends at {starts[-1]}, a has {params.product.M} rows"
        )
    return [(s, e - s) for s, e in zip(starts, starts[1:], strict=False)]


def tiling(params: GroupedMatmulParams, chip: Chip, overrides: Mapping[str, Any]) -> MatmulTiling:
    """The matmul's tiling for one base tile, whatever the groups are.

    A tiling is made before the group list is known. So the tile is as large as L0C allows, cut to
    the matrix, and a small group leaves a part of it idle.

    Raises:
        ParameterError, CapacityError: as for the matmul.
    """
    p = params.product
    rows, cols = min(_BASE[0], round_up(p.M, FRACTAL)), min(_BASE[1], padded_n(p.dtype, p.N))
    while l0c_bytes(rows, cols) > chip.sizes.l0c:
        rows, cols = round_up(rows // 2, FRACTAL), padded_n(p.dtype, cols // 2)
    own = {"base_m": rows, "base_n": cols, "split": Split.INTERLEAVED.value}
    return matmul_tiling(p, chip, {**own, **overrides}, Limits())
