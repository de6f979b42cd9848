"""The report of a validation as text."""

import json
from collections import Counter
from collections.abc import Iterable

from npusim.validate.guesses import guess, row_remark
from npusim.validate.records import Record
from npusim.validate.scores import Score
from npusim.validate.sources import HYPOTHESES
from npusim.validate.tables import ClassRow, Ladders
from npusim.validate.validation import Validation
from npusim.validate.workload import Unmapped

WORST = 10
CLASS_HEADINGS = (
    "class",
    "family",
    "n",
    "median %",
    "mean %",
    "p90 %",
    "worst %",
    "bias %",
    "mean %, 2nd reading",
    "errs",
    "worst record",
)


def print_report(found: Validation) -> None:
    """Print classes, the worst rows, hypotheses and what was not mapped."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 200)
    table = Table(title="error by class", title_justify="left")
    for position, heading in enumerate(CLASS_HEADINGS):
        numeric = 2 <= position <= 8
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*class_cells(row))
    console.print(table)
    for line in [*_worst_lines(found.scores), *ladder_lines(found.ladders)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in [*_hypothesis_lines(found), *_unmapped_lines(found.unmapped), coverage(found)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def class_cells(row: ClassRow) -> tuple[str, ...]:
    """The cells of one class, in the order of ``CLASS_HEADINGS``."""
    second = row.alternative_mean_abs_pct
    return (
        row.record_class.value,
        row.family,
        str(row.n),
        f"{row.median_abs_pct:.1f}",
        f"{row.mean_abs_pct:.1f}",
        f"{row.p90_abs_pct:.1f}",
        f"{row.worst_abs_pct:.1f}",
        f"{row.bias_pct:+.1f}",
        "" if second is None else f"{second:.1f}",
        row_remark(row),
        row.worst,
    )


def worst_scores(scores: Iterable[Score], count: int = WORST) -> list[Score]:
    """The scored comparisons that are furthest off."""
    scored = [s for s in scores if s.scored]
    return sorted(scored, key=lambda s: (-abs(s.error_pct), s.id))[:count]


def ladder_lines(ladders: Ladders) -> list[str]:
    """How well the order within tuning series is predicted."""
    if ladders.tau is None:
        return []
    lines = [f"order within series: Kendall tau {ladders.tau:.2f} over {ladders.pairs} pairs"]
    return lines + [f"  in the wrong order: {pair}" for pair in ladders.wrong]


def coverage(found: Validation) -> str:
    """How many records were run."""
    run, scored = len(found.plans), sum(s.scored for s in found.scores)
    return (
        f"{run} of {found.records} records mapped and run; {scored} comparisons scored, "
        f"{len(found.scores) - scored} reported without a score; {len(found.unmapped)} not run"
    )


def _worst_lines(scores: Iterable[Score]) -> list[str]:
    lines = ["furthest off, with a guess at the reason:"]
    for s in worst_scores(scores):
        lines.append(
            f"  {s.id} ({s.record_class.value}): {s.error_pct:+.1f} %, measured "
            f"{s.measured:.5g} {s.metric}, predicted {s.predicted:.5g}; {guess(s)}"
        )
    return lines


def _hypothesis_lines(found: Validation) -> list[str]:
    used = {plan.hypothesis.name for plan in found.plans}
    return [
        f"assumed of {h.name}: L2 {h.state_label}; {h.reason}" for h in HYPOTHESES if h.name in used
    ]


def _unmapped_lines(unmapped: Iterable[Unmapped]) -> list[str]:
    """Every record that was not run; those with one reason on one line."""
    groups: dict[str, list[str]] = {}
    for row in unmapped:
        groups.setdefault(row.why, []).append(row.id)
    lines = ["not run:"] if groups else []
    for why, ids in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        lines.append(f"  {why} ({len(ids)}): {', '.join(ids)}")
    return lines


def story(record_id: str, record: Record | None, why: str | None, found: Validation) -> str:
    """Everything about one record: itself, hypothesis, prediction, error, command."""
    if record is None:
        return f"{record_id}: unreadable: {why}"
    lines = [json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False)]
    lines += [f"not run: {row.why}" for row in found.unmapped if row.id == record_id]
    for plan in found.plans:
        hypothesis = plan.hypothesis
        lines += [
            f"hypothesis '{hypothesis.name}': L2 {hypothesis.state_label}; {hypothesis.reason}",
            *(
                f"workload: {w.op} on {plan.chip}; {w.note or 'as stated'}"
                for w in plan.workload.kernels
            ),
        ]
    counts = Counter(s.record_id for s in found.scores)
    for score in found.scores:
        lines.append(_score_line(score))
    if counts[record_id]:
        lines += ["reproduce with:", f"  {found.scores[0].command}"]
    return "\n".join(lines)


def _score_line(s: Score) -> str:
    span = "" if s.low == s.high else f" (span {s.low:.6g} to {s.high:.6g})"
    second = "" if s.alternative_pct is None else f"; second reading {s.alternative_pct:+.1f} %"
    reported = "" if s.scored else f"; not scored: {s.why_unscored}"
    reason = f"; guess: {guess(s)}" if abs(s.error_pct) > 5 else ""
    return (
        f"{s.id}: measured {s.measured:.6g} {s.metric}, predicted {s.predicted:.6g}{span}, "
        f"error {s.error_pct:+.1f} %{second}{reported}{reason}"
    )
