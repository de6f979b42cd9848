"""Where machine code is kept: a folder for each state of the sources, and never a borrowed one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from npusim import code_cache as cache
from npusim.code_cache import (
    cache_folder,
    constants_of,
    drop_stale,
    numba_cache_in,
    source_digest,
)
from npusim.timing import memory_layout, residency, sharing


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Two source files."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in ("one.py", "two.py"):
        (folder / name).write_text(f"NAME = '{name}'\n", "utf-8")
    return [folder / "one.py", folder / "two.py"]


def test_the_digest_follows_every_source_and_not_its_place(
    sources: list[Path], tmp_path: Path
) -> None:
    before = source_digest(sources, {})
    assert source_digest(sources[::-1], {}) == before
    moved = tmp_path / "moved"
    moved.mkdir()
    copies = [moved / path.name for path in sources]
    for path, copy in zip(sources, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    assert source_digest(copies, {}) == before
    for path in copies:
        text = path.read_text("utf-8")
        path.write_text(text + "# changed\n", "utf-8")
        assert source_digest(copies, {}) != before
        path.write_text(text, "utf-8")
    assert source_digest(copies[:1], {}) != before


def test_the_folder_is_made_for_the_user_alone(sources: list[Path], tmp_path: Path) -> None:
    folder = cache_folder(sources, {}, tmp_path / "cache")
    assert folder == tmp_path / "cache" / f"compiled-{source_digest(sources, {})}"
    assert folder is not None and folder.is_dir()
    if hasattr(os, "getuid"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_root_that_is_a_file_gives_no_folder(sources: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    assert cache_folder(sources, {}, tmp_path / "file") is None


def test_temporary_files_serve_where_the_user_has_no_cache(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setattr(cache, "user_cache_root", lambda: tmp_path / "file")
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setattr(cache.tempfile, "tempdir", None)
    folder = cache_folder(sources, {})
    assert folder is not None
    assert folder.parent.parent == tmp_path / "temporary"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files here")
def test_a_folder_of_somebody_else_is_not_used(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.getuid()
    monkeypatch.setattr(cache.os, "getuid", lambda: owner + 1)
    assert cache_folder(sources, {}, tmp_path / "cache") is None


def test_folders_unused_for_long_are_dropped(tmp_path: Path) -> None:
    names = ("compiled-new", "compiled-old", "compiled-mine", "something-else")
    for name in names:
        (tmp_path / name).mkdir()
    long_ago = time.time() - (cache.STALE_DAYS + 1) * 86400
    for name in names[1:]:
        os.utime(tmp_path / name, (long_ago, long_ago))
    drop_stale(tmp_path / "compiled-mine")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "compiled-mine",
        "compiled-new",
        "something-else",
    ]


def test_numba_keeps_its_own_setting(tmp_path: Path) -> None:
    config = pytest.importorskip("numba.core.config")
    before = config.CACHE_DIR
    with numba_cache_in(tmp_path):
        assert str(tmp_path) == config.CACHE_DIR
    assert before == config.CACHE_DIR


def test_every_kernel_is_among_the_hashed_sources() -> None:
    pytest.importorskip("numba")
    from npusim.timing import engine_compiled

    names = {path.name for path in engine_compiled.compiled_sources()}
    assert {
        "compiled_core.py",
        "compiled_links.py",
        "compiled_loop.py",
        "compiled_state.py",
        "engine_compiled.py",
        "eviction.py",
        "extents.py",
        "memory_system.py",
        "residency.py",
        "sharing.py",
    } <= names


def test_files_of_tables_are_hashed_too() -> None:
    """The order of a table's columns is part of the machine code."""
    pytest.importorskip("numba")
    from npusim.timing import engine_compiled

    names = {path.name for path in engine_compiled.compiled_sources()}
    assert {"compiled_streams.py", "compiled_counters.py", "memory_state.py"} <= names


def test_constants_from_other_files_are_part_of_the_key(sources: list[Path]) -> None:
    found = constants_of([residency.look_up, sharing.serve])
    assert found["npusim.timing.residency.D_KIND"] == memory_layout.D_KIND
    assert found["npusim.timing.residency.READ"] == 0
    assert found["npusim.timing.sharing.S_CLOCK"] == memory_layout.S_CLOCK
    assert "npusim.timing.residency.find_whole" not in found
    assert source_digest(sources, {"A": 1}) != source_digest(sources, {"A": 2})
    assert source_digest(sources, {"A": 1}) != source_digest(sources, {"B": 1})


def test_importing_the_package_does_not_import_numba() -> None:
    code = (
        "import sys, npusim, npusim.simulate, npusim.timing.run, npusim.timing.memory_system; "
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_warm_up_says_where_the_code_is() -> None:
    pytest.importorskip("numba")
    from npusim.timing import engine_compiled
    from npusim.timing.warmup import warmup

    folder = engine_compiled.code_folder()
    assert warmup() == f"the compiled engine is ready in {folder}"
    assert folder is not None
    assert list(folder.rglob("*.nbc"))
