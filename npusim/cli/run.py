"""``npusim run``: one run of one operator."""

from pathlib import Path
from typing import Annotated, Any

import typer

from npusim.cli.listing import Json

Text = str | None


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("run", short_help="Run an operator: its time and its values.")(run)


def run(
    op: Annotated[str, typer.Argument(help="Operator; see 'npusim ops'.")],
    case: Annotated[Text, typer.Option(help="Named workload; see 'npusim cases OP'.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", help="Parameter: NAME=VALUE; see 'npusim ops OP'."),
    ] = None,
    chip: Annotated[Text, typer.Option(help="Chip or alias: A2, A3, 950 ...")] = None,
    mode: Annotated[Text, typer.Option(help="values, time or both.")] = None,
    l2: Annotated[Text, typer.Option(help="L2 at the start: cold or warm.")] = None,
    tiling: Annotated[Path | None, typer.Option(help="TOML file of tiling knobs.")] = None,
    knob: Annotated[list[str] | None, typer.Option("--knob", help="Tiling: NAME=VALUE.")] = None,
    engine: Annotated[str, typer.Option(help="auto, simpy or compiled.")] = "auto",
    inputs: Annotated[Path | None, typer.Option(help="Folder of input tensors.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs and start offsets.")] = 0,
    order: Annotated[
        str, typer.Option(help="Functional order: program, timed or both.")
    ] = "program",
    validity: Annotated[str, typer.Option(help="documented, wide or lenient.")] = "documented",
    set: Annotated[list[str] | None, typer.Option("--set", help="Chip: PATH=VALUE.")] = None,
    numerics: Annotated[
        list[str] | None, typer.Option(help="Arithmetic: NAME=VALUE; see 'npusim numerics'.")
    ] = None,
    level: Annotated[str, typer.Option(help="summary, stage or instruction.")] = "instruction",
    cores: Annotated[Text, typer.Option(help="Cores in the trace, like 0,1,24.")] = None,
    window: Annotated[Text, typer.Option(help="Time in the trace, like 0:50us.")] = None,
    sanitize: Annotated[
        bool, typer.Option(help="Check the program first, as 'check' does.")
    ] = False,
    atomics: Annotated[str, typer.Option(help="key, timed or shuffle:SEED.")] = "key",
    spread: Annotated[int, typer.Option(min=0, help="More runs with random start offsets.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder to write; out/RUN if left out.")] = None,
    json: Json = False,
) -> None:
    """Predict the time of an operator, compute its values, and write a run folder."""
    from npusim.cli.check import print_report, print_reports
    from npusim.cli.output import print_json, progress_bar
    from npusim.reports.folder import default_folder, require_writable, write_run
    from npusim.reports.summary import print_summary
    from npusim.simulate import SanitizerError, resolve, simulate
    from npusim.summary import summarise

    given = dict(locals())
    job = resolve(_request(given))
    if inputs is not None:
        job = job.with_inputs(_given_tensors(job, inputs))
    folder = out if out is not None else default_folder(job)
    require_writable(folder)
    label = "sanitizer: " + job.operator.name
    try:
        with progress_bar(quiet=json) as say:
            finished = simulate(job, say)
            say("report")
            summary = summarise(finished)
            summary = write_run(finished, summary, folder, trace_filter(job, cores, window))
    except SanitizerError as error:
        print_reports([(label, error.report)], notes=False, json=json)
        raise typer.Exit(1) from None
    if json:
        print_json(summary)
    else:
        print_summary(summary, folder)
        if finished.sanitizer is not None:
            print_report(label, finished.sanitizer, notes=False)
    if finished.sanitizer is not None and not finished.sanitizer.clean:
        raise typer.Exit(1)
    compared = (finished.differing, finished.orders_differing)
    if any(count for found in compared for count in (found or {}).values()):
        raise typer.Exit(1)


def _given_tensors(job: Any, folder: Path) -> dict[str, Any]:
    """The operator's tensors in a folder; one that holds none of them is a mistake."""
    from npusim.errors import TensorError
    from npusim.ops.common.operator import TensorRole
    from npusim.tensor_files import read_tensors

    specs = job.operator.tensors(job.params)
    wanted = {t.name: t.dtype for t in specs if t.role is not TensorRole.OUTPUT}
    found = read_tensors(folder, wanted)
    if wanted and not found:
        raise TensorError(
            f"input folder {folder} holds no tensor of {job.operator.name} (NAME.npy, NAME.bin or "
            f"a manifest); its inputs: {', '.join(wanted)}"
        )
    return found


def trace_filter(job: Any, cores: Text, window: Text) -> Any:
    """The part of the run that the trace shows."""
    from npusim.cli.options import core_numbers, window_us
    from npusim.traces.chrome import TraceFilter
    from npusim.units import CycleRounding

    total = job.chip.cores.aic + job.chip.cores.aiv
    span = None
    if window is not None:
        first, last = window_us(window)
        clock = job.chip.clock
        span = clock.cycles(first, CycleRounding.FLOOR), clock.cycles(last, CycleRounding.CEIL)
    return TraceFilter(None if cores is None else core_numbers(cores, total), span)


def _request(given: dict[str, Any]) -> Any:
    from npusim.choices import choose
    from npusim.cli.options import key_texts, key_values, read_toml
    from npusim.functional.atomics import Atomics
    from npusim.functional.interpreter import Order
    from npusim.ops.common.operator import Validity
    from npusim.simulate import Mode, RunRequest
    from npusim.timing.records import Level
    from npusim.timing.run import CacheState, Engine

    mode, l2, tiling = given["mode"], given["l2"], given["tiling"]
    both = given["order"] == "both"
    knobs = {} if tiling is None else read_toml(tiling, "--tiling")
    knobs |= key_values(given["knob"] or [], "--knob")
    return RunRequest(
        op=given["op"],
        case=given["case"],
        params=key_values(given["param"] or [], "-p"),
        chip=given["chip"],
        chip_set=key_values(given["set"] or [], "--set"),
        mode=None if mode is None else choose(Mode, mode, "--mode"),
        l2=None if l2 is None else choose(CacheState, l2, "--l2"),
        tiling=knobs,
        numerics=key_texts(given["numerics"] or [], "--numerics"),
        engine=choose(Engine, given["engine"], "--engine"),
        level=choose(Level, given["level"], "--level"),
        order=Order.PROGRAM if both else choose(Order, given["order"], "--order", ["both"]),
        both_orders=both,
        validity=choose(Validity, given["validity"], "--validity"),
        seed=given["seed"],
        sanitize=given["sanitize"],
        spread=given["spread"],
        atomics=Atomics.parse(given["atomics"]),
    )
