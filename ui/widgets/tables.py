"""Tables of list pages, with their state in the URL, so that reload, share and Back work.

A handler creates a `Table` from the request, fetches the rows with it, and passes both to the macros `table.…`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from sanic import Request
from sanic.response import HTTPResponse

from appliance.storage.database import Page
from ui import formats, session, view
from ui.forms import Form, parse_int

PAGE_SIZES = (25, 50, 100)
MAX_SEARCH_CHARACTERS = 254
_YEAR_SECONDS = 365 * 86400
# Fields of a selection besides the ids: everything that matches, and the filters that it matches.
_ALL_FIELD, _STATE_PREFIX = "all", "state."


class Column(NamedTuple):
    """One column: its heading, the sort key, and the initial direction."""

    label: str
    sort: str = ""
    initial_direction: str = "-"
    is_numeric: bool = False
    # A hidden column can only be sorted by.
    is_visible: bool = True


class Chip(NamedTuple):
    """One of the filters that most people use: its value, words, and how many it would show if that is known."""

    value: str
    label: str
    number: int | None = None


class ActiveFilter(NamedTuple):
    """A filter in force that is no chip, in words, and the names in the query that go with it."""

    text: str
    names: tuple[str, ...]


class Table:
    """The state of one table, and the addresses of its other states."""

    chips: Sequence[Chip] = ()
    chip_name = "show"
    active_filters: Sequence[ActiveFilter] = ()
    # Filters besides the query, sent with the selected rows.
    extra_filters: dict[str, str] = {}  # replaced whole, never changed
    # The URL of bulk actions; empty if rows cannot be selected.
    bulk_action_url = ""
    # Rows are cards, which have no densities.
    is_cards = False

    def __init__(
        self,
        request: Request,
        path: str,
        noun: tuple[str, str],
        columns: Sequence[Column],
        sort: str = "",
        filters: Sequence[str] = (),
    ) -> None:
        """Read the state of a request; `sort` is the order without one, `filters` the names of further filters."""
        self.path, self.columns, self.default_sort = path, columns, sort
        self.singular, self.plural = noun
        self.search = query_text(request, "search")
        self.state = {name: query_text(request, name) for name in filters}
        self.sort = _read_sort(request, columns, sort)
        self.page = parse_int(request.args.get("page"))
        self.limit, self._has_limit_param = _read_limit(request)
        self.density = read_density(request)
        self.results: Page = Page([], 0, self.page, self.limit)

    @property
    def kept_params(self) -> dict[str, str]:
        """Return the query parameters that a search or another page keeps: filters, order and size."""
        size = {"limit": str(self.limit)} if self._has_limit_param else {}
        order = {"sort": self.sort} if self.sort != self.default_sort else {}
        return {name: value for name, value in {**self.state, **order, **size}.items() if value}

    @property
    def filter_params(self) -> dict[str, str]:
        """Return the search and the filters."""
        return {name: value for name, value in {"search": self.search, **self.state}.items() if value}

    @property
    def is_filtered(self) -> bool:
        """Return whether something is filtered out."""
        return bool(self.filter_params)

    @property
    def list_params(self) -> dict[str, Any]:
        """Return the page, limit and search that list queries take."""
        page: dict[str, Any] = {"page": self.page, "limit": self.limit}
        return page | ({"search": self.search} if self.search else {})

    def href(self, **changes: str | int) -> str:
        """Return the URL of the table with some parameters changed; changed filters begin at page one."""
        values = {"search": self.search, **self.kept_params} | {name: str(value) for name, value in changes.items()}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"{self.path}?{query}" if query else self.path

    def url_without(self, names: Sequence[str]) -> str:
        """Return the address without some filters."""
        return self.href(**dict.fromkeys(names, ""))

    def next_sort(self, column: Column) -> str:
        """Return the order that a click on a column's heading requests: its initial direction, then the other."""
        first = column.initial_direction + column.sort
        other = column.sort if column.initial_direction else f"-{column.sort}"
        return other if self.sort == first else first

    def aria_sort(self, column: Column) -> str:
        """Return the `aria-sort` value of a column."""
        return {column.sort: "ascending", f"-{column.sort}": "descending"}.get(self.sort, "none")

    def count_label(self) -> str:
        """Return how many there are, and which of them are shown."""
        whole = formats.count(self.results.total, self.singular, self.plural)
        first = (self.results.page - 1) * self.results.limit + 1
        last = first + len(self.results.rows) - 1
        if self.results.total <= self.results.limit or last < first:
            return whole
        return f"{formats.number(first)}–{formats.number(last)} of {whole}"


class Selection:
    """The rows that a bulk action is for: some ids, or everything that matches the table's filters."""

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
        """Return the selection of a form; the menu of a row selects only that row (`?only=`)."""
        chosen = cls(form)
        if row_id := parse_int(request.args.get("only"), 0):
            chosen.ids, chosen.is_all = [row_id], False
        return chosen

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields of the selection."""
        if self.is_all:
            return [(_ALL_FIELD, "yes"), *((f"{_STATE_PREFIX}{name}", value) for name, value in self.state.items())]
        return [("ids", str(id_)) for id_ in self.ids] + [
            (f"{_STATE_PREFIX}{key}", text) for key, text in self.state.items()
        ]

    def table_url(self, path: str) -> str:
        """Return the address of the table they were chosen in."""
        query = urlencode({name: value for name, value in self.state.items() if value})
        return f"{path}?{query}" if query else path


def query_text(request: Request, name: str) -> str:
    """Return a text of the query, never longer than the middle takes."""
    return (request.args.get(name) or "").strip()[: MAX_SEARCH_CHARACTERS if name != "filters" else 20_000]


def _read_sort(request: Request, columns: Sequence[Column], default: str) -> str:
    wanted = query_text(request, "sort")
    return wanted if wanted.removeprefix("-") in {column.sort for column in columns if column.sort} else default


def _read_limit(request: Request) -> tuple[int, bool]:
    """Return the page size, and whether it is in the URL; otherwise it is the last one chosen in this browser."""
    text = parse_int(request.args.get("limit"), 0)
    if text:
        return min(text, PAGE_SIZES[-1]), True
    stored = parse_int(request.cookies.get("rows"), 50)
    return stored if stored in PAGE_SIZES else 50, False


def read_density(request: Request) -> str:
    """Return `compact` if this browser chose it, else an empty text."""
    chosen = request.args.get("density") or request.cookies.get("density")
    return "compact" if chosen == "compact" else ""


def render_table(request: Request, template: str, table: Table, status: int = 200, /, **context: Any) -> HTTPResponse:
    """Render a page with a table, or its block `rows`; chosen size and density are stored in cookies."""
    response = view.render(request, template, status, t=table, found=table.results, also=("filters",), **context)
    chosen = {"rows": request.args.get("limit"), "density": request.args.get("density")}
    names = {"rows": {str(item) for item in PAGE_SIZES}, "density": {"compact", "roomy"}}
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
