"""A hash that is computed once, for arguments of blocks that are looked up many times."""

from dataclasses import fields
from typing import Any


def cached_hash(self: Any) -> int:
    """``__hash__`` of a frozen dataclass, kept after the first use."""
    known = self.__dict__.get("_hash")
    if known is None:
        known = hash(tuple(getattr(self, f.name) for f in fields(self)))
        self.__dict__["_hash"] = known
    return int(known)
