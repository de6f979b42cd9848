"""Reference vectors and the runner that checks every one of them."""

from npusim.numerics.selftest.runner import VECTOR_FILES, run_selftest
from npusim.numerics.selftest.tally import SelftestResult

__all__ = ["VECTOR_FILES", "SelftestResult", "run_selftest"]
