"""``npusim check``: races, broken flags, deadlock and overruns, before anything runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from npusim.cli.listing import Json

Text = str | None


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("check", short_help="Look for races, deadlock and overruns.")(check)


def check(
    what: Annotated[str, typer.Argument(help="Operator, or a file with a printed program.")],
    case: Annotated[Text, typer.Option(help="Named workload; all of them if left out.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", help="Parameter: NAME=VALUE; see 'npusim ops OP'."),
    ] = None,
    chip: Annotated[Text, typer.Option(help="Chip or alias: A2, A3, 950 ...")] = None,
    tiling: Annotated[Path | None, typer.Option(help="TOML file of tiling knobs.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of random control tensors.")] = 0,
    validity: Annotated[str, typer.Option(help="documented, wide or lenient.")] = "documented",
    set: Annotated[list[str] | None, typer.Option("--set", help="Chip: PATH=VALUE.")] = None,
    notes: Annotated[bool, typer.Option(help="Show notes too, such as dead stores.")] = False,
    json: Json = False,
) -> None:
    """Check the tile program of an operator, or a printed one; exit status 1 on findings."""
    given = dict(locals())
    if Path(what).suffix == ".txt":
        labelled = [(what, _check_file(Path(what), chip))]
    else:
        names = [case] if case or param else _cases(what) or [None]
        labelled = [(_label(what, name), _check_case(given, name)) for name in names]
    print_reports(labelled, notes, json)
    if not all(report.clean for _, report in labelled):
        raise typer.Exit(1)


def print_reports(labelled: list[tuple[str, Any]], notes: bool, json: bool) -> None:
    """The reports of some programs, as text or as one JSON object."""
    from npusim.cli.output import print_json

    if json:
        entries = [{"what": label, **report.to_json()} for label, report in labelled]
        print_json({"clean": all(r.clean for _, r in labelled), "programs": entries})
        return
    for label, report in labelled:
        print_report(label, report, notes)


def print_report(label: str, report: Any, notes: bool) -> None:
    """One line for a program, and its findings."""
    from npusim.sanitize.findings import Severity

    shown = [f for f in report.findings if notes or f.severity is not Severity.NOTE]
    quiet = len(report.findings) - len(shown)
    counts = [
        f"{sum(f.severity is s for f in report.findings)} {s.value}s"
        for s in (Severity.ERROR, Severity.KNOWN)
    ]
    state = "clean" if report.clean else "FINDINGS"
    tail = f", {quiet} notes (--notes)" if quiet else ""
    print(
        f"{label} on {report.chip}: {state}, {report.rows} rows, "
        f"{counts[0]}, {counts[1].removesuffix('s')} hazards{tail}"
    )
    for finding in shown:
        print(finding)


def _label(op: str, case: str | None) -> str:
    return op if case is None else f"{op} {case}"


def _cases(op: str) -> list[str | None]:
    from npusim.ops.common.cases import load_cases
    from npusim.ops.registry import operator

    found = operator(op).cases_file
    return list(load_cases(found)) if found else []


def compile_sanitizer() -> None:
    """Compile the sanitizer into its cache by checking the smallest program there is."""
    from npusim.simulate import Mode, RunRequest

    _check_job(RunRequest(op="empty", case="tiny", mode=Mode.TIME))


def _check_case(given: dict[str, Any], case: str | None) -> Any:
    from npusim.choices import choose
    from npusim.cli.options import key_values, read_toml
    from npusim.ops.common.operator import Validity
    from npusim.simulate import Mode, RunRequest

    tiling = given["tiling"]
    request = RunRequest(
        op=given["what"],
        case=case,
        params=key_values(given["param"] or [], "-p"),
        chip=given["chip"],
        chip_set=key_values(given["set"] or [], "--set"),
        mode=Mode.TIME,
        tiling={} if tiling is None else read_toml(tiling, "--tiling"),
        validity=choose(Validity, given["validity"], "--validity"),
        seed=given["seed"],
    )
    return _check_job(request)


def _check_job(request: Any) -> Any:
    """Check what an operator builds; what is illegal in it comes as a finding too."""
    from npusim.sanitize.check import check_program
    from npusim.simulate import control_tensors, make_inputs, resolve, unverified_program

    job = resolve(request)
    program = unverified_program(job, control_tensors(job, make_inputs(job)))
    return check_program(program, job.chip, job.operator.known_hazards)


def _check_file(path: Path, chip: str | None) -> Any:
    from npusim.chips.load import load_chip
    from npusim.errors import ProgramError
    from npusim.isa.parser import parse_program
    from npusim.sanitize.check import check_program
    from npusim.simulate import DEFAULT_CHIP

    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ProgramError(f"{path} is not text in UTF-8; give a printed program") from None
    program = parse_program(text)
    return check_program(program, load_chip(chip or DEFAULT_CHIP))
