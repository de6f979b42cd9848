"""Cross-core counters as arrays: which sets make an increment, and who waits for it."""

from dataclasses import dataclass

import numpy as np

from npusim.isa.topology import Topology
from npusim.sanitize.arrays import NONE


@dataclass(frozen=True)
class Feed:
    """A cross-core counter as its senders see it: who adds to it and who waits for it."""

    mode: int
    flag: int
    senders: tuple[int, ...]
    receivers: tuple[int, ...]


@dataclass(frozen=True)
class CrossCore:
    """All counters of a program; the arrays are those of `arrays.Tables`."""

    feeds: tuple[Feed, ...]
    set_feed: np.ndarray
    wait_feed: np.ndarray
    feed_needed: np.ndarray
    feed_first: np.ndarray
    feed_wait_key: np.ndarray
    receiver_first: np.ndarray
    receivers: np.ndarray
    wait_first: np.ndarray
    wait_count: np.ndarray


def cross_core(
    topology: Topology,
    sets: tuple[tuple[int, ...], ...],
    waits: tuple[tuple[int, ...], ...],
    sent: np.ndarray,
    awaited: np.ndarray,
) -> CrossCore:
    """Collect the counters.

    Args:
        sets: (mode, flag) of each set key.
        waits: (flag,) of each wait key.
        sent, awaited: (keys, cores) int64, how often each core executes each set and wait.
    """
    cores = awaited.shape[1]
    feeds, set_feed, wait_feed, increments = _feeds(topology, sets, waits, sent, cores)
    wait_key = {flag: key for key, (flag,) in enumerate(waits)}
    return CrossCore(
        feeds=feeds,
        set_feed=set_feed,
        wait_feed=wait_feed,
        feed_needed=np.array([len(f.senders) for f in feeds] or [0], dtype=np.int64),
        feed_first=firsts(increments),
        feed_wait_key=np.array(
            [wait_key.get(f.flag, NONE) for f in feeds] or [NONE], dtype=np.int64
        ),
        receiver_first=firsts([len(f.receivers) for f in feeds]),
        receivers=np.array([r for f in feeds for r in f.receivers] or [0], dtype=np.int64),
        wait_first=firsts(awaited.T.reshape(-1))[:-1].reshape(cores, -1),
        wait_count=np.ascontiguousarray(awaited.T),
    )


def _feeds(
    topology: Topology,
    sets: tuple[tuple[int, ...], ...],
    waits: tuple[tuple[int, ...], ...],
    sent: np.ndarray,
    cores: int,
) -> tuple[tuple[Feed, ...], np.ndarray, np.ndarray, list[int]]:
    """Feeds, the feed of each set and wait of each core, and the increments of each feed."""
    set_feed = np.full((cores, max(len(sets), 1)), NONE, dtype=np.int64)
    wait_feed = np.full((cores, max(len(waits), 1)), NONE, dtype=np.int64)
    wait_key = {flag: i for i, (flag,) in enumerate(waits)}
    table: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
    increments: list[int] = []
    for key, (mode, flag) in enumerate(sets):
        for receiver in topology.used:
            senders = topology.senders(receiver, mode)
            most = max((int(sent[key, s]) for s in senders), default=0)
            if not most:
                continue
            group = table.setdefault((mode, flag, senders), [])
            if not group:
                increments.append(most)
            group.append(receiver)
            number = list(table).index((mode, flag, senders))
            for s in senders:
                set_feed[s, key] = number
            if flag in wait_key and wait_feed[receiver, wait_key[flag]] == NONE:
                wait_feed[receiver, wait_key[flag]] = number
    feeds = tuple(Feed(m, f, s, tuple(r)) for (m, f, s), r in table.items())
    return feeds, set_feed, wait_feed, increments


def firsts(counts: "np.ndarray | list[int]") -> np.ndarray:
    """Where each group begins, and the total."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, dtype=np.int64))]).astype(np.int64)
