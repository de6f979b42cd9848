"""What a tile program computes, to the bit of a numerics model."""

from npusim.functional.atomics import AtomicRule, Atomics
from npusim.functional.interpreter import Order, run_program

__all__ = ["Atomics", "AtomicRule", "Order", "run_program"]
