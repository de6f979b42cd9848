"""Which cross-core sets make up each increment, as tables for the compiled engine.

A cross-core counter belongs to a receiving core and a flag. Several receivers see the same
increments, so increments are kept once per *feed*: the senders of one mode and flag whose n-th
sets together make the n-th increment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from npusim.errors import ProgramError
from npusim.isa.instructions import CrossMode
from npusim.isa.program import Program
from npusim.isa.spaces import CoreKind

NO_FEED = -1


class Counters(NamedTuple):
    """Cross-core counters of a program.

    Attributes:
        feed_of_set: (cores, set keys) int32, the feed that a set of the core goes to.
        feed_of_wait: (cores, wait keys) int32, the feed that a wait of the core draws from.
        needed: (feeds,) int32, senders of the feed.
        start: (feeds + 1,) int64, where the increments of a feed begin.
        delay: (feeds,) int64, cycles from the last set to the arrival.
        receiver_start: (feeds + 1,) int64, where the receivers of a feed begin.
        receivers: (r,) int32, receiving cores.
    """

    feed_of_set: np.ndarray
    feed_of_wait: np.ndarray
    needed: np.ndarray
    start: np.ndarray
    delay: np.ndarray
    receiver_start: np.ndarray
    receivers: np.ndarray


@dataclass
class _Feed:
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    delay: int
    increments: int = 0


def counters(
    program: Program,
    used: Sequence[int],
    set_keys: Sequence[tuple[int, ...]],
    wait_flags: Sequence[int],
    sets: np.ndarray,
    delays: np.ndarray,
) -> Counters:
    """Tables of the cross-core counters.

    Args:
        used: core numbers that have a stream.
        set_keys: (mode, flag) of each set key.
        wait_flags: flag of each wait key.
        sets: (cores, set keys) int64, how often each core executes each set.
        delays: by `CrossMode`, cycles from the last set to the arrival.

    Raises:
        ProgramError: two modes feed one counter, or a mode that the sender's kind has not.
    """
    reached: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
    feeds: dict[tuple[int, int, tuple[int, ...]], int] = {}
    table: list[_Feed] = []
    feed_of_set = np.full(sets.shape, NO_FEED, dtype=np.int32)
    fed_by: dict[tuple[int, int], int] = {}
    cores, keys = np.nonzero(sets)
    for core, key, count in zip(
        cores.tolist(), keys.tolist(), sets[cores, keys].tolist(), strict=True
    ):
        mode, flag = set_keys[key]
        # All cores of a kind reach the same cores in mode 0.
        who = (mode, core if mode != CrossMode.ALL_OF_KIND else core < program.aic)
        if who not in reached:
            reached[who] = reach(program, used, core, CrossMode(mode))
        senders, receivers = reached[who]
        feed = feeds.get((mode, flag, senders))
        if feed is None:
            feed = feeds[mode, flag, senders] = len(table)
            table.append(_Feed(senders, receivers, int(delays[mode])))
            _claim(program, fed_by, receivers, flag, feed)
        feed_of_set[core, key] = feed
        table[feed].increments = max(table[feed].increments, count)
    feed_of_wait = np.full((len(sets), len(wait_flags)), NO_FEED, dtype=np.int32)
    for key, flag in enumerate(wait_flags):
        for core in used:
            feed_of_wait[core, key] = fed_by.get((core, flag), NO_FEED)
    return Counters(
        feed_of_set=feed_of_set,
        feed_of_wait=feed_of_wait,
        needed=np.array([len(f.senders) for f in table], dtype=np.int32),
        start=_offsets(f.increments for f in table),
        delay=np.array([f.delay for f in table], dtype=np.int64),
        receiver_start=_offsets(len(f.receivers) for f in table),
        receivers=np.array([r for f in table for r in f.receivers], dtype=np.int32),
    )


def reach(
    program: Program, used: Sequence[int], core: int, mode: CrossMode
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The senders whose sets are counted with a core's, and the cores that see the increment.

    Raises:
        ProgramError: the kind of core has no such mode.
    """
    kind = program.kind_of(core)
    per_group = max(1, program.aiv // max(1, program.aic))
    group = core if kind is CoreKind.AIC else (core - program.aic) // per_group
    first_aiv = program.aic + group * per_group
    if mode is CrossMode.ALL_OF_KIND:
        all_of_kind = tuple(c for c in used if program.kind_of(c) is kind)
        return all_of_kind, all_of_kind
    vectors = tuple(c for c in range(first_aiv, first_aiv + per_group) if c in used)
    cubes = (group,) if group in used else ()
    if mode is CrossMode.GROUP:
        return ((core,), vectors) if kind is CoreKind.AIC else (vectors, cubes)
    if mode is CrossMode.ONE_TO_ONE:
        return ((core,), vectors) if kind is CoreKind.AIC else ((core,), cubes)
    if kind is CoreKind.AIV:
        return vectors, vectors
    raise ProgramError(
        f"{program.name}: {program.core_name(core)} sets a cross-core flag in mode "
        f"{int(mode)} ({mode.name}), which only AIVs have"
    )


def _claim(
    program: Program,
    fed_by: dict[tuple[int, int], int],
    receivers: tuple[int, ...],
    flag: int,
    feed: int,
) -> None:
    for receiver in receivers:
        if fed_by.setdefault((receiver, flag), feed) != feed:
            raise ProgramError(
                f"{program.name}: cross-core flag {flag} of {program.core_name(receiver)} is set "
                "in two modes or by two groups of senders; use another flag for one of them"
            )


def _offsets(counts: Iterable[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(list(counts))]).astype(np.int64)
