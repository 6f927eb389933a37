"""The doors that programs written for another service can use (`door.py`), and their registration with the server."""

from collections.abc import Callable
from typing import Any, NamedTuple

from sanic import Blueprint, HTTPResponse, Request, Sanic
from sanic.exceptions import PayloadTooLarge

from appliance.api import http
from appliance.api.doors import door as base
from appliance.api.doors import mailgun, postmark, resend, sendgrid
from appliance.api.doors.door import Door, DoorRoute
from appliance.core.errors import Refused

DOORS: tuple[Door, ...] = (mailgun.DOOR, postmark.DOOR, resend.DOOR, sendgrid.DOOR)


class MountedRoute(NamedTuple):
    """A route of a door, as the server finds it from a request."""

    door: Door
    route: DoorRoute


def mount(app: "Sanic[Any, Any]") -> None:
    """Add the routes of all doors to the server."""
    blueprint = Blueprint("doors")
    for door in DOORS:
        for index, route in enumerate(door.routes):
            methods = ["GET", "HEAD"] if route.method == "GET" else [route.method]
            handler: Callable[..., Any] = base.build_handler(door, route)
            blueprint.add_route(
                handler, route.path, methods, name=f"{door.name}_{index}", stream=bool(route.max_bytes),
                error_format="json", ctx_door=MountedRoute(door, route),
            )  # fmt: skip
    app.blueprint(blueprint)


def find_route(request: Request) -> MountedRoute | None:
    """Return the route of a door that a request is for, or None."""
    return getattr(request.route.ctx, "door", None) if request.route else None


def find_owner(path: str) -> Door | None:
    """Return the door whose errors a path has, or None."""
    return next((door for door in DOORS if door.owns(path)), None)


async def handle_error(request: Request, error: Exception) -> HTTPResponse | None:
    """Return the response for an error of a request in the form of its door, or None if it is for no door.

    A body that is too large is rejected before the request is authenticated. This function then authenticates the
    client, who gets the error of the authentication first.
    """
    mounted = find_route(request)
    door = mounted.door if mounted is not None else find_owner(request.path)
    if door is None:
        return None
    if mounted is not None and isinstance(error, PayloadTooLarge):
        try:
            await base.admit(mounted.door, mounted.route, request)
        except (http.ApiError, Refused) as error_of_admission:
            error = error_of_admission
    described = http.describe_error(request, error)
    response = door.write_error(described)
    response.headers.update(described.headers)
    return response
