"""What every instruction costs on a chip: one module for each unit of a core."""

from npusim.timing.costs.build import cost_table
from npusim.timing.costs.table import CostTable

__all__ = ["CostTable", "cost_table"]
