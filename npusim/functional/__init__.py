"""What a tile program computes, to the bit of a numerics model."""

from npusim.functional.atomics import AtomicOrder, AtomicRule
from npusim.functional.interpreter import Order, run_program

__all__ = ["AtomicOrder", "AtomicRule", "Order", "run_program"]
