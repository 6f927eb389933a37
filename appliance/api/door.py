"""Puts the declared endpoints on the server: every request goes through the same steps."""

import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from sanic import Blueprint, HTTPResponse, Request, Sanic
from sanic.exceptions import PayloadTooLarge

from appliance import config, fields, loading
from appliance.account.buckets import Buckets
from appliance.account.keys import Credential
from appliance.api import auth, declared, existing_ids, paths, read, reply, service
from appliance.api.declare import Call, Route
from appliance.api.declared import Endpoint
from appliance.db import disk_guard
from appliance.errors import Faults, Refused, TooMany
from appliance.patterns import late
from appliance.routing import Promised, promise

BASE = "/v1/my"
API_VERSION = "1.0"
# Versions that do not exist too: a program that asks for one reads JSON
_PATHS = late(r"/(?:v[0-9]+(?:/.*)?|openapi\.yaml|healthz|readyz|metrics)", re.DOTALL)
_buckets = Buckets()


def owns(path: str) -> bool:
    """Return whether a path is this door's, so that its errors are JSON."""
    return _PATHS.fullmatch(path) is not None


def mount(app: "Sanic[Any, Any]") -> None:
    """Add all endpoints to the server; HEAD answers wherever GET does (RFC 9110, section 9.3.2)."""
    app.ctx.published = _published
    promise(app, (_promised(BASE, one, number) for number, one in enumerate(declared.endpoints())))
    promise(app, (_promised("", declared.endpoint(route), route) for route in service.ROUTES))
    promise(app, _outside())
    blueprint = Blueprint("api")
    service.mount(blueprint)
    app.blueprint(blueprint)


def _outside() -> Iterator[Promised]:
    submit = paths.SUBMIT.replace("{public_key}", "<public_key:str>")
    for path, method, what in (
        *((path, "POST", "login.enter") for path in paths.LOGIN),
        *((path, "DELETE", "login.leave") for path in paths.LOGOUT),
        (submit, "POST", "public_forms.submit"),
        (submit, "OPTIONS", "public_forms.preflight"),
    ):
        name, _, function = what.partition(".")
        yield Promised(path, f"api.{what}{path}", (method,), loading.handler(f"{__package__}.{name}", function), "json")
    yield Promised("/openapi.yaml", "api.openapi", _methods("GET"), _openapi, "text")


def _promised(base: str, one: Endpoint, known: Route | int) -> Promised:
    path = base + one.path.replace("{id}", "<number:str>").replace(f"{{{one.second_id}}}", "<inner:str>")
    name = f"{one.method}_{one.path}".translate(str.maketrans("/.", "__", "{}")).lower()
    return Promised(
        path, f"api.{name}", _methods(one.method), _handler(known), "json", one.streams, context={"declared": known}
    )


def _methods(method: str) -> list[str]:
    return ["GET", "HEAD"] if method == "GET" else [method]


def _handler(known: Route | int) -> Callable[..., Coroutine[Any, Any, HTTPResponse | None]]:
    async def handle(request: Request, number: str = "0", inner: str = "0") -> HTTPResponse | None:
        route = await declared.route(known)
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
    known = getattr(request.route.ctx, "declared", None) if request.route else None
    if isinstance(error, PayloadTooLarge) and known is not None:
        try:
            await _admitted(request, await declared.route(known))
        except (reply.Fault, Refused) as refused:
            error = refused
    return reply.fault(request, error)


async def _must_exist(route: Route, asked: Call) -> None:
    """Raise NotFound if the thing that a path names is not there, by asking for it as its own GET would."""
    thing = route.path.partition("{id}")[0] + "{id}"
    for one in declared.routes():
        if route.has_id and one.method == "GET" and one.path == thing:
            await one.handler(asked)


def _published() -> dict[str, Any]:
    from appliance.api import document  # no start needs it

    return document.build()


async def _openapi(request: Request) -> HTTPResponse:
    document = await loading.module("appliance.api.document")
    # The same for everybody
    headers = {"Cache-Control": "max-age=300"}
    return HTTPResponse(document.document(), headers=headers, content_type="application/yaml; charset=utf-8")
