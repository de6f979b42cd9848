"""What an operator is to the rest of npusim: one object with a handful of functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from npusim.chips.model import Chip
from npusim.isa.hazards import KnownHazard
from npusim.isa.program import Program
from npusim.numerics.formats import DType
from npusim.numerics.model import NumericsModel

Arrays = dict[str, np.ndarray]


class Validity(Enum):
    """How strictly arguments are checked.

    ``DOCUMENTED`` follows the API page, ``WIDE`` admits what the newer device code admits,
    ``LENIENT`` admits everything the schedule can express.
    """

    DOCUMENTED = "documented"
    WIDE = "wide"
    LENIENT = "lenient"


class TensorRole(Enum):
    """What an argument is: data never shapes a program, control values may."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"
    CONTROL = "control"


@dataclass(frozen=True)
class TensorSpec:
    """One tensor argument: API name in snake_case, element type, logical (ND) shape, role."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: TensorRole


@dataclass(frozen=True)
class Operator:
    """An operator package as the rest of npusim sees it.

    Attributes:
        name: name on the command line.
        summary: one sentence for listings.
        cases_file: TOML of named workloads, or None.
        parse: (raw parameters, chip, validity) to the operator's frozen params object; raises
            ParameterError for unknown names (near matches listed) and invalid values.
        defaults: parameter names with their defaults, for help and error messages.
        tensors: every tensor argument of a params object, outputs included.
        make_inputs: (params, seed, names) to arrays of these inputs, from raw bits of a numpy bit
            generator. A tensor's bits depend on the seed and its name only.
        to_storage: (params, inputs) to arrays in the storage layout of the program's tensors;
            accepts ND or NZ weights (told by shape); never changes its arguments.
        tiling: (params, chip, overrides) to the operator's frozen Tiling; pure.
        build: (params, tiling, chip, control arrays) to the tile program.
        reference: (params, inputs, model) to outputs by name: the second witness; shares
            only `npusim.numerics` with the program.
        mmad_k: a tiling to the K elements of one MMAD, for references that multiply over all of K
            at once: some arithmetic models round once per MMAD.
        known_hazards: races of the modelled schedule that are there on purpose.
    """

    name: str
    summary: str
    cases_file: Path | None
    parse: Callable[[Mapping[str, Any], Chip, Validity], Any]
    defaults: Mapping[str, Any]
    tensors: Callable[[Any], tuple[TensorSpec, ...]]
    make_inputs: Callable[[Any, int, frozenset[str]], Arrays]
    to_storage: Callable[[Any, Arrays], Arrays]
    tiling: Callable[[Any, Chip, Mapping[str, Any]], Any]
    build: Callable[[Any, Any, Chip, Arrays], Program]
    reference: Callable[[Any, Arrays, NumericsModel], Arrays]
    mmad_k: Callable[[Any], int] | None = None
    known_hazards: tuple[KnownHazard, ...] = ()
