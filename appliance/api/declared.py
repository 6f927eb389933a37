"""Which endpoints there are, written down when the executable is built, so that a start need not load them all.

They are loaded when somebody first asks for one, or soon after the start (`appliance/later.py`). From the sources
nothing is written down, and they are loaded at once.
"""

from typing import NamedTuple

from appliance import assets, loading
from appliance.api.declare import Route

FILE = "declared-endpoints"
_routes: tuple[Route, ...] = ()


class Endpoint(NamedTuple):
    """What the server has to know of an endpoint before anybody asks for it."""

    method: str
    path: str
    second_id: str | None
    streams: bool  # its handler takes the body itself


def endpoints() -> tuple[Endpoint, ...]:
    """Return all of them, in the order of the document."""
    written = assets.written(FILE)
    return table() if written is None else tuple(Endpoint(*one) for one in written)


def table() -> tuple[Endpoint, ...]:
    """Return what the sources declare, for `endpoints` of the executable."""
    return tuple(map(endpoint, routes()))


def endpoint(route: Route) -> Endpoint:
    """Return what the server has to know of a route."""
    return Endpoint(route.method, route.path, route.second_id, route.form is not None)


def routes() -> tuple[Route, ...]:
    """Return all routes, loaded if they are not yet; that may take a while."""
    global _routes
    if not _routes:
        from appliance.api.routes import ROUTES

        loading.join()
        _routes = ROUTES
    return _routes


async def route(known: Route | int) -> Route:
    """Return the route of that number, or the one that is known; who comes first waits until all are loaded."""
    if not isinstance(known, int):
        return known
    if not _routes:
        await loading.once("routes", routes)
    return _routes[known]
