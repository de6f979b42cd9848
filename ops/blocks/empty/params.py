"""Arguments of the empty kernel."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from npusim.chips.model import Chip
from npusim.ops.common.arguments import Arguments, options_of, with_overrides
from npusim.ops.common.operator import Arrays, TensorSpec, Validity
from npusim.ops.common.vector_stream import check_cores

DEFAULTS: dict[str, Any] = {"kind": "vector"}


class KernelKind(Enum):
    """Which cores a kernel uses."""

    VECTOR = "vector"
    CUBE = "cube"
    MIXED = "mixed"


@dataclass(frozen=True)
class EmptyParams:
    """The kind of kernel."""

    kind: KernelKind


@dataclass(frozen=True)
class EmptyTiling:
    """Knob: cores; AIVs of a vector kernel, else AICs (with their AIVs in a mixed one)."""

    cores: int


def parse(raw: Mapping[str, Any], chip: Chip, validity: Validity) -> EmptyParams:
    """Checked arguments.

    Raises:
        ParameterError: unknown name or impossible value.
    """
    return EmptyParams(Arguments("empty", raw, DEFAULTS).choice("kind", options_of(KernelKind)))


def tensors(params: EmptyParams) -> tuple[TensorSpec, ...]:
    """None."""
    return ()


def make_inputs(params: EmptyParams, seed: int, names: frozenset[str]) -> Arrays:
    """None."""
    return {}


def tiling(params: EmptyParams, chip: Chip, overrides: Mapping[str, Any]) -> EmptyTiling:
    """All cores of the kind.

    Raises:
        ParameterError: unknown knob or too many cores.
    """
    vector = params.kind is KernelKind.VECTOR
    available = chip.cores.aiv if vector else chip.cores.aic
    chosen = with_overrides("empty tiling", EmptyTiling(available), overrides)
    check_cores("empty", chosen.cores, available, chip.name, "AIV" if vector else "AIC")
    return chosen
