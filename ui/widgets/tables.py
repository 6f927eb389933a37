"""Tables of list pages. Their state is in the URL, so that reloading, sharing and Back work.

A handler creates a `Table` from the request, sets its `results`, and renders the page with `render_table`; the template
uses the macros `table.…`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core.i18n import gettext
from appliance.storage.database import Page
from ui import formats, session, view
from ui.forms import Form, parse_id, parse_int

PAGE_SIZES = (25, 50, 100)
MAX_SEARCH_CHARACTERS = 254
_YEAR_SECONDS = 365 * 86400
# Names of a selection's form fields: whether all matching rows are selected, and the prefix of the table's filters.
_ALL_FIELD, _STATE_PREFIX = "all", "state."


class Column(NamedTuple):
    """One column: its heading, its sort key (empty if it cannot be sorted) and its first sort direction.

    `label` is a constant, which the table translates. `initial_direction` is `-` for descending or empty for ascending.
    """

    label: str
    sort: str = ""
    initial_direction: str = "-"
    is_numeric: bool = False
    # A hidden column is only an option of the sort menu.
    is_visible: bool = True


class Chip(NamedTuple):
    """A quick filter: its value in the URL, its translated label, and the number of matching rows or None."""

    value: str
    label: str
    number: int | None = None


class ActiveFilter(NamedTuple):
    """An active filter that has no chip: its text, and the query parameters to drop when it is removed."""

    text: str
    names: tuple[str, ...]


class Table:
    """The state of one table from its URL, its rows, and the URLs of its other states."""

    chips: Sequence[Chip] = ()
    chip_name = "show"
    active_filters: Sequence[ActiveFilter] = ()
    # Filters that are not in the URL but sent with a bulk action.
    extra_filters: dict[str, str] = {}  # replaced as a whole, never mutated
    # The URL that bulk actions are posted to; empty if rows cannot be selected.
    bulk_action_url = ""
    # Rows are cards, which have no densities.
    is_cards = False

    def __init__(
        self,
        request: Request,
        path: str,
        count: Callable[[int], str],
        columns: Sequence[Column],
        sort: str = "",
        filters: Sequence[str] = (),
    ) -> None:
        """Read the state of a table from a request.

        `count` returns a number of rows with its noun, such as `12 contacts`. `sort` is the default order, and
        `filters` are the names of query parameters besides the search.
        """
        self.path, self.columns, self.default_sort = path, columns, sort
        self.count = count
        self.search = query_text(request, "search")
        self.state = {name: query_text(request, name) for name in filters}
        self.sort = _read_sort(request, columns, sort)
        self.page = parse_int(request.args.get("page"))
        self.limit, self._has_limit_param = _read_limit(request)
        self.density = read_density(request)
        self.results: Page = Page([], 0, self.page, self.limit)

    @property
    def kept_params(self) -> dict[str, str]:
        """Return the parameters that stay when the user searches or turns the page.

        The parameters are the filters, the order unless it is the default, and the page size if the URL sets it.
        """
        size = {"limit": str(self.limit)} if self._has_limit_param else {}
        order = {"sort": self.sort} if self.sort != self.default_sort else {}
        return {name: value for name, value in {**self.state, **order, **size}.items() if value}

    @property
    def filter_params(self) -> dict[str, str]:
        """Return the active search and filters as query parameters."""
        return {name: value for name, value in {"search": self.search, **self.state}.items() if value}

    @property
    def is_filtered(self) -> bool:
        """Return whether a search or filter is active."""
        return bool(self.filter_params)

    @property
    def list_params(self) -> dict[str, Any]:
        """Return the page, limit and search as the raw values of a list query."""
        page: dict[str, Any] = {"page": self.page, "limit": self.limit}
        return page | ({"search": self.search} if self.search else {})

    def href(self, **changes: str | int) -> str:
        """Return the URL of the table with some parameters changed.

        The URL leads to the first page unless `page` is given.
        """
        values = {"search": self.search, **self.kept_params} | {name: str(value) for name, value in changes.items()}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"{self.path}?{query}" if query else self.path

    def url_without(self, names: Sequence[str]) -> str:
        """Return the URL of the table without some of its filters."""
        return self.href(**dict.fromkeys(names, ""))

    def next_sort(self, column: Column) -> str:
        """Return the order that a click on a column's heading selects.

        This is the column's initial direction, or the opposite if the table is sorted that way already.
        """
        first = column.initial_direction + column.sort
        opposite = column.sort if column.initial_direction else f"-{column.sort}"
        return opposite if self.sort == first else first

    def aria_sort(self, column: Column) -> str:
        """Return the `aria-sort` value of a column: `ascending`, `descending` or `none`."""
        return {column.sort: "ascending", f"-{column.sort}": "descending"}.get(self.sort, "none")

    def count_label(self) -> str:
        """Return the number of rows with its noun, such as `12 contacts`.

        If there are several pages, this is the range of rows on this page, such as `1–50 of 1,200`.
        """
        first = (self.results.page - 1) * self.results.limit + 1
        last = first + len(self.results.rows) - 1
        if self.results.total <= self.results.limit or last < first:
            return self.count(self.results.total)
        return gettext(
            "%(first)s–%(last)s of %(total)s",
            first=formats.number(first),
            last=formats.number(last),
            total=formats.number(self.results.total),
        )


class Selection:
    """The rows that a bulk action applies to: those with `ids`, or all rows that match the table's filters.

    `is_all` selects all rows; `state` has the search and the filters of the table.
    """

    def __init__(self, form: Form, name: str = "ids") -> None:
        self.ids = form.ids(name)
        self.is_all = form[_ALL_FIELD] == "yes"
        self.state = {
            key.removeprefix(_STATE_PREFIX): value
            for key, value in form.values.items()
            if key.startswith(_STATE_PREFIX)
        }

    @classmethod
    def from_request(cls, request: Request, form: Form) -> "Selection":
        """Return the selection of a posted form; a row's own menu selects only that row (`?only=<id>`)."""
        selection = cls(form)
        if row_id := parse_id(request.args.get("only")):
            selection.ids, selection.is_all = [row_id], False
        return selection

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Return the hidden form fields that carry the selection to a confirmation page."""
        if self.is_all:
            return [(_ALL_FIELD, "yes"), *((f"{_STATE_PREFIX}{name}", value) for name, value in self.state.items())]
        return [("ids", str(id_)) for id_ in self.ids] + [
            (f"{_STATE_PREFIX}{key}", text) for key, text in self.state.items()
        ]

    def table_url(self, path: str) -> str:
        """Return the URL of the table at `path`, with the filters in which the rows were selected."""
        query = urlencode({name: value for name, value in self.state.items() if value})
        return f"{path}?{query}" if query else path


def query_text(request: Request, name: str) -> str:
    """Return a query parameter, stripped and cut to MAX_SEARCH_CHARACTERS, or to 20,000 characters for `filters`."""
    return (request.args.get(name) or "").strip()[: MAX_SEARCH_CHARACTERS if name != "filters" else 20_000]


def _read_sort(request: Request, columns: Sequence[Column], default: str) -> str:
    requested_sort = query_text(request, "sort")
    return (
        requested_sort
        if requested_sort.removeprefix("-") in {column.sort for column in columns if column.sort}
        else default
    )


def _read_limit(request: Request) -> tuple[int, bool]:
    """Return the page size, and whether the URL sets it. The default is the size last chosen in this browser."""
    text = parse_int(request.args.get("limit"), 0)
    if text:
        return min(text, PAGE_SIZES[-1]), True
    stored = parse_int(request.cookies.get("rows"), 50)
    return stored if stored in PAGE_SIZES else 50, False


def read_density(request: Request) -> str:
    """Return `compact` if the URL or this browser's cookie selects it, else an empty string."""
    density = request.args.get("density") or request.cookies.get("density")
    return "compact" if density == "compact" else ""


def render_table(request: Request, template: str, table: Table, status: int = 200, /, **context: Any) -> HTTPResponse:
    """Render a page with a table, or for a partial request the block of the target, such as `rows`, and `filters`.

    The page size and density that the URL selects are stored in cookies.
    """
    response = view.render(request, template, status, t=table, page=table.results, also=("filters",), **context)
    chosen = {"rows": request.args.get("limit"), "density": request.args.get("density")}
    names = {"rows": {str(size) for size in PAGE_SIZES}, "density": {"compact", "roomy"}}
    for name, value in chosen.items():
        if value in names[name] and request.cookies.get(name) != value:
            response.add_cookie(
                name,
                value,
                path="/",
                httponly=True,
                samesite="Lax",
                secure=session.is_secure(request),
                max_age=_YEAR_SECONDS,
            )
    return response
