"""Columns of sections, side by side on a wide screen and one below the other on a phone."""

from collections.abc import Iterator

from appliance.content.designs.kind import Inner, Kind, View
from appliance.content.designs.props import Prop, choice, flag, items, number

_PRESETS = {"1:1": (50, 50), "1:2": (33.33, 66.67), "2:1": (66.67, 33.33), "1:1:1": (33.33, 33.33, 33.34),
            "1:1:1:1": (25, 25, 25, 25)}  # fmt: skip


def widths(view: View) -> list[float]:
    """Return the columns' shares of the width in percent: as they say, else as the preset, else alike."""
    columns = view.p.columns
    own = [one.width for one in columns]
    if columns and all(own) and 98 <= sum(own) <= 102:
        return own
    preset = _PRESETS.get(view.p.preset or "", ())
    if len(preset) == len(columns):
        return list(preset)
    return [100 / len(columns)] * len(columns) if columns else []


def cells(view: View) -> list[tuple[float, Inner]]:
    """Return each column rendered, with its share in percent; asking twice is free."""
    if view.made is None:
        view.made = _cells(view)
    found: list[tuple[float, Inner]] = view.made
    return found


def _cells(view: View) -> list[tuple[float, Inner]]:
    found = []
    gaps = view.p.gap * (len(view.p.columns) - 1) / max(len(view.p.columns), 1)
    for index, (column, share) in enumerate(zip(view.p.columns, widths(view), strict=True)):
        inner = view.inner(column.sections or [], view.room * share / 100 - gaps, f"{view.path}.props.columns[{index}]"
                           ".sections")  # fmt: skip
        found.append((share, inner))
    return found


def table(view: View) -> str:
    """Return columns within a column, as a table that falls apart on a phone."""
    made = []
    last = len(view.p.columns) - 1
    stack = ' class="c-stack"' if view.p.stack_on_phone else ""
    for index, (share, inner) in enumerate(cells(view)):
        gap = f"padding:0 {view.p.gap / 2 if index < last else 0:g}px 0 {view.p.gap / 2 if index else 0:g}px"
        made.append(
            f'<td{stack} width="{share:g}%" valign="top" style="vertical-align:top;{gap}">{view.table(inner.mjml)}</td>'
        )
    return (
        '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0"><tr>'
        f"{''.join(made)}</tr></table>"
    )


def text(view: View) -> str:
    """Write the columns one after the other."""
    return "\n\n".join(inner.text for _, inner in cells(view) if inner.text)


def advise(view: View) -> Iterator[tuple[str, str]]:
    """Advise about columns that are not there."""
    if len(view.p.columns) < 2:
        yield "section", "columns need at least two"


KIND = Kind(
    "columns", "Columns", "columns",
    (
        items("columns", "Columns", (
            number("width", "Width", None, 5, 95, unit="%"),
            Prop(name="sections", kind="sections", label="Sections", most=50),
        ), most=4, least=2),
        choice("preset", "Widths", *_PRESETS, default=None),
        number("gap", "Gap", 16, 0, 64),
        flag("stack_on_phone", "One below the other on a phone", True),
    ),
    text, whole=True, in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    inferred=lambda props: "columns" in props,
)  # fmt: skip
