"""The parameter table of docs/numerics.md, made from the parameters themselves.

``python -m npusim.numerics.parameter_table`` prints it.
"""

from npusim.architecture import Architecture
from npusim.numerics.model import parameters
from npusim.numerics.parameter import shown

_HEADER = (
    "| parameter | default | other values | question | basis | source |",
    "|---|---|---|---|---|---|",
)


def parameter_table() -> str:
    """Markdown table of every named parameter, one row each, without a final newline."""
    rows = []
    for p in parameters():
        old, new = (shown(p.defaults[a]) for a in Architecture)
        default = f"`{old}`" if old == new else f"2201: `{old}`, 3510: `{new}`"
        others = ", ".join(f"`{text}`" for text in p.alternatives if text not in (old, new))
        cells = [f"`{p.name}`", default, others or "none", p.meaning, p.basis.value, p.source]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*_HEADER, *rows])


if __name__ == "__main__":
    print(parameter_table())
