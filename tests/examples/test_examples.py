"""The examples run and say what they promise."""

import importlib.util
from pathlib import Path
from types import ModuleType

from npusim.traces.check import check_trace


def load(repository: Path, name: str) -> ModuleType:
    """An example as a module, without running its main."""
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", repository / "examples" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_first_kernel(repository, tmp_path, capsys):
    load(repository, "first_kernel").main(tmp_path)
    text = capsys.readouterr().out
    assert "values equal: True" in text
    assert "VADD VECTOR" in text
    assert check_trace(tmp_path / "first_kernel.json.gz").valid


def test_prolog_decode(repository, capsys):
    load(repository, "prolog_decode").main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    times = {line.split("us")[0].rsplit(maxsplit=1)[0]: line for line in lines}
    assert len(times) == 8
    as_it_is, faster = (float(lines[i].split()[-2]) for i in (4, 5))
    assert faster < as_it_is
