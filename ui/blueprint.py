"""The blueprint of pages."""

from typing import Any

from sanic import Blueprint


class Pages(Blueprint):
    """Routes of one noun.

    What their errors look like is said here once: Sanic would parse the source of every handler to find that out, a
    fifth of a second of each start, and `guard` draws them anyway.
    """

    def route(self, uri: str, *args: Any, error_format: str | None = None, **options: Any) -> Any:
        """Declare a route, as `Blueprint.route` does."""
        return super().route(uri, *args, error_format=error_format or "html", **options)
