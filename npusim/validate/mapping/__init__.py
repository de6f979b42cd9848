"""Which run stands for a record: one module for each family of operators."""

import re
from collections.abc import Callable, Mapping

from npusim.validate.mapping import (
    batches,
    copies,
    elementwise,
    gated,
    matmuls,
    moves,
    norms,
    prolog,
    quant_matmuls,
    reductions,
    sums,
)
from npusim.validate.mapping.common import launches
from npusim.validate.records import Record
from npusim.validate.workload import NotMapped, Workload

Mapper = Callable[[Record], Workload]

_MAPPERS: Mapping[str, Mapper] = {
    **batches.MAPPERS,
    **copies.MAPPERS,
    **elementwise.MAPPERS,
    **gated.MAPPERS,
    **matmuls.MAPPERS,
    **moves.MAPPERS,
    **norms.MAPPERS,
    **prolog.MAPPERS,
    **quant_matmuls.MAPPERS,
    **reductions.MAPPERS,
}


def workload_of(record: Record) -> Workload:
    """The run that stands for a record.

    Raises:
        NotMapped: there is none; the text says why.
    """
    mapper = _mapper(record.op)
    if mapper is None:
        raise NotMapped(f"no kernel for operator '{record.op}' yet")
    kernels = launches(record)
    return sums.sum_of(record, kernels) if len(kernels) > 1 else mapper(record)


def _mapper(op: str) -> Mapper | None:
    """The mapper of an operator's name: as spelt, without its remark, prefix, or version."""
    name = op.strip().lower()
    plain = name.partition(" (")[0].strip()
    bare = plain.removeprefix("aclnn")
    names = (name, plain, bare, re.sub(r"v\d+$", "", bare))
    return next((_MAPPERS[spelt] for spelt in names if spelt in _MAPPERS), None)
