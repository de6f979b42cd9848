"""What is shipped: a wheel holds what the tree holds, and nothing names a machine or a registry."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# Written so that this file does not match itself.
FORBIDDEN = {
    "an absolute path": re.compile(r"(?<![\w.~<>})/-])/(?:home|root|work|opt|Users|mnt)/\w"),
    "a package registry": re.compile(
        r"(?:pypi|pythonhosted|npmjs|crates|anaconda|aliyun|tsinghua)\.(?:org|io|com|python|edu)",
        re.IGNORECASE,
    ),
    "an index option": re.compile(r"--(?:(?:extra-)?index-url|find-links|trusted-host)\b"),
}
LINKED = ("ops", "traces", "reports")


def source_files(repository: Path) -> list[str]:
    """Paths of all files that belong to the repository, ignored ones left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [path for path in listed.stdout.split("\0") if path]
    return [path for path in paths if os.path.lexists(repository / path)]


def packaged_files(paths: list[str]) -> set[str]:
    """Where the files of the tree belong in a wheel: the linked folders under ``npusim``."""
    links = tuple(f"npusim/{name}/" for name in LINKED)
    inside = {p for p in paths if p.startswith("npusim/") and not p.startswith(links)}
    return inside | {f"npusim/{path}" for path in paths if path.split("/")[0] in LINKED}


@pytest.fixture(scope="module")
def tree(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, where no earlier build has left anything."""
    copy = tmp_path_factory.mktemp("tree")
    for path in source_files(repository):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repository / path, copy / path, follow_symlinks=False)
    return copy


@pytest.fixture(scope="module")
def tree_files(tree: Path) -> set[str]:
    """Where each file of the copy belongs in a wheel; read before anything is built in it."""
    paths = [path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()]
    return packaged_files([path for path in paths if not (tree / path).is_symlink()])


@pytest.fixture(scope="module")
def wheel(tree: Path, tree_files: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the copy."""
    assert tree_files
    out = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(tree)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = out.glob("npusim-*.whl")
    return made


def test_the_linked_folders_are_relative_links(repository: Path) -> None:
    for name in LINKED:
        assert os.readlink(repository / "npusim" / name) == f"../{name}"


@pytest.mark.slow
def test_the_wheel_holds_what_the_tree_holds(tree_files: set[str], wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert sorted(tree_files - held) == [], "in the tree, not in the wheel"
    assert sorted(held - tree_files) == [], "in the wheel, not in the tree"
    assert any(name.startswith("npusim/chips/data/") for name in held)


@pytest.mark.slow
def test_the_wheel_names_its_command_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (n for n in names if n.endswith(".dist-info/entry_points.txt"))
        parser = configparser.ConfigParser()
        parser.read_string(archive.read(entry_points).decode())
    assert dict(parser["console_scripts"]) == {"npusim": "npusim.cli:main"}
    assert {Path(n).name for n in names if "/licenses/" in n} == {"LICENSE", "NOTICE"}


@pytest.mark.slow
def test_an_unpacked_wheel_finds_its_data(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    # -I keeps the checkout and the editable install's path out of the way until we add ours.
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import npusim, npusim.ops, npusim.traces, npusim.reports\n"
        "from npusim.chips import list_chips, load_chip\n"
        "print(npusim.ops.__file__)\n"
        "print(len([load_chip(name) for name in list_chips()]))\n"
    )
    run = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [str(tmp_path / "npusim/ops/__init__.py"), "13"]


def test_nothing_names_a_machine_or_a_registry(repository: Path) -> None:
    found = []
    for path in source_files(repository):
        full = repository / path
        if full.is_symlink():
            continue
        try:
            text = full.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found += [
                f"{path}:{number} holds {what}: {match.group()}"
                for what, pattern in FORBIDDEN.items()
                for match in [pattern.search(line)]
                if match
            ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "hits"),
    [
        ("see " + "/".join(["", "home", "me", "x"]), {"an absolute path"}),
        ("cp " + "/".join(["", "work", "main"]), {"an absolute path"}),
        ("tests/" + "work/x and a/" + "root/b", set()),
        ("pip install --index" + "-url https://x", {"an index option"}),
        ("from pypi" + ".org", {"a package registry"}),
    ],
)
def test_the_word_check_itself(line: str, hits: set[str]) -> None:
    assert {what for what, pattern in FORBIDDEN.items() if pattern.search(line)} == hits
