"""What the library does at its start, without what is for people who debug it, is done again and again, or has time."""

from functools import cache
from typing import Any

from sanic import Sanic
from sanic.router import Router
from sanic.signals import SignalRouter
from sanic.touchup import TouchUp
from sanic_routing import route
from sanic_routing import router as library

# Every route takes its path apart and puts it together five times, and most paths have several methods
for _place in (library, route):
    vars(_place).update({name: cache(getattr(_place, name)) for name in ("path_to_parts", "parts_to_path")})


class _Quick(library.BaseRouter):
    """Finds the same routes by the same function; the start does not write that function out a second time.

    The library parses its source, writes the tree back as text for whoever wants to look at it, and walks it for line
    numbers that a parsed tree has: with our routes half of the start that is not loading modules.
    """

    def _render(self, do_compile: bool = True, do_optimize: bool = False) -> None:
        super()._render(False, do_optimize)
        made: dict[str, Any] = {}
        exec(compile(self.find_route_src, "<routes>", "exec"), vars(library), made)  # noqa: S102 - as the library does
        self._find_route, self._matchers = made["find_route"], made.get("matchers")


class QuickRouter(_Quick, Router):
    """The router of requests."""

    def _normalize(self, uri: str, handler: Any) -> str:
        """Ask a handler what its parameters are only where the path does not say it."""
        if all(":" in part for part in uri.split("/") if part.startswith("<")):
            return uri
        return super()._normalize(uri, handler)


class QuickSignals(_Quick, SignalRouter):
    """The router of what happens within the server, of which we use next to nothing."""


def catch_up(app: "Sanic[Any, Any]") -> None:
    """Take the steps that nobody listens to out of the code of requests, which the start left in (`TOUCHUP`).

    The library rewrites its own source for that, a twentieth of a start; from the next request on it is quicker.
    """
    TouchUp.run(app)  # type: ignore[no-untyped-call]  # untyped in the library
