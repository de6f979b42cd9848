import importlib.util
import sys
from pathlib import Path

# importlib mode gives test folders no package, so the shared programs are loaded by path.
_spec = importlib.util.spec_from_file_location(
    "small_programs", Path(__file__).with_name("small_programs.py")
)
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("small_programs", _module)
_spec.loader.exec_module(sys.modules["small_programs"])
