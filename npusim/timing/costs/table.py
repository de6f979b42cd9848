"""What a program costs on a chip, by unique row: the data both engines run on.

A *variant* is a block together with the addresses of its GM bases modulo one L2 line; rows of
one variant cost the same wherever it is placed. All times are whole core cycles, all rates
int64 fixed point (`units.RATE_FRACTION_BITS`), all uses of a shared resource int64 with
`USE_FRACTION_BITS` fractional bits.
"""

from dataclasses import dataclass

import numpy as np

NONE = -1
MAX_GM_LEVELS = 4
USE_FRACTION_BITS = 12
USE_ONE = 1 << USE_FRACTION_BITS
"""Use of one byte of a shared resource for each byte moved, in fixed point."""

COST_ROW = np.dtype(
    [
        ("opcode", np.int16),
        ("pipe", np.int8),
        ("issue", np.int32),
        ("busy", np.int64),
        ("latency", np.int32),
        ("access", np.int32),
        ("slot", np.int16),
        ("unit", np.int16),
        ("offset", np.int64),
        ("args", np.int64, 3),
    ]
)
"""One row of a variant.

* ``opcode``, ``pipe``: as in the block.
* ``issue`` [cycles]: what the scalar unit needs to issue it; 0 for scalar rows.
* ``busy`` [cycles]: how long it holds its pipe; for a GM transfer its setup, after which it is
  submitted to the memory system.
* ``latency`` [cycles]: from its end to its visible result; unused for a GM transfer.
* ``access``: index into ``CostTable.accesses``, -1 for anything but a GM transfer.
* ``slot``, ``offset``: the transfer starts at GM byte ``base of slot + offset`` (slot -1: at
  ``offset``).
* ``unit``: number of the L0C region it hands over by unit flag, -1 for none.
* ``args``: (src_pipe, dst_pipe, event) of a flag, (mode, flag, 0) of a cross-core flag,
  (start, 0, 0) of an MMAD, else zeros.
"""

READ = 0
WRITE = 1
ATOMIC = 2

ACCESS = np.dtype(
    [
        ("kind", np.int64),
        ("bypass", np.int64),
        ("path", np.int64),
        ("size_bytes", np.int64),
        ("hit_class", np.int64),
        ("miss_class", np.int64),
        ("burst_class", np.int64),
        ("hit_latency", np.int64),
        ("miss_latency", np.int64),
        ("run_bytes", np.int64),
        ("counts", np.int64, MAX_GM_LEVELS),
        ("strides", np.int64, MAX_GM_LEVELS),
    ]
)
"""One class of GM access: rows that move the same bytes relative to their address.

* ``kind``: READ, WRITE or ATOMIC (a write that needs the old value).
* ``bypass``: 1 if it does not allocate in L2.
* ``path``: `Path` number, for statistics.
* ``size_bytes``: bytes through the port, repeated reads of one byte counted each time.
* ``hit_class``: flow class of bytes that L2 serves. For a READ it is the first of
  `SHARING_CLASSES` consecutive classes, one for each degree of sharing.
* ``miss_class``: flow class of bytes that HBM serves, as fast as one core's requests in flight
  allow.
* ``burst_class``: the same for the first of them, which find no requests in flight.
* ``hit_latency``, ``miss_latency`` [cycles]: from the end to the visible result; a WRITE has
  the same value in both.
* ``run_bytes``, ``counts``, ``strides`` [bytes]: what it touches: contiguous runs at every
  combination of the levels, outermost first, padded in front with levels of count 1; sorted
  by stride and merged, so that runs are as long as they can be.
"""

FLOW_CLASS = np.dtype(
    [
        ("cap", np.int64),
        ("l2_read_use", np.int64),
        ("l2_write_use", np.int64),
        ("hbm_use", np.int64),
    ]
)
"""Flows that share one rate: ``cap`` [bytes per cycle, fixed point] of the core's port, and the
use of each shared resource per byte moved (fixed point, `USE_ONE` is 1)."""

SHARING_LEVELS = 8
SHARING_CLASSES = 2 * SHARING_LEVELS
"""Degrees of sharing of a line: up to 1, 2, 4 ... 128 cores; first reads, then repeated ones."""


@dataclass(frozen=True)
class CostTable:
    """Costs of every unique row of a program on one chip.

    Attributes:
        variant: (instances,) int32, variant of each instance.
        variant_row_start: (variants,) int64, where a variant's rows start in ``rows``; it has as
            many rows as its block.
        rows: (n,) `COST_ROW`.
        accesses: (a,) `ACCESS`.
        classes: (c,) `FLOW_CLASS`.
        queue_depth: (7,) int64 by `Pipe`, rows issued and not started that a queue holds.
        cross_latency: (5,) int64 by `CrossMode` [cycles], from the last set to the increment.
        tail_cycles: the launch tail.
        limits: int64, capacities of the memory system; see `memory_layout`.
    """

    variant: np.ndarray
    variant_row_start: np.ndarray
    rows: np.ndarray
    accesses: np.ndarray
    classes: np.ndarray
    queue_depth: np.ndarray
    cross_latency: np.ndarray
    tail_cycles: int
    limits: np.ndarray
