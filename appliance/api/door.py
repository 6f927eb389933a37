"""Puts the declared endpoints on the server: every request goes through the same steps."""

import re
from collections.abc import Callable, Coroutine
from typing import Any

from sanic import Blueprint, HTTPResponse, Request, Sanic
from sanic.exceptions import PayloadTooLarge

from appliance import config, fields
from appliance.account.buckets import Buckets
from appliance.account.keys import Credential
from appliance.api import auth, document, existing_ids, login, paths, public_forms, read, reply, service
from appliance.api.declare import Call, Route
from appliance.api.routes import ROUTES
from appliance.db import disk_guard
from appliance.errors import Faults, Refused, TooMany

BASE = "/v1/my"
API_VERSION = "1.0"
# Versions that do not exist too: a program that asks for one reads JSON
_PATHS = re.compile(r"/(?:v[0-9]+(?:/.*)?|openapi\.yaml|healthz|readyz|metrics)", re.DOTALL)
_buckets = Buckets()


def owns(path: str) -> bool:
    """Return whether a path is this door's, so that its errors are JSON."""
    return _PATHS.fullmatch(path) is not None


def mount(app: "Sanic[Any, Any]") -> None:
    """Add all endpoints to the server; HEAD answers wherever GET does (RFC 9110, section 9.3.2)."""
    app.ctx.published = document.build
    blueprint = Blueprint("api")
    for base, routes in ((BASE, ROUTES), ("", service.ROUTES)):
        for route in routes:
            _add(blueprint, base, route)
    submit = paths.SUBMIT.replace("{public_key}", "<public_key:str>")
    for path in paths.LOGIN:
        blueprint.add_route(login.enter, path, ["POST"], name=f"enter{_named(path)}", error_format="json")
    for path in paths.LOGOUT:
        blueprint.add_route(login.leave, path, ["DELETE"], name=f"leave{_named(path)}", error_format="json")
    blueprint.add_route(public_forms.submit, submit, ["POST"], error_format="json")
    blueprint.add_route(public_forms.preflight, submit, ["OPTIONS"], error_format="json")
    blueprint.add_route(_openapi, "/openapi.yaml", ["GET", "HEAD"], error_format="text")
    service.mount(blueprint)
    app.blueprint(blueprint)


def _add(blueprint: Blueprint, base: str, route: Route) -> None:
    path = base + route.path.replace("{id}", "<number:str>").replace(f"{{{route.second_id}}}", "<inner:str>")
    methods = ["GET", "HEAD"] if route.method == "GET" else [route.method]
    name = f"{route.method.lower()}{_named(route.path)}"
    # A route with a form takes the body itself, as it comes
    streams = route.form is not None
    blueprint.add_route(
        _handler(route), path, methods, name=name, stream=streams, error_format="json", ctx_route=route
    )  # fmt: skip


def _named(path: str) -> str:
    return path.translate(str.maketrans("/.-", "___", "{}"))


def _handler(route: Route) -> Callable[..., Coroutine[Any, Any, HTTPResponse | None]]:
    async def handle(request: Request, number: str = "0", inner: str = "0") -> HTTPResponse | None:
        who = await _admitted(request, route)
        if route.form is not None:
            disk_guard.must_write()
        raw = read.raw_body(request, route)
        identity, second = read.number(number), read.number(inner)
        faults = Faults()
        query = read.query(request, route.query)
        body = fields.read_sound(route.reads or read.Nothing, raw) if raw is not None else None
        faults.merge(query.faults.fields)
        faults.merge(await existing_ids.faults(who.account_id, query.value))
        asked = Call(request, who, identity, None, query.value if route.query else None, raw, second)
        if body is not None:
            faults.merge(body.faults.fields)
            request.ctx.ignored = body.ignored
            asked = asked._replace(body=body.value if route.reads else None, read=body, ignored=body.ignored)
        if route.idempotent:
            faults.of(read.idempotency_key, request, asked.body)
        if faults.fields:
            # What does not exist is said before what is wrong with its fields
            await _must_exist(route, Call(request, who, identity, None, None, None))
            if route.inside is not None:
                faults.merge(await route.inside(asked))
            faults.check()
        answer = await route.handler(asked)
        headers = dict(answer.headers)
        if asked.ignored:
            headers["X-Ignored-Fields"] = reply.listed(asked.ignored)
        if route.media is not None:
            kind = answer.media or route.media
            return await reply.media(request, kind, answer.value, answer.status or route.status, headers)
        return reply.json(answer.value, answer.status or route.status, headers)

    return handle


async def _admitted(request: Request, route: Route) -> Credential:
    """Return who asks, if they may: a valid credential, within its rate, that reaches the route (docs/decisions.md#3).

    How its bucket stands is told with whatever is answered from here on.
    """
    who = await auth.credential(request)
    level = _buckets.take(who.actor, route.rate, config.current().limits)
    if level is not None:
        request.ctx.level = level
        if level.retry_after:
            is_burst = level.exceeded == "burst"
            limit = level.burst if is_burst else level.limit
            words = f"At most {limit} of these requests may come {'at once' if is_burst else 'a minute'}."
            raise TooMany(words, level.retry_after, reason=level.exceeded, limit=limit)
    auth.allow(who, route)
    return who


async def fault(request: Request, error: Exception) -> HTTPResponse:
    """Return what went wrong; that a body is too large learn only those who may ask at all (docs/decisions.md#3)."""
    route = getattr(request.route.ctx, "route", None) if request.route else None
    if isinstance(error, PayloadTooLarge) and route is not None:
        try:
            await _admitted(request, route)
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
    # The same for everybody
    headers = {"Cache-Control": "max-age=300"}
    return HTTPResponse(document.document(), headers=headers, content_type="application/yaml; charset=utf-8")
