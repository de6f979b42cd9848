"""One core of the compiled engine: its rows resolved as far as what is known allows.

Apart from the memory system everything is a dataflow of times: the start of a row depends only
on times of earlier rows of its core and on cross-core sets. So a core needs no global order of
events. `advance` issues and starts its rows until each pipe waits for something that is not
known yet: the end of a GM transfer, or a set of another core.

The functions are plain Python that numba can compile; see `engine_compiled`.
"""

from typing import NamedTuple

import numpy as np

from npusim.timing.compiled_streams import (
    BARRIER,
    CROSS_SET,
    CROSS_WAIT,
    DRAIN,
    LAUNCH,
    PIPE_SLOTS,
    RING,
    SET,
    TRANSFER,
    WAIT,
    Streams,
)
from npusim.timing.kernel import kernel
from npusim.timing.records import (
    CAUSE_CROSS,
    CAUSE_DRAIN,
    CAUSE_FLAG,
    CAUSE_ISSUED,
    CAUSE_PIPE,
    CAUSE_VISIBLE,
)
