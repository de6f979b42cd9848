"""``npusim ops``, ``cases``, ``chips`` and ``numerics``: what there is."""

from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("ops", short_help="List the operators, or the parameters of one.")(ops)
    app.command("cases")(cases)
    app.command("chips", short_help="List the chips, or the numbers of one.")(chips)
    app.command("numerics", short_help="List the choices of the arithmetic model.")(numerics)


def ops(
    name: Annotated[str | None, typer.Argument(help="Operator; all if left out.")] = None,
    json: Json = False,
) -> None:
    """List the operators, or the parameters of one with their defaults."""
    from npusim.cli.output import print_json, print_table
    from npusim.ops.registry import operator, operators

    if name is not None:
        defaults = operator(name).defaults
        if json:
            print_json([{"name": p, "default": _plain(value)} for p, value in defaults.items()])
        else:
            table = [[p, "" if value is None else str(value)] for p, value in defaults.items()]
            print_table(f"parameters of {name}", ["parameter", "default"], table)
        return
    rows = operators()
    if json:
        print_json([{"name": name, "summary": summary} for name, summary in rows])
    else:
        print_table("operators", ["name", "what it is"], [list(row) for row in rows])


def cases(op: Annotated[str, typer.Argument(help="Operator.")], json: Json = False) -> None:
    """List the named workloads of an operator."""
    from npusim.cli.output import print_json, print_table
    from npusim.ops.common.cases import load_cases
    from npusim.ops.registry import operator

    found = operator(op).cases_file
    table = load_cases(found) if found else {}
    entries: list[dict[str, Any]] = [
        {
            "name": name,
            "chip": case.chip,
            "mode": case.mode,
            "l2": case.l2,
            "params": case.params,
            "note": case.note,
        }
        for name, case in table.items()
    ]
    if json:
        print_json(entries)
        return
    rows = [
        [e["name"], e["chip"], e["mode"], e["l2"], _params(e["params"]), e["note"]] for e in entries
    ]
    print_table(f"cases of {op}", ["name", "chip", "mode", "l2", "params", "note"], rows)


def chips(
    name: Annotated[str | None, typer.Argument(help="Chip or alias; all if left out.")] = None,
    json: Json = False,
) -> None:
    """List the chips, or show one with the source of every number."""
    from npusim.chips.load import list_chips, load_chip
    from npusim.cli.output import print_json, print_table

    if name is not None:
        _show_chip(name, json)
        return
    loaded = [load_chip(n) for n in list_chips()]
    if json:
        print_json(
            [
                {
                    "name": c.name,
                    "family": c.family,
                    "architecture": int(c.architecture),
                    "runnable": c.is_runnable,
                    "description": c.description,
                }
                for c in loaded
            ]
        )
        return
    rows = [
        [c.name, c.family, str(int(c.architecture)), "yes" if c.is_runnable else "no",
         c.description]
        for c in loaded
    ]  # fmt: skip
    print_table("chips", ["name", "family", "architecture", "runs", "what it is"], rows)


def _show_chip(name: str, as_json: bool) -> None:
    from npusim.chips.load import load_chip
    from npusim.cli.output import print_json, print_table

    chip = load_chip(name)
    quantities = [
        {
            "name": path,
            "value": q.value,
            "unit": q.unit,
            "low": q.low,
            "high": q.high,
            "confidence": q.confidence.value,
            "source": q.source,
            "note": q.note,
        }
        for path, q in chip.quantities.items()
    ]
    if as_json:
        print_json({"name": chip.name, "family": chip.family, "parameters": quantities})
        return
    rows = [
        [
            ("* " if q["confidence"] == "inferred" else "  ") + str(q["name"]),
            f"{q['value']} {q['unit']}",
            "" if q["low"] is None else f"{q['low']} to {q['high']}",
            str(q["confidence"]),
            str(q["source"]),
        ]
        for q in quantities
    ]
    print_table(
        f"{chip.name}: {chip.description} (* = inferred, no source says it)",
        ["parameter", "value", "range", "confidence", "source"],
        rows,
    )


def numerics(
    chip: Annotated[str, typer.Argument(help="Chip or alias whose defaults to show.")] = "A2",
    json: Json = False,
) -> None:
    """List the parameters of the arithmetic model, for 'run --numerics NAME=VALUE'."""
    from npusim.chips.load import load_chip
    from npusim.cli.output import print_json, print_table
    from npusim.numerics.model import NumericsModel, parameters
    from npusim.numerics.parameter import choices, shown

    model = NumericsModel.default(load_chip(chip).architecture)
    entries = [
        {
            "name": p.name,
            "value": shown(model.value(p.name)).lower(),
            "choices": choices(p),
            "meaning": p.meaning,
            "basis": p.basis.value,
            "source": p.source,
        }
        for p in parameters()
    ]
    if json:
        print_json(entries)
        return
    rows = [
        [str(e["name"]), str(e["value"]), _others(e), str(e["meaning"]), str(e["basis"])]
        for e in entries
    ]
    title = f"numerics of architecture {int(model.architecture)}"
    print_table(title, ["parameter", "default", "other values", "question", "basis"], rows)


def _others(entry: dict[str, Any]) -> str:
    return ", ".join(text for text in entry["choices"] if text != entry["value"])


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _params(params: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in params.items())
