"""Every operator by name. Packages are imported when they are asked for, not before."""

from importlib import import_module

from npusim.errors import ParameterError, near_matches
from npusim.ops.common.operator import Operator

_PACKAGES = {
    "copy": "npusim.ops.blocks.copy",
    "copy_l1": "npusim.ops.blocks.copy_l1",
    "elementwise": "npusim.ops.blocks.elementwise",
    "matmul": "npusim.ops.blocks.matmul",
    "rms_norm": "npusim.ops.blocks.rms_norm",
    "dynamic_quant": "npusim.ops.blocks.dynamic_quant",
    "softmax": "npusim.ops.blocks.softmax",
    "quant_matmul": "npusim.ops.blocks.quant_matmul",
    "empty": "npusim.ops.blocks.empty",
    "mmad_micro": "npusim.ops.blocks.mmad_micro",
    "vector_micro": "npusim.ops.blocks.vector_micro",
    "swiglu": "npusim.ops.blocks.swiglu",
    "transpose": "npusim.ops.blocks.transpose",
    "scatter_cache": "npusim.ops.blocks.scatter_cache",
    "rotary": "npusim.ops.blocks.rotary",
    "grouped_matmul": "npusim.ops.blocks.grouped_matmul",
    "add_rms_norm_dynamic_quant": "npusim.ops.blocks.add_rms_norm_dynamic_quant",
    "static_quant": "npusim.ops.blocks.static_quant",
    "apply_adamw": "npusim.ops.blocks.apply_adamw",
    "dequant_swiglu_quant": "npusim.ops.blocks.dequant_swiglu_quant",
    "kv_rms_norm_rope_cache": "npusim.ops.blocks.kv_rms_norm_rope_cache",
    "clipped_swiglu": "npusim.ops.blocks.clipped_swiglu",
    "broadcast": "npusim.ops.blocks.broadcast",
    "fill": "npusim.ops.blocks.fill",
    "gather": "npusim.ops.blocks.gather",
    "row_reduce": "npusim.ops.blocks.row_reduce",
    "weight_quant_matmul": "npusim.ops.blocks.weight_quant_matmul",
    "swiglu_grad": "npusim.ops.blocks.swiglu_grad",
    "layer_norm": "npusim.ops.blocks.layer_norm",
    "flat_reduce": "npusim.ops.blocks.flat_reduce",
    "cross_stream": "npusim.ops.blocks.cross_stream",
    "scale_streams": "npusim.ops.blocks.scale_streams",
    "nd_to_nz": "npusim.ops.blocks.nd_to_nz",
    "mla_prolog_v3": "npusim.ops.mla_prolog_v3",
}


def operator(name: str) -> Operator:
    """The operator called ``name``.

    Raises:
        ParameterError: there is none; near matches are listed.
    """
    if name not in _PACKAGES:
        raise ParameterError(f"no operator '{name}'; {near_matches(name, _PACKAGES)}")
    found: Operator = import_module(_PACKAGES[name]).OPERATOR
    return found


def operator_names() -> tuple[str, ...]:
    """The names of all operators."""
    return tuple(_PACKAGES)


def operators() -> list[tuple[str, str]]:
    """Name and summary of every operator."""
    return [(name, operator(name).summary) for name in _PACKAGES]
