"""``npusim warmup``: compile everything once."""

import typer


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("warmup", short_help="Compile now, so that later runs start at once.")(warmup)


def warmup() -> None:
    """Compile the fast engine and the sanitizer, so that later runs start at once."""
    from npusim.cli.check import compile_sanitizer
    from npusim.timing.warmup import warmup as compile_all

    print(compile_all())
    compile_sanitizer()
