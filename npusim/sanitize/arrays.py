"""The arrays that the ordering pass works on, and the numbers that they hold."""

from typing import NamedTuple

import numpy as np

WORK = 0
SET = 1
WAIT = 2
BARRIER = 3
CROSS_SET = 4
CROSS_WAIT = 5
DRAIN = 6
"""Kinds of row. ``WORK`` includes the rows of the scalar unit that do not wait."""

RAW = 0
WAR = 1
WAW = 2
UNDEFINED = 3
DOUBLE_SET = 4
OVERFLOW = 5
"""Kinds of hit: the hazard of a pair, or what a single row does wrong."""

UNORDERED = 0
ORDERED = 1
ORDERED_IF_LARGE = 2
"""What a pipe does by itself for two of its rows with a hazard between them."""

NO_ROLE = 0
ACCUMULATES = 1
STARTS = 2
DRAINS = 3
"""What a row does with its unit-flag region: an MMAD that goes on or starts anew, a FIXPIPE."""

DONE = 0
POOL_FULL = 1
"""How the pass ended. A deadlock shows in the state: streams that are not at their end."""

PIPES = 7
COUNTER_LIMIT = 15
FLAG_SLOTS = 8
"""Sets of one event whose knowledge is kept apart. A legal program needs 1."""

NONE = -1


class Tables(NamedTuple):
    """A program, as the pass reads it. Rows are counted through all blocks.

    Attributes:
        kind, pipe, key, large, role, unit: (rows,) what each row is; ``key`` numbers flags and
            counters, ``large`` marks MMADs that end after the next one has read what they wrote.
        block_first: (blocks + 1,) first row of each block.
        access_first, access_mode, access_footprint: accesses of each row; a footprint below 0 is
            the -1-th, -2-th ... GM operand of the instance.
        move_first, move_dst, move_src: atoms of on-chip copies that keep what is undefined.
        footprint_first, footprint_atoms: atoms of each footprint.
        instance_block, core_first: streams.
        gm_first, gm_footprint: footprints of the GM operands of each instance; -1 is not checked.
        core_base: (cores,) where a core's on-chip atoms begin in the shadow; GM begins at 0.
        thread: (cores, 7) number of each pipe, -1 if the core is not used.
        hardware: (7, 3) what each pipe orders by itself, by hazard.
        flag_dst: pipe that waits for each flag.
        depth: (7,) rows that a queue holds.
        set_feed, wait_feed: (cores, keys) feed of cross-core sets and waits, or -1.
        feed_needed, feed_first, feed_wait_key: senders, increments and wait key of each feed.
        receiver_first, receivers: cores that wait for a feed.
        wait_first: (cores, wait keys) where the waits of a counter begin; wait_count: how many.
        version_first: (cores + 1,) where the versions of a scalar unit's knowledge begin.
    """

    kind: np.ndarray
    pipe: np.ndarray
    key: np.ndarray
    large: np.ndarray
    role: np.ndarray
    unit: np.ndarray
    block_first: np.ndarray
    access_first: np.ndarray
    access_mode: np.ndarray
    access_footprint: np.ndarray
    move_first: np.ndarray
    move_dst: np.ndarray
    move_src: np.ndarray
    footprint_first: np.ndarray
    footprint_atoms: np.ndarray
    instance_block: np.ndarray
    core_first: np.ndarray
    gm_first: np.ndarray
    gm_footprint: np.ndarray
    core_base: np.ndarray
    thread: np.ndarray
    hardware: np.ndarray
    flag_dst: np.ndarray
    depth: np.ndarray
    set_feed: np.ndarray
    wait_feed: np.ndarray
    feed_needed: np.ndarray
    feed_first: np.ndarray
    feed_wait_key: np.ndarray
    receiver_first: np.ndarray
    receivers: np.ndarray
    wait_first: np.ndarray
    wait_count: np.ndarray
    version_first: np.ndarray


class State(NamedTuple):
    """What the pass knows while it runs.

    Attributes:
        clock: (threads, threads) int32: rows of each thread that are visible before the next row
            of this one starts.
        position: (threads,) rows carried out.
        instance, row: (cores,) where issue stands.
        queue: (threads, depth, 6) rows that wait: instance, row, version, scalar rows, turn,
            unit target. ``queue_head``, ``queue_count``: (threads,).
        versions: (versions, threads) what the scalar unit knew; ``version``: (cores,) the current
            one; ``joined``: (threads,) the one that a thread has taken in.
        flag_clock: (cores * keys * FLAG_SLOTS, threads); ``flag_head``, ``flag_count``,
            ``flag_wait``, ``flag_row``, ``flag_instance``: (cores, keys) raised and not awaited,
            position of the last wait, last set.
        sent, awaited: (cores, keys) cross-core sets carried out and waits issued.
        increment_clock: (increments, threads), increment_sent: (increments,).
        wait_position, wait_thread: (waits,) of cross-core waits carried out.
        unit_clock: (cores * units * 2, threads), unit_issued, unit_done: (cores * units * 2,).
        ready: (cores,) whether a core may be able to go on.
        writer: (atoms, 4) int32 thread, position, row, instance of the last plain write.
        defined: (atoms,) uint8.
        readers, adders: (atoms,) int32 heads of lists in ``pool``.
        pool: (n, 5) int32 thread, position, row, instance, next; ``pool_free``: (2,) head of the
            free list, entries used.
        read: (rows,) uint8 whether anything a row wrote was read.
        hits: (n, 8) int64 kind, row, row, count, instance, instance, atom, used.
        lost: (1,) hits that had no room.
    """

    clock: np.ndarray
    position: np.ndarray
    instance: np.ndarray
    row: np.ndarray
    queue: np.ndarray
    queue_head: np.ndarray
    queue_count: np.ndarray
    versions: np.ndarray
    version: np.ndarray
    joined: np.ndarray
    flag_clock: np.ndarray
    flag_head: np.ndarray
    flag_count: np.ndarray
    flag_wait: np.ndarray
    flag_row: np.ndarray
    flag_instance: np.ndarray
    sent: np.ndarray
    awaited: np.ndarray
    increment_clock: np.ndarray
    increment_sent: np.ndarray
    wait_position: np.ndarray
    wait_thread: np.ndarray
    unit_clock: np.ndarray
    unit_issued: np.ndarray
    unit_done: np.ndarray
    ready: np.ndarray
    writer: np.ndarray
    defined: np.ndarray
    readers: np.ndarray
    adders: np.ndarray
    pool: np.ndarray
    pool_free: np.ndarray
    read: np.ndarray
    hits: np.ndarray
    lost: np.ndarray
