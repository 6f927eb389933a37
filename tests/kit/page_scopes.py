"""The scopes that pages declare, read from their handlers."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from appliance.accounts import access
from ui import pages


class Page(NamedTuple):
    """A page and an HTTP method. `needs` is its scope, or None for every role; `is_open` pages need no sign-in."""

    method: str
    path: str
    needs: str | None
    is_open: bool

    def allows(self, role: str) -> bool:
        """Return whether a role may use the page."""
        return self.needs is None or self.needs in access.role_scopes(role)

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request with this method and path is routed to the page."""
        pattern = re.sub(r"<\w+:int>", r"\\d+", re.sub(r"<\w+(?::str)?>", "[^/]+", self.path))
        return method == self.method and re.fullmatch(pattern, path) is not None


def list_pages() -> Iterator[Page]:
    """Yield every page of the web interface, once for each method."""
    for name in pages.NAMES:
        blueprint = import_module(f"ui.pages.{name}").pages
        for route in blueprint._future_routes:
            path = (blueprint.url_prefix or "") + ("" if route.uri == "/" else route.uri)
            for method in sorted(set(route.methods) - {"HEAD", "OPTIONS"}):
                is_open = not hasattr(route.handler, "needs")
                yield Page(method, path or "/", getattr(route.handler, "needs", None), is_open)


def role_allows(role: str, method: str, path: str) -> bool:
    """Return whether a role may send a request to a path. Raises LookupError if there is no page."""
    matching = [page for page in list_pages() if page.matches(method, path.rstrip("/") or "/")]
    if not matching:
        raise LookupError(f"{method} {path}")
    # A fixed path goes before one with a placeholder, as the router has it.
    return min(matching, key=lambda page: page.path.count("<")).allows(role)
