"""Tables: what a list page shows, kept in its address, so that reload, share and Back work.

A page makes a `Table` from the request, asks the middle for the rows with it, and hands both to the macros `table.…`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core.pagination import Page
from ui import session, view, words
from ui.forms import Form, number

SIZES = (25, 50, 100)
MAX_CHARACTERS = 254
_YEAR = 365 * 86400
# What a selection's form says beside the ids: everything that matches, and the state it matches in
_ALL, _STATE = "all", "state."


class Column(NamedTuple):
    """One column: its heading, the name by which the table is ordered by it, and which way that goes at first."""

    label: str
    sort: str = ""
    first: str = "-"
    number: bool = False
    # Of one that is not shown the table can only be ordered by it
    shown: bool = True


class Chip(NamedTuple):
    """One of the filters that most people use: its value, words, and how many it would show if that is known."""

    value: str
    label: str
    number: int | None = None


class Active(NamedTuple):
    """A filter in force that is no chip, in words, and the names in the query that go with it."""

    text: str
    names: tuple[str, ...]


class Table:
    """The state of one table, and the addresses of its other states."""

    chips: Sequence[Chip] = ()
    chip_name = "show"
    active: Sequence[Active] = ()
    # What decides who is in it beside the address' query, for its chosen rows
    fixed: dict[str, str] = {}  # replaced whole, never changed
    # Where the acts on chosen rows are posted; empty where rows cannot be chosen
    acts = ""
    # Whether its rows are cards, which have one look
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
        self.path, self.columns, self.default = path, columns, sort
        self.one, self.many = noun
        self.search = asked(request, "search")
        self.state = {name: asked(request, name) for name in filters}
        self.sort = _sort(request, columns, sort)
        self.page = number(request.args.get("page"))
        self.limit, self._says_limit = _limit(request)
        self.density = density(request)
        self.found: Page = Page([], 0, self.page, self.limit)

    @property
    def kept(self) -> dict[str, str]:
        """Return what a search or another page keeps: the filters, the order and the size that were asked for."""
        size = {"limit": str(self.limit)} if self._says_limit else {}
        order = {"sort": self.sort} if self.sort != self.default else {}
        return {name: value for name, value in {**self.state, **order, **size}.items() if value}

    @property
    def matching(self) -> dict[str, str]:
        """Return what decides who is in the table: the words searched for, and the filters."""
        return {name: value for name, value in {"search": self.search, **self.state}.items() if value}

    @property
    def is_narrowed(self) -> bool:
        """Return whether something is filtered out."""
        return bool(self.matching)

    @property
    def raw(self) -> dict[str, Any]:
        """Return what every list of the middle is asked with."""
        found: dict[str, Any] = {"page": self.page, "limit": self.limit}
        return found | ({"search": self.search} if self.search else {})

    def href(self, **changes: str | int) -> str:
        """Return the address of the table with some of its state changed; whoever narrows it begins at page one."""
        values = {"search": self.search, **self.kept} | {name: str(value) for name, value in changes.items()}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"{self.path}?{query}" if query else self.path

    def without(self, names: Sequence[str]) -> str:
        """Return the address without some filters."""
        return self.href(**dict.fromkeys(names, ""))

    def order(self, column: Column) -> str:
        """Return the order that a click on a column's heading asks for: its own way first, then the other."""
        first = column.first + column.sort
        other = column.sort if column.first else f"-{column.sort}"
        return other if self.sort == first else first

    def aria_sort(self, column: Column) -> str:
        """Return how the table is ordered by a column, as `aria-sort` says it."""
        return {column.sort: "ascending", f"-{column.sort}": "descending"}.get(self.sort, "none")

    def counted(self) -> str:
        """Return how many there are, and which of them are shown."""
        whole = words.count(self.found.total, self.one, self.many)
        first = (self.found.page - 1) * self.found.limit + 1
        last = first + len(self.found.rows) - 1
        if self.found.total <= self.found.limit or last < first:
            return whole
        return f"{words.number(first)}–{words.number(last)} of {whole}"


class Selection:
    """Whom an act on chosen rows is for: some ids, or everything that matches the state of the table."""

    def __init__(self, form: Form, name: str = "ids") -> None:
        self.ids = form.ids(name)
        self.is_all = form[_ALL] == "yes"
        self.state = {key.removeprefix(_STATE): value for key, value in form.values.items() if key.startswith(_STATE)}

    @classmethod
    def of(cls, request: Request, form: Form) -> "Selection":
        """Read whom an act is for; the menu of a row means that one (`?only=`), whatever else is chosen."""
        chosen = cls(form)
        if one := number(request.args.get("only"), 0):
            chosen.ids, chosen.is_all = [one], False
        return chosen

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Return the hidden fields that say the same again."""
        if self.is_all:
            return [(_ALL, "yes"), *((f"{_STATE}{name}", value) for name, value in self.state.items())]
        return [("ids", str(one)) for one in self.ids] + [(f"{_STATE}{key}", text) for key, text in self.state.items()]

    def back(self, path: str) -> str:
        """Return the address of the table they were chosen in."""
        query = urlencode({name: value for name, value in self.state.items() if value})
        return f"{path}?{query}" if query else path


def asked(request: Request, name: str) -> str:
    """Return a text of the query, never longer than the middle takes."""
    return (request.args.get(name) or "").strip()[: MAX_CHARACTERS if name != "filters" else 20_000]


def _sort(request: Request, columns: Sequence[Column], default: str) -> str:
    wanted = asked(request, "sort")
    return wanted if wanted.removeprefix("-") in {one.sort for one in columns if one.sort} else default


def _limit(request: Request) -> tuple[int, bool]:
    """Return how many rows a page has, and whether the address says so: else as this browser chose the last time."""
    said = number(request.args.get("limit"), 0)
    if said:
        return min(said, SIZES[-1]), True
    kept = number(request.cookies.get("rows"), 50)
    return kept if kept in SIZES else 50, False


def density(request: Request) -> str:
    """Return `compact` if this browser chose it, else an empty text."""
    chosen = request.args.get("density") or request.cookies.get("density")
    return "compact" if chosen == "compact" else ""


def answer(request: Request, template: str, table: Table, status: int = 200, /, **context: Any) -> HTTPResponse:
    """Return a page with a table, or its block `rows`; what was chosen of its look is remembered in the browser."""
    response = view.page(request, template, status, t=table, found=table.found, also=("filters",), **context)
    chosen = {"rows": request.args.get("limit"), "density": request.args.get("density")}
    known = {"rows": {str(one) for one in SIZES}, "density": {"compact", "roomy"}}
    for name, value in chosen.items():
        if value in known[name] and request.cookies.get(name) != value:
            response.add_cookie(
                name, value, path="/", httponly=True, samesite="Lax", secure=session.is_secure(request), max_age=_YEAR
            )
    return response
