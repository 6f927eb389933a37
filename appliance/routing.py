"""The library's router, without what it does at the start for people who debug it."""

from typing import Any

from sanic.router import Router
from sanic_routing import router as library


class QuickRouter(Router):
    """Finds the same routes by the same function; the start does not write that function out a second time.

    The library parses its source, writes the tree back as text for whoever wants to look at it, and walks it for line
    numbers that a parsed tree has: with our routes half of the start that is not loading modules.
    """

    def _render(self, do_compile: bool = True, do_optimize: bool = False) -> None:
        super()._render(False, do_optimize)
        made: dict[str, Any] = {}
        exec(compile(self.find_route_src, "<routes>", "exec"), vars(library), made)  # noqa: S102 - as the library does
        self._find_route, self._matchers = made["find_route"], made.get("matchers")
