import importlib.util
import sys
from pathlib import Path

# importlib mode gives test folders no package, so shared helpers are loaded by path.
_HERE = Path(__file__).parent
for _path in (
    _HERE.parent / "isa" / "small_programs.py",
    _HERE.parent / "timing" / "random_programs.py",
    _HERE / "ordering_oracle.py",
    _HERE / "mutations.py",
    _HERE / "judge.py",
    _HERE / "legal_programs.py",
    _HERE / "finding_tools.py",
):
    if _path.stem not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_path.stem, _path)
        assert _spec is not None and _spec.loader is not None
        sys.modules[_path.stem] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_path.stem])
