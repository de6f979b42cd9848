import importlib.util
import sys
from pathlib import Path

# importlib mode gives test folders no package, so the shared runs are loaded by path.
_spec = importlib.util.spec_from_file_location(
    "kernel_runs", Path(__file__).with_name("kernel_runs.py")
)
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("kernel_runs", _module)
_spec.loader.exec_module(sys.modules["kernel_runs"])
