"""Puts the declared endpoints on the server: every request goes through the same steps."""

import re
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from msgspec import UNSET, Struct
from sanic import Blueprint, HTTPResponse, Request, Sanic
from sanic.exceptions import PayloadTooLarge

from appliance.accounts.keys import Credential
from appliance.accounts.rate_limits import Buckets
from appliance.api import auth, declare, document, login, read, reply, service
from appliance.api.declare import Call, Route
from appliance.api.reply import Fault
from appliance.api.routes import ROUTES
from appliance.core import fields
from appliance.core.errors import Faults, Refused, TooMany
from appliance.forms import intake, reading, store
from appliance.settings import config
from appliance.storage import disk_guard
from appliance.storage.models import Form
from appliance.storage.open import fetch_one
from appliance.storage.work import call

# Whether the things that a query names by their ids are there: a filter by another id is a mistake, and is told.


@cache
def _references(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a query that name a thing (`fields.ContactId` and its like), each with its table."""
    return tuple(
        (info.name, table) for info in fields.declared(kind) if (table := fields.extras(info.type).get("table"))
    )


async def unknown_ids(account_id: int, query: Any) -> dict[str, list[str]]:
    """Return the faults of a query that was read: things that are not there, or are another account's.

    What was deleted, and is kept because others belong to it, is there: its messages are still found by its id.
    """
    kind: type[Struct] = type(query)
    named = [(name, table, getattr(query, name)) for name, table in _references(kind)]
    named = [(name, table, number) for name, table, number in named if number is not UNSET]
    return await call(_faults, account_id, named) if named else {}


def _faults(account_id: int, named: list[tuple[str, str, int]]) -> dict[str, list[str]]:
    return {
        name: ["must exist"]
        for name, table, number in named
        if fetch_one(f"SELECT 1 FROM {table} WHERE account_id = ? AND id = ?", (account_id, number)) is None
    }


# Where other people's pages submit a form: its public key is all they need, and all they get is `accepted`.

_KINDS = ("application/json", "application/x-www-form-urlencoded")
_MAX_FIELDS = 200
_MAX_BYTES = 65_536


async def preflight(request: Request, public_key: str) -> HTTPResponse:
    """Tell a browser whether a page of another origin may submit; the only endpoint that answers such pages."""
    form = await call(store.by_key, public_key)
    allowed = _cors(request, form)
    if "Access-Control-Allow-Origin" in allowed:
        allowed |= {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "Content-Type",
                    "Access-Control-Max-Age": "600"}  # fmt: skip
    return HTTPResponse(b"", 204, allowed)


def _cors(request: Request, form: Form) -> dict[str, str]:
    """Return what lets a page of another origin read the answer, if the form names that origin."""
    origin = (request.headers.get("origin") or "").lower()
    return {"Vary": "Origin"} | ({"Access-Control-Allow-Origin": origin} if origin in form.origins else {})


async def submit_form(request: Request, public_key: str) -> HTTPResponse:
    """Take what somebody wrote into a form."""
    form = await call(store.by_key, public_key)
    cors = _cors(request, form)
    try:
        is_form, raw = _body(request)
        if not reading.is_trapped(raw):
            said = await call(reading.read, form, raw)
            await intake.take(form, said, request.ctx.client, request.headers.get("user-agent"))
    except Exception as error:
        # What was wrong may be read by the same pages as what was right
        answer = reply.fault(request, error)
        answer.headers.update(cors)
        return answer
    leads = store.leads_to(form)
    if is_form and leads:
        return HTTPResponse("", 303, {**cors, "Location": leads})
    return reply.json({"accepted": True}, 202, cors)


def _body(request: Request) -> tuple[bool, Mapping[str, Any]]:
    """Return whether a browser's form was sent, and what was; raises a fault for anything else."""
    kind = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if kind not in _KINDS:
        raise Fault(415, "unsupported_media_type", f"send the body as {' or '.join(_KINDS)}")
    if len(request.body) > _MAX_BYTES:
        raise Fault(413, "payload_too_large")
    if kind == _KINDS[0]:
        return False, read.json_object(request, request.body)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Fault(415, "unsupported_media_type", "send the body without a Content-Encoding")
    try:
        found = parse_qs(request.body.decode("utf-8"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Fault(400, "bad_request", "the body is no form") from None
    return True, {name: values[0] for name, values in found.items()}


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
    submit = declare.SUBMIT.replace("{public_key}", "<public_key:str>")
    for path in declare.LOGIN:
        blueprint.add_route(login.enter, path, ["POST"], name=f"enter{_named(path)}", error_format="json")
    for path in declare.LOGOUT:
        blueprint.add_route(login.leave, path, ["DELETE"], name=f"leave{_named(path)}", error_format="json")
    blueprint.add_route(submit_form, submit, ["POST"], error_format="json")
    blueprint.add_route(preflight, submit, ["OPTIONS"], error_format="json")
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
        faults.merge(await unknown_ids(who.account_id, query.value))
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
