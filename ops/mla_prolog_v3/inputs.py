"""Inputs of MlaPrologV3: made from raw random bits, and brought into storage layout.

Each tensor has a random stream of its own (``ops.common.raw_inputs``), so that an optional
tensor does not change the others. Weights are large, so their values are cut straight from the
raw bits.
"""

from collections.abc import Mapping

import numpy as np

from npusim.errors import TensorError, near_matches
from npusim.numerics.formats import Array, DType, type_name
from npusim.numerics.layouts import from_nz, to_nz
from npusim.ops.common.operator import Arrays, TensorRole, TensorSpec
from npusim.ops.common.raw_inputs import permutation, raw_words
from npusim.ops.mla_prolog_v3.api_call import NZ_WEIGHTS
from npusim.ops.mla_prolog_v3.params import MlaPrologParams
from npusim.ops.mla_prolog_v3.validity_values import check_controls

# Largest binary exponent of a tensor's values, how many bits choose an exponent below it, and
# whether signs occur. Chosen so that every stage has values around 1 and every quantiser uses
# its range; per-tensor and per-channel key scales let some values reach the limits of int8.
_MAGNITUDES: dict[str, tuple[int, int, bool]] = {
    "token_x": (0, 2, True),
    "weight_dq": (-7, 2, True),
    "weight_dkv_kr": (-7, 2, True),
    "weight_uq_qr": (-6, 2, True),
    "weight_uk": (-4, 2, True),
    "rmsnorm_gamma_cq": (0, 1, False),
    "rmsnorm_gamma_ckv": (0, 1, False),
    "rope_sin": (-1, 2, True),
    "rope_cos": (-1, 2, True),
    "kv_cache": (0, 2, True),
    "kr_cache": (0, 2, True),
    "dequant_scale_x": (-9, 1, False),
    "dequant_scale_w_dq": (-10, 1, False),
    "dequant_scale_w_dkv_kr": (-10, 1, False),
    "dequant_scale_w_uq_qr": (-11, 1, False),
    "quant_scale_ckv": (5, 1, False),
    "quant_scale_ckr": (5, 1, False),
    "smooth_scales_cq": (0, 1, False),
    "k_nope_clip_alpha": (-1, 0, False),
}
_FLOAT_FIELDS: dict[DType, tuple[type[np.uint16] | type[np.uint32], int]] = {
    DType.BF16: (np.uint16, 7),
    DType.FP32: (np.uint32, 23),
}
"""Unsigned type that holds one code, and width of the fraction field."""
_EXPONENT_BIAS = 127


def make_inputs(p: MlaPrologParams, seed: int, names: frozenset[str] | None = None) -> Arrays:
    """Random inputs of a call, weights in ND: the same bits for the same seed everywhere.

    ``cache_index`` is a permutation of the cache's slots (or blocks); where the cache has
    fewer than needed, the rest is -1. Caches have random contents, so that what must not be
    written can be seen.

    Args:
        p: the call.
        seed: any integer from 0 on.
        names: the inputs to make; None makes all.
    """
    inputs: Arrays = {}
    for spec in p.tensors:
        if spec.role is TensorRole.OUTPUT or (names is not None and spec.name not in names):
            continue
        if spec.name == "cache_index":
            inputs[spec.name] = _cache_index(p, spec, seed)
        elif spec.name == "actual_seq_len":
            inputs[spec.name] = np.array(p.actual_seq_len, dtype=np.int32)
        else:
            inputs[spec.name] = _values(spec, seed)
    return inputs


def to_storage(p: MlaPrologParams, inputs: Mapping[str, Array]) -> Arrays:
    """The inputs in the storage layout of the program's tensors.

    Args:
        p: the call.
        inputs: every input by name; fractal weights in ND (2-D) or NZ (4-D).

    Returns:
        The same arrays, weights in NZ. Nothing is changed in place.

    Raises:
        TensorError: a missing or unknown tensor, or one of the wrong type or shape.
        ParameterError: control values outside what the call allows.
    """
    check_inputs(p, inputs)
    stored = dict(inputs)
    for name in NZ_WEIGHTS:
        if inputs[name].ndim == 2:
            stored[name] = to_nz(inputs[name], p.tensor(name).dtype)
    return stored


def logical_weight(p: MlaPrologParams, name: str, weight: Array) -> Array:
    """A fractal weight as a (K, N) matrix, whichever way it was given."""
    if weight.ndim == 2:
        return weight
    spec = p.tensor(name)
    rows, columns = spec.shape
    return from_nz(weight, rows, columns, spec.dtype)


def check_inputs(p: MlaPrologParams, inputs: Mapping[str, Array]) -> None:
    """Refuse inputs that are not those of the call; see ``to_storage``."""
    specs = {spec.name: spec for spec in p.tensors if spec.role is not TensorRole.OUTPUT}
    for name in inputs:
        if name not in specs:
            raise TensorError(
                f"mla_prolog_v3: the call has no input '{name}'; {near_matches(name, specs)}"
            )
    for name, spec in specs.items():
        if name not in inputs:
            raise TensorError(
                f"mla_prolog_v3: input '{name}' is missing; give "
                f"{type_name(spec.dtype)} {spec.shape}"
            )
        array = inputs[name]
        shapes = [spec.shape]
        if name in NZ_WEIGHTS:
            rows, columns = spec.shape
            shapes.append((columns // spec.dtype.c0, rows // 16, 16, spec.dtype.c0))
        if array.dtype != spec.dtype.numpy or array.shape not in shapes:
            wanted = " or ".join(str(shape) for shape in shapes)
            raise TensorError(
                f"mla_prolog_v3: input '{name}' is {array.dtype} {array.shape}; it must be "
                f"{type_name(spec.dtype)} {wanted}"
            )
    check_controls(p, inputs)


def _values(spec: TensorSpec, seed: int) -> Array:
    """Random values of a data tensor: all codes of int8, floats by exponent range."""
    count = int(np.prod(spec.shape, dtype=np.int64))
    size_bytes = count * spec.dtype.size_bytes
    words = raw_words(seed, spec.name, -(-size_bytes // 8))
    raw = words.astype("<u8", copy=False).view(np.uint8)[:size_bytes]
    if spec.dtype is DType.INT8:
        return raw.view(np.int8).reshape(spec.shape)
    word, fraction_bits = _FLOAT_FIELDS[spec.dtype]
    bits: Array = raw.view(np.dtype(word).newbyteorder("<")).astype(word)
    top, octave_bits, signed = _MAGNITUDES[spec.name]
    sign_bit = spec.dtype.bits - 1
    # The exponent field keeps its low bits, which then count down from the largest exponent;
    # weights are large, so the fields are rewritten in place.
    keep = ((1 << fraction_bits + octave_bits) - 1) | (signed << sign_bit)
    bits &= word(keep)
    bits += word((_EXPONENT_BIAS + top - (1 << octave_bits) + 1) << fraction_bits)
    return bits.view(spec.dtype.numpy).reshape(spec.shape)


def _cache_index(p: MlaPrologParams, spec: TensorSpec, seed: int) -> Array:
    """A permutation of slots or blocks, as many as there are entries."""
    slots = p.BlockNum if p.cache_mode.indexes_blocks else p.BlockNum * p.BlockSize
    entries = int(np.prod(spec.shape, dtype=np.int64))
    order = permutation(seed, spec.name, slots)
    index = np.full(entries, -1, dtype=np.int64)
    taken = min(entries, slots)
    index[:taken] = order[:taken]
    return index.reshape(spec.shape)
