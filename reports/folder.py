"""The run folder: everything a run leaves, written as a whole or not at all."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npusim.errors import ParameterError
from npusim.ops.common.operator import TensorRole
from npusim.reports.pictures import draw_pictures, gather_pictures, write_pictures
from npusim.simulate import Job, Run
from npusim.summary import SCHEMA
from npusim.tensor_files import TensorFile, write_tensors
from npusim.timing.options import Level
from npusim.traces.check import TraceReport
from npusim.traces.chrome import TraceFilter, write_checked_trace

SUMMARY_FILE = "summary.json"
TRACE_FILE = "trace.json.gz"
OUTPUTS_FOLDER = "outputs"
ROOT = Path("out")
_LONGEST_NAME = 120  # bytes; file systems take 255
_DIGEST_CHARACTERS = 8


def default_folder(job: Job) -> Path:
    """``out/OP-CASE-CHIP``, with the parameters that the user gave in between and what else was
    chosen behind, so that runs to compare do not replace each other."""
    request = job.request
    parts = [job.operator.name, request.case or ""]
    parts += [f"{name}{value}" for name, value in request.params.items()]
    parts.append(job.chip.name)
    chosen = (request.mode, request.l2)
    parts += [choice.value for choice in chosen if choice is not None]
    for given in (request.chip_set, request.tiling, request.numerics):
        parts += [f"{name}{value}" for name, value in given.items()]
    parts += [f"seed{request.seed}"] if request.seed else []
    name = "-".join(re.sub(r"[^\w.]+", "_", str(p)) for p in parts if p)
    if len(name.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        name = f"{name.encode()[:_LONGEST_NAME].decode(errors='ignore')}-{digest}"
    return ROOT / name


def write_run(
    run: Run, summary: dict[str, Any], folder: Path, choose: TraceFilter | None = None
) -> dict[str, Any]:
    """Write a run folder; an earlier run of the same name is replaced once all is written.

    Args:
        choose: part of the run that the trace shows.

    Returns:
        the summary with ``checks.trace`` filled in, as written.

    Raises:
        ParameterError: the folder cannot be written, or is something other than a run folder.
    """
    summary = {**summary, "checks": dict(summary["checks"])}
    with replacing(folder) as fresh:
        report = _write_trace(run, fresh, choose)
        if report is not None:
            summary["checks"]["trace"] = "valid" if report.valid else str(report)
            summary["trace"] = {
                "slices": report.slices,
                "flows": report.flows,
                "counters": report.counters,
            }
        pictures = gather_pictures(run, summary)
        draw_pictures(pictures, fresh)
        write_pictures(pictures, fresh)
        _write_outputs(run, fresh)
        text = json.dumps(summary, indent=2, allow_nan=False)
        (fresh / SUMMARY_FILE).write_text(text + "\n", "utf-8")
    return summary


def require_writable(folder: Path) -> None:
    """Refuse an output folder before a long run rather than after it.

    Raises:
        ParameterError: see `write_run`.
    """
    with _one_line(folder):
        _require_replaceable(folder)
        parent = _nearest_existing(folder.parent)
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new empty folder that takes the place of ``folder`` when the block ends well.

    It lies beside ``folder``, so that the last step is a rename; if anything goes wrong, Ctrl-C
    included, it is removed and ``folder`` is as it was.

    Raises:
        ParameterError: see `write_run`.
    """
    require_writable(folder)
    with _one_line(folder):
        kept = _nearest_existing(folder.parent)
        fresh = _sibling(folder, "partial")
        try:
            fresh.mkdir(parents=True)
            yield fresh
            _swap(fresh, folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            _remove_empty(folder.parent, kept)
            raise


def _swap(fresh: Path, folder: Path) -> None:
    """Put ``fresh`` in the place of ``folder``; the old one comes back if that fails."""
    if not folder.exists():
        fresh.rename(folder)
        return
    old = _sibling(folder, "old")
    folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _one_line(folder: Path) -> Iterator[None]:
    """Errors of the file system as one line that names the folder."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ParameterError(
            f"output folder {folder} cannot be written ({reason}); choose another with --out"
        ) from error


def _require_replaceable(folder: Path) -> None:
    """Nothing but an earlier run may be replaced."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir() or folder.is_symlink():
        raise ParameterError(f"output folder {folder} is not a folder; choose another with --out")
    if any(folder.iterdir()) and not _is_run_folder(folder):
        raise ParameterError(
            f"output folder {folder} holds something other than a run (no {SUMMARY_FILE} of one) "
            "and is left alone; choose another with --out"
        )


def _is_run_folder(folder: Path) -> bool:
    try:
        found = json.loads((folder / SUMMARY_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("schema") == SCHEMA


def _sibling(folder: Path, purpose: str) -> Path:
    """A hidden name beside a folder, for this process alone."""
    return folder.parent / f".{folder.name}.{os.getpid()}.{purpose}"


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _remove_empty(path: Path, kept: Path) -> None:
    """Take back the folders between ``kept`` and ``path`` that were made on the way."""
    while path != kept:
        try:
            path.rmdir()
        except OSError:
            return
        path = path.parent


def _write_trace(run: Run, folder: Path, choose: TraceFilter | None) -> TraceReport | None:
    """The trace, if the run kept every instruction, and its check."""
    if run.records is None or run.records.level < Level.INSTRUCTION:
        return None
    path = folder / TRACE_FILE
    clock_mhz = run.job.chip.cores.clock_mhz
    return write_checked_trace(path, run.program, run.records, clock_mhz=clock_mhz, choose=choose)


def _write_outputs(run: Run, folder: Path) -> None:
    if not run.outputs:
        return
    outputs = folder / OUTPUTS_FOLDER
    outputs.mkdir()
    specs = {
        t.name: t
        for t in run.job.operator.tensors(run.job.params)
        if t.role in (TensorRole.OUTPUT, TensorRole.INOUT)
    }
    write_tensors(
        outputs,
        {
            name: (TensorFile(name, specs[name].dtype, array.shape), array)
            for name, array in run.outputs.items()
        },
    )
