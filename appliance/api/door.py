"""Puts the declared endpoints on the server: every request goes through the same steps."""

from collections.abc import Callable, Coroutine
from typing import Any

from sanic import Blueprint, HTTPResponse, Request, Sanic
from sanic.exceptions import PayloadTooLarge

from appliance.account import heartbeat
from appliance.api import public_forms, read, reply
from appliance.api.declare import Call, Route
from appliance.api.openapi import document
from appliance.api.routes import ROUTES
from appliance.db import storage, work
from appliance.db.open import scalar
from appliance.db.work import call
from appliance.errors import Invalid, Refused

BASE = "/v1/my"
API_VERSION = "1.0"
_PATHS = ("/v1", "/openapi.yaml", "/healthz")


def owns(path: str) -> bool:
    """Say whether a path is this door's, so that its errors are JSON."""
    return path in _PATHS or path.startswith("/v1/")


def mount(app: "Sanic[Any, Any]") -> None:
    """Add all endpoints to the server."""
    blueprint = Blueprint("api")
    for route in ROUTES:
        path = BASE + route.path.replace("{id}", "<number:str>").replace(f"{{{route.second_id}}}", "<inner:str>")
        name = f"{route.method}_{route.path}".translate(str.maketrans("/.", "__", "{}")).lower()
        stream = route.form is not None
        blueprint.add_route(_handler(route), path, methods=[route.method], name=name, stream=stream, ctx_declared=route)
    public_forms.mount(blueprint)
    blueprint.add_route(_openapi, "/openapi.yaml", methods=["GET"])
    blueprint.add_route(_healthz, "/healthz", methods=["GET"])
    app.blueprint(blueprint)


def _handler(route: Route) -> Callable[..., Coroutine[Any, Any, HTTPResponse | None]]:
    async def handle(request: Request, number: str = "0", inner: str = "0") -> HTTPResponse | None:
        who = await read.credential(request)
        read.allow(who, route)
        if route.form is not None:
            storage.must_write()
        raw = read.raw_body(request, route)
        identity, second = read.number(number), read.number(inner)
        try:
            query = read.query(request, route.query)
            struct, ignored = read.body(raw, route)
        except Invalid as refused:
            # What does not exist is said before what is wrong with its fields
            await _must_exist(route, Call(request, who, identity, None, None, None))
            if route.inside is None:
                raise
            more = await route.inside(Call(request, who, identity, None, None, raw))
            raise Invalid(refused.fields | more) from None
        answer = await route.handler(Call(request, who, identity, struct, query, raw, second))
        headers = dict(answer.headers)
        if ignored := [*ignored, *answer.ignored]:
            headers["X-Ignored-Fields"] = ", ".join(name for name in ignored if name.isascii() and name.isprintable())[
                :1000
            ]
        if route.media is not None:
            kind = answer.media or route.media
            return await reply.media(request, kind, answer.value, answer.status or route.status, headers)
        return reply.json(answer.value, answer.status or route.status, headers)

    return handle


async def fault(request: Request, error: Exception) -> HTTPResponse:
    """Answer what went wrong; that a body is too large learn only those who may ask at all (decisions, section 3)."""
    declared = getattr(request.route.ctx, "declared", None) if request.route else None
    if isinstance(error, PayloadTooLarge) and declared is not None:
        try:
            read.allow(await read.credential(request), declared)
        except (reply.Fault, Refused) as refused:
            error = refused
    return reply.fault(request, error)


async def _must_exist(route: Route, asked: Call) -> None:
    """Raise NotFound if the thing that a path names is not there, by asking for it as its own GET would."""
    thing = route.path.partition("{id}")[0] + "{id}"
    for one in ROUTES:
        if route.has_id and one.method == "GET" and one.path == thing:
            await one.handler(asked)


async def _openapi(request: Request) -> HTTPResponse:
    return HTTPResponse(document(), content_type="application/yaml; charset=utf-8")


async def _healthz(request: Request) -> HTTPResponse:
    await call(scalar, "SELECT 1")
    storage.must_write()
    # Writing a row, for a disk that is full still takes a transaction with nothing in it
    await work.commit(heartbeat.beat)
    return reply.json({"status": "ok"})
