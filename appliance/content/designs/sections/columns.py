"""The columns section: sections side by side on wide screens, and optionally stacked on phones."""

from collections.abc import Iterator

from appliance.content.designs.kind import Finding, InnerContent, Kind, Prop, View, choice, flag, items, number
from appliance.core.i18n import gettext_noop

_PRESETS = {"1:1": (50, 50), "1:2": (33.33, 66.67), "2:1": (66.67, 33.33), "1:1:1": (33.33, 33.33, 33.34),
            "1:1:1:1": (25, 25, 25, 25)}  # fmt: skip


def widths(view: View) -> list[float]:
    """Return the widths of the columns in percent.

    The widths that are set for the columns apply if all are set and their sum is 98 to 102. Otherwise the preset
    applies if it is for this number of columns, else the columns have equal widths.
    """
    columns = view.props.columns
    shares = [column.width for column in columns]
    if columns and all(shares) and 98 <= sum(shares) <= 102:
        return shares
    preset = _PRESETS.get(view.props.preset or "", ())
    if len(preset) == len(columns):
        return list(preset)
    return [100 / len(columns)] * len(columns) if columns else []


def cells(view: View) -> list[tuple[float, InnerContent]]:
    """Return (width in percent, rendered content) of each column; each column is rendered only once."""
    if view.cache is None:
        view.cache = _cells(view)
    rendered: list[tuple[float, InnerContent]] = view.cache
    return rendered


def _cells(view: View) -> list[tuple[float, InnerContent]]:
    rendered = []
    gaps = view.props.gap * (len(view.props.columns) - 1) / max(len(view.props.columns), 1)
    for index, (column, share) in enumerate(zip(view.props.columns, widths(view), strict=True)):
        width = view.content_width * share / 100 - gaps
        inner = view.render_inner(column.sections or [], width, f"{view.path}.props.columns[{index}].sections")
        rendered.append((share, inner))
    return rendered


def table(view: View) -> str:
    """Return the columns as an HTML table, for columns within a column."""
    table_cells = []
    last = len(view.props.columns) - 1
    stack = ' class="c-stack"' if view.props.stack_on_phone else ""
    for index, (share, inner) in enumerate(cells(view)):
        gap = f"padding:0 {view.props.gap / 2 if index < last else 0:g}px 0 {view.props.gap / 2 if index else 0:g}px"
        table_cells.append(
            f'<td{stack} width="{share:g}%" valign="top" style="vertical-align:top;{gap}">{view.table(inner.mjml)}</td>'
        )
    return (
        '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0"><tr>'
        f"{''.join(table_cells)}</tr></table>"
    )


def text(view: View) -> str:
    """Return the plain texts of the columns, separated by blank lines."""
    return "\n\n".join(inner.text for _, inner in cells(view) if inner.text)


def advise(view: View) -> Iterator[Finding]:
    """Advise about a section with fewer than two columns."""
    if len(view.props.columns) < 2:
        yield Finding("section", gettext_noop("A columns section needs at least 2 columns"))


KIND = Kind(
    "columns", gettext_noop("Columns"), "columns-2",
    (
        items("columns", gettext_noop("Columns"), (
            number("width", gettext_noop("Width"), None, 5, 95, unit="%"),
            Prop(name="sections", kind="sections", label=gettext_noop("Sections"), maximum=50),
        ), maximum=4, minimum=2),
        choice("preset", gettext_noop("Column widths"), *_PRESETS, default=None),
        number("gap", gettext_noop("Gap"), 16, 0, 64),
        flag("stack_on_phone", gettext_noop("Stack on phones"), True),
    ),
    text, is_whole=True, is_in_columns=True, padding=(12, 32, 12, 32), advise=advise,
    matches=lambda props: "columns" in props,
    initial_props={"preset": "1:1", "columns": [
        {"sections": [{"type": "text", "props": {"content": text}}]} for text in (
            gettext_noop("<p>Add the text of the left column here.</p>"),
            gettext_noop("<p>Add the text of the right column here.</p>"),
        )
    ]},
)  # fmt: skip
