"""Cross-core flags of the schedule, and the blocks that set and wait for them.

One AIC and its AIVs talk in mode 2, all cores of one kind meet in mode 0. Flag numbers are
shared where events are strictly ordered, as in the device code. Sets of an AIC leave from its
fixpipe (results are in GM then), sets of an AIV from MTE3. Waits hold the pipe that reads what
was announced: MTE2. Where an AIV passes a wait on to a barrier or to another set, the wait
holds MTE3, so that the set stays behind it.
"""

from enum import IntEnum

from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import CrossMode
from npusim.isa.spaces import Pipe


class Flag(IntEnum):
    """Cross-core flags by event; several events share a number (aliases)."""

    MM_CQ = 0x6
    """AIC to its AIVs: this core's columns of the query latent are in GM."""
    MM_CKVKR = 0x6
    """AIC to its AIVs: this core's columns of the key latent are in GM."""
    MM_QCQR = 0x6
    """AIC to its AIVs: all its columns of the query heads are in GM."""
    QCQR_N = 0x6
    """AIC to its AIVs: one more N-tile of the query heads is in GM (dequant_opt)."""
    NORM_CQ = 0x6
    """AIVs to their AIC: the normalised query latent of all cores is in GM."""
    ALL_AIV = 0x7
    """Barrier of all AIVs."""
    ALL_AIC = 0x7
    """Barrier of all AICs (not quantised)."""
    DEQ_QC = 0x7
    """AIVs to their AIC: heads (one with dequant_opt) are dequantised and in GM."""
    MM_QN = 0x8
    """AIC to its AIVs: query heads (one with dequant_opt) are in GM, ready to quantise."""
    CKVKR_FREE = 0x9
    """AIVs to their AIC: the key latent in the workspace is read and may be overwritten."""


FLAG_COUNTER_LIMIT = 15
"""A counter saturates here: with more heads per core only some heads are announced."""


def announces(head: int, heads: int) -> bool:
    """Whether the producer sets its flag after ``head`` (counted from 0) of ``heads``."""
    return heads <= FLAG_COUNTER_LIMIT or head % 2 == 0 or head == heads - 1


def awaits(head: int, heads: int) -> bool:
    """Whether the consumer waits before ``head``; as many waits as there are sets.

    With sparse flags head 1 waits for the set after head 2, and so on: a set covers all heads
    before it (which of the two heads the device code lets wait is inferred from the counts).
    """
    return heads <= FLAG_COUNTER_LIMIT or head == 0 or head % 2 == 1


# AIC


def aic_set(k: BlockBuilder, flag: int) -> None:
    """Tell the AIVs of the group, once the results before it are in GM."""
    k.cross_set(CrossMode.GROUP, flag, Pipe.FIXP)


def aic_wait(k: BlockBuilder, flag: int) -> None:
    """Load nothing more before the AIVs of the group have set the flag."""
    k.cross_wait(CrossMode.GROUP, flag, Pipe.MTE2)


def aic_barrier(k: BlockBuilder) -> None:
    """Load nothing more before the results of all AICs are in GM."""
    k.cross_set(CrossMode.ALL_OF_KIND, Flag.ALL_AIC, Pipe.FIXP)
    k.cross_wait(CrossMode.ALL_OF_KIND, Flag.ALL_AIC, Pipe.MTE2)


# AIV


def aiv_set(k: BlockBuilder, flag: int) -> None:
    """Tell the AIC of the group, once the writes before it are in GM."""
    k.cross_set(CrossMode.GROUP, flag, Pipe.MTE3)


def aiv_wait(k: BlockBuilder, flag: int) -> None:
    """Load nothing more before the AIC of the group has set the flag."""
    k.cross_wait(CrossMode.GROUP, flag, Pipe.MTE2)


def aiv_barrier(k: BlockBuilder) -> None:
    """Load nothing more before the writes of all AIVs are in GM."""
    k.cross_set(CrossMode.ALL_OF_KIND, Flag.ALL_AIV, Pipe.MTE3)
    k.cross_wait(CrossMode.ALL_OF_KIND, Flag.ALL_AIV, Pipe.MTE2)


def aiv_wait_all(k: BlockBuilder, flag: int) -> None:
    """Load nothing more before every AIC has set the flag for its own AIVs."""
    k.cross_wait(CrossMode.GROUP, flag, Pipe.MTE3)
    aiv_barrier(k)


def aiv_barrier_then_set(k: BlockBuilder, flag: int, event: int) -> None:
    """Once the writes of all AIVs are in GM, tell the AIC; loads wait for it too."""
    k.cross_set(CrossMode.ALL_OF_KIND, Flag.ALL_AIV, Pipe.MTE3)
    k.cross_wait(CrossMode.ALL_OF_KIND, Flag.ALL_AIV, Pipe.MTE3)
    k.cross_set(CrossMode.GROUP, flag, Pipe.MTE3)
    k.set_flag(Pipe.MTE3, Pipe.MTE2, event)
    k.wait_flag(Pipe.MTE3, Pipe.MTE2, event)
