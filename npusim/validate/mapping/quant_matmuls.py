"""placeholder"""

from collections.abc import Callable

from npusim.validate.records import Record
from npusim.validate.workload import Workload

MAPPERS: dict[str, Callable[[Record], Workload]] = {}
