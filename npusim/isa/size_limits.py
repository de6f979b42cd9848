"""How large a program may become, so that a mistyped shape ends in words and not in swapping.

The limits are a hundred times above the largest kernels with published times; at each of them a
program takes a few GiB.
"""

from npusim.errors import CapacityError

MAX_BLOCK_ROWS = 1_000_000
"""Rows of one block."""
MAX_UNIQUE_ROWS = 10_000_000
"""Rows of all blocks of a program."""
MAX_INSTANCES = 20_000_000
"""Placed blocks of a program."""
MAX_EXECUTED = 1_000_000_000
"""Executed instructions of a program; their ids are 32-bit numbers."""

_LIMITS = {
    "rows in one block": MAX_BLOCK_ROWS,
    "rows in its blocks": MAX_UNIQUE_ROWS,
    "placed blocks": MAX_INSTANCES,
    "instructions": MAX_EXECUTED,
}


def require_block_rows(rows: int, block: str) -> None:
    """Refuse a block that is too long to keep."""
    _require(rows, "rows in one block", f"block {block}")


def require_program_size(
    program: str, unique_rows: int = 0, instances: int = 0, executed: int = 0
) -> None:
    """Refuse a program that is too large to keep.

    Raises:
        CapacityError: names the first of the limits that is passed.
    """
    _require(unique_rows, "rows in its blocks", f"program {program}")
    _require(instances, "placed blocks", f"program {program}")
    _require(executed, "instructions", f"program {program}")


def _require(count: int, what: str, where: str) -> None:
    limit = _LIMITS[what]
    if count > limit:
        raise CapacityError(
            f"{where} has more than {limit:,} {what}, the most that is simulated; use a smaller "
            "shape or larger tiles"
        )
