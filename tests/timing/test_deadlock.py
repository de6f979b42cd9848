"""A run that cannot go on says who waits, for what, and who should have acted."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest
from small_programs import toy_builder

from npusim.chips.load import load_chip
from npusim.errors import DeadlockError
from npusim.isa.block_builder import BlockBuilder
from npusim.isa.instructions import CrossMode
from npusim.isa.spaces import Pipe
from npusim.timing.run import CacheState, Engine, run_timing

Body = Callable[[BlockBuilder], None]
ENGINES = [
    Engine.SIMPY,
    pytest.param(
        Engine.COMPILED,
        marks=pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed"),
    ),
]


def message(bodies: dict[int, Body], engine: Engine, l2: CacheState = CacheState.COLD) -> str:
    b = toy_builder("stuck")
    for core, body in bodies.items():
        b.place(core, body, stage="body")
    program = b.finish()
    with pytest.raises(DeadlockError) as error:
        run_timing(program, load_chip("toy"), engine=engine, l2=l2)
    return str(error.value)


ADVICE = (
    "Every wait needs an earlier set; check the order of flags and barriers in the streams named"
)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_flag_that_nobody_sets(engine: Engine) -> None:
    def body(k: BlockBuilder) -> None:
        k.set_flag(Pipe.MTE2, Pipe.VECTOR, 1)
        k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 1)
        k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 1)

    line = body.__code__.co_firstlineno
    assert message({1: body}, engine) == (
        "stuck: deadlock at cycle 103: "
        f"AIV 0 SCALAR waits for all earlier rows of its core (row 4, end); "
        f"AIV 0 VECTOR waits for flag MTE2->VECTOR event 1 (row 3, test_deadlock.py:{line + 3}), "
        f"wait 2, but MTE2 sets it only 1 time. {ADVICE}"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_flags_in_a_circle(engine: Engine) -> None:
    def body(k: BlockBuilder) -> None:
        k.wait_flag(Pipe.VECTOR, Pipe.MTE2, 0)
        k.set_flag(Pipe.MTE2, Pipe.VECTOR, 0)
        k.wait_flag(Pipe.MTE2, Pipe.VECTOR, 0)
        k.set_flag(Pipe.VECTOR, Pipe.MTE2, 0)

    line = body.__code__.co_firstlineno
    assert message({1: body}, engine) == (
        "stuck: deadlock at cycle 100: "
        f"AIV 0 SCALAR waits for all earlier rows of its core (row 5, end); "
        f"AIV 0 MTE2 waits for flag VECTOR->MTE2 event 0 (row 1, test_deadlock.py:{line + 1}), "
        "set 1 of 1 by VECTOR has not been reached; "
        f"AIV 0 VECTOR waits for flag MTE2->VECTOR event 0 (row 3, test_deadlock.py:{line + 3}), "
        f"set 1 of 1 by MTE2 has not been reached. {ADVICE}"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cross_core_flag_that_one_sender_forgets(engine: Engine) -> None:
    def wait(k: BlockBuilder) -> None:
        k.cross_wait(CrossMode.GROUP, 4, Pipe.MTE2)

    def send(k: BlockBuilder) -> None:
        k.cross_set(CrossMode.GROUP, 4, Pipe.MTE3)

    def forget(k: BlockBuilder) -> None:
        k.scalar(1)

    line = wait.__code__.co_firstlineno
    assert message({0: wait, 1: send, 2: forget}, engine) == (
        "stuck: deadlock at cycle 102: "
        f"AIC 0 SCALAR waits for all earlier rows of its core (row 2, end); "
        f"AIC 0 MTE2 waits for cross-core flag 4 (mode 2) (row 1, test_deadlock.py:{line + 1}): "
        f"this is wait 1, AIV 0 sets it 1 time, AIV 1 sets it 0 times. {ADVICE}"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_queue_behind_a_wait(engine: Engine) -> None:
    def body(k: BlockBuilder) -> None:
        k.wait_flag(Pipe.MTE3, Pipe.VECTOR, 0)
        for _ in range(20):
            k.pipe_barrier(Pipe.VECTOR)
        k.set_flag(Pipe.MTE3, Pipe.VECTOR, 0)

    line = body.__code__.co_firstlineno
    # 16 places: the wait at the head and 15 barriers; row 17 does not fit.
    assert message({1: body}, engine) == (
        "stuck: deadlock at cycle 100: "
        "AIV 0 SCALAR waits for room in the queue of VECTOR "
        f"(row 17, test_deadlock.py:{line + 3}); "
        f"AIV 0 VECTOR waits for flag MTE3->VECTOR event 0 (row 1, test_deadlock.py:{line + 1}), "
        f"set 1 of 1 by MTE3 has not been reached. {ADVICE}"
    )
