"""Input tensors from raw bits of a bit generator, the same under every numpy version.

A tensor depends on the seed and its name only, so making one input of many gives the same bits.
"""

import numpy as np

from npusim.errors import ParameterError
from npusim.numerics.formats import Array, DType, integer_limits, is_integer, type_name

_SIGNIFICAND_BITS = {DType.FP32: 24, DType.HF32: 11, DType.FP16: 11, DType.BF16: 8}
_BINADES = 4


def raw_words(seed: int, name: str, count: int) -> Array:
    """``count`` uint64 words that depend on ``seed`` and ``name``."""
    entropy = np.random.SeedSequence([seed, *name.encode()])
    return np.asarray(np.random.PCG64(entropy).random_raw(count), dtype=np.uint64)


def values(seed: int, name: str, dtype: DType, shape: tuple[int, ...], log2_max: int = 0) -> Array:
    """A tensor of numbers of ordinary size.

    Floats have a random sign, random significand and one of four exponents below
    ``2 ** log2_max``; integers cover the whole range of their type.

    Raises:
        ParameterError: a type that neither is an integer nor has ordinary significands here.
    """
    words = raw_words(seed, name, int(np.prod(shape, dtype=np.int64)))
    if is_integer(dtype):
        low, high = integer_limits(dtype)
        span = np.uint64(high - low + 1 & 0xFFFFFFFFFFFFFFFF)
        whole = words % span if span else words
        return (whole.astype(np.int64) + low).astype(dtype.numpy).reshape(shape)
    if dtype not in _SIGNIFICAND_BITS:
        raise ParameterError(f"no random inputs of type {type_name(dtype)}: give the tensor")
    bits = _SIGNIFICAND_BITS[dtype]
    significand = (words >> np.uint64(64 - bits + 1)).astype(np.int64) | 1 << bits - 1
    exponent = log2_max - bits - (words % np.uint64(_BINADES)).astype(np.int64)
    magnitude = np.ldexp(significand.astype(np.float64), exponent)
    signed = np.where(words & np.uint64(16), -magnitude, magnitude)
    # Every value has few enough bits to be exact, so this conversion rounds nothing.
    return signed.astype(dtype.numpy).reshape(shape)


def positive(seed: int, name: str, dtype: DType, shape: tuple[int, ...], log2_max: int) -> Array:
    """As `values`, without signs: scales and the like."""
    return np.abs(values(seed, name, dtype, shape, log2_max))


def permutation(seed: int, name: str, count: int) -> Array:
    """A permutation of 0 .. count - 1, int64."""
    return np.argsort(raw_words(seed, name, count), kind="stable")
