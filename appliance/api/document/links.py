"""Where an answer leads: from what was made or listed to every operation on it, and to the lists that can show its own.

A program may follow them instead of putting paths together, and a test walks every thing along them.
"""

from typing import Any

from appliance.api.declare import Route
from appliance.api.document import names
from appliance.api.routes import ROUTES
from appliance.reader import declared

_BODY, _FIRST, _ASKED = "$response.body#/id", "$response.body#/0/id", "$request.path.id"


def of(route: Route) -> dict[str, Any]:
    """Return the links of an operation's success."""
    if "id" not in getattr(route.returns, "__struct_fields__", ()):
        return {}
    if route.many:
        return _on(route, _FIRST) if not route.has_id else _within(route)
    if route.method == "POST" and route.status == 201 and not route.has_id:
        return {**_on(route, _BODY), **_listed(route), **_shown(route), **_submitted(route)}
    if route.method in ("PATCH", "PUT") and route.has_id:
        return dict(_link(one, id=_ASKED) for one in ROUTES if one.method == "GET" and one.path == route.path)
    return {}


def _link(route: Route, **parameters: str) -> tuple[str, dict[str, Any]]:
    name = names.operation(route)
    return name, {"operationId": name, "parameters": parameters}


def _on(route: Route, number: str) -> dict[str, Any]:
    """Lead to every operation on one thing."""
    paths = f"{route.path}/{{id}}"
    return dict(_link(one, id=number) for one in ROUTES if one.path.startswith(paths) and one.second_id is None)


def _within(route: Route) -> dict[str, Any]:
    """Lead from a list of what lies within a thing to every operation on that."""
    found = [one for one in ROUTES if one.second_id is not None and one.path.startswith(f"{route.path}/{{")]
    return dict(_link(one, id=_ASKED, **{str(one.second_id): _FIRST}) for one in found)


def _submitted(route: Route) -> dict[str, Any]:
    """Lead from a form to where people send it."""
    if "public_key" not in getattr(route.returns, "__struct_fields__", ()):
        return {}
    parameters = {"public_key": "$response.body#/public_key"}
    return {"submit_form": {"operationId": "submit_form", "parameters": parameters}}


def _listed(route: Route) -> dict[str, Any]:
    """Lead to the list that it stands in now."""
    return dict(_link(one) for one in ROUTES if (one.method, one.path) == ("GET", route.path) and one.many)


def _shown(route: Route) -> dict[str, Any]:
    """Lead to lists of other things that can be asked for what has to do with it, as the messages of a contact."""
    name = f"{route.path.strip('/').removesuffix('s')}_id"
    return dict(
        _link(one, **{name: _BODY})
        for one in ROUTES
        if one.many and not one.has_id and one.path != route.path and one.query is not None
        and name in {info.encode_name for info in declared(one.query)}
    )  # fmt: skip
