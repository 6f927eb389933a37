"""The MCP server: `POST /mcp`, through which assistants use the API with the API key of an account.

Each request stands alone: no session is kept, and every response is one JSON document. The wire format is in
`protocol.py`, the tools are in `tools/`, and `output.py` decides how they show untrusted data.
"""

import asyncio
import logging
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sanic import Blueprint, HTTPResponse, Request, Sanic

from appliance.accounts.access import Credential
from appliance.api import auth, http, rate_limits
from appliance.api.http import ApiError
from appliance.api.mcp import methods, protocol
from appliance.api.mcp.methods import Caller
from appliance.api.mcp.protocol import INVALID_REQUEST, PARSE_ERROR, RpcError
from appliance.api.mcp.resources import Guides
from appliance.core.errors import Refused
from appliance.settings import config

log = logging.getLogger("campanero.mcp")

PATH = "/mcp"
# A larger body is parsed in a thread, so that it does not hold up the event loop.
_MAX_INLINE_BYTES = 65_536


def mount(app: "Sanic[Any, Any]", guides: Guides) -> None:
    """Add the endpoint to the server; `guides` are the guides that assistants can read."""
    app.ctx.mcp_guides = guides
    blueprint = Blueprint("mcp")
    blueprint.add_route(_handle, PATH, ["POST"], name="mcp", error_format="json")
    app.blueprint(blueprint)


class _Answer(NamedTuple):
    """The HTTP status and JSON of a response; without JSON it has no body."""

    status: int
    value: Any = None


async def _handle(request: Request) -> HTTPResponse:
    """Handle a POST with one message, or with a batch in the revision 2025-03-26.

    Errors before the message is read, such as a missing credential, have a JSON-RPC error without an id as their body.
    """
    headers = {"Cache-Control": "no-store"}
    try:
        answer = await _answer(request)
    except RpcError as error:
        answer = _Answer(error.status, protocol.error_body(None, error))
    except (ApiError, Refused) as error:
        described = http.describe_error(request, error)
        answer = _Answer(described.status, protocol.error_body(None, _to_rpc_error(described)))
        headers |= described.headers
    if answer.value is None:
        return HTTPResponse(b"", answer.status, headers)
    return http.json_response(answer.value, answer.status, headers)


def _to_rpc_error(described: http.DescribedError) -> RpcError:
    extra = {name: value for name, value in described.extra.items() if isinstance(value, str | int)}
    code = PARSE_ERROR if described.code == "invalid_json" else described.status
    return RpcError(code, described.message, {"code": described.code, **extra}, described.status)


async def _answer(request: Request) -> _Answer:
    """Return the answer to a request. Raises RpcError, ApiError and Refused if it is refused as a whole."""
    _require_own_origin(request)
    credential = await auth.authenticate(request, agents=True)
    rate_limits.take(request, credential, "requests")
    _require_json_accepted(request)
    is_large = len(request.body) > _MAX_INLINE_BYTES
    parse = partial(http.parse_json, request, request.body)
    raw = await asyncio.to_thread(parse) if is_large else parse()
    caller = Caller(request, credential, is_masked=_is_masked(request, credential), guides=request.app.ctx.mcp_guides)
    if isinstance(raw, list):
        return await _answer_batch(caller, raw)
    return await _answer_one(caller, raw)


def _require_own_origin(request: Request) -> None:
    """Raise ApiError 403 for a request of a page of another site, which a browser sends with its `Origin`.

    The check keeps pages from reaching a service in a private network by DNS rebinding
    (basic/transports/streamable-http, "Security & Endpoint"). The host of `base_url` and this machine are allowed;
    programs send no `Origin`.
    """
    for origin in request.headers.getall("origin", []):
        try:
            host = urlsplit(origin).hostname
        except ValueError:
            host = None
        if host is None or host not in (config.base_host(config.current()), *config.LOOPBACK):
            raise ApiError(403, "forbidden", "Requests from pages of other sites are not allowed.")


def _require_json_accepted(request: Request) -> None:
    """Raise ApiError 406 if the client does not accept JSON; a request without `Accept` accepts anything."""
    accept = ",".join(request.headers.getall("accept", []))
    types = {item.partition(";")[0].strip().lower() for item in accept.split(",")}
    if accept.strip() and types.isdisjoint({"application/json", "application/*", "*/*"}):
        raise ApiError(406, "bad_request", "Responses are JSON; accept application/json.")


def _is_masked(request: Request, credential: Credential) -> bool:
    """Return whether names and addresses of contacts are hidden. Raises ApiError 400 for an unknown value of `pii`."""
    values = request.get_args(keep_blank_values=True).getlist("pii", [])
    if any(value not in ("masked", "shown") for value in values):
        raise ApiError(400, "bad_request", "pii must be masked or shown.")
    return "masked" in values


async def _answer_batch(caller: Caller, messages: list[Any]) -> _Answer:
    """Return the answers to the messages of a batch, one after the other.

    The credential is checked before each message: if the key was revoked, or all agents were stopped, the rest of the
    batch is refused. Raises RpcError if the revision has no batches, or the batch is empty or too long.
    """
    if not protocol.is_batch_allowed(caller.request):
        raise RpcError(INVALID_REQUEST, "This revision has no batches; send each message by itself.")
    if not 0 < len(messages) <= protocol.MAX_BATCH_MESSAGES:
        raise RpcError(INVALID_REQUEST, f"A batch has 1 to {protocol.MAX_BATCH_MESSAGES} messages.")
    rate_limits.charge(caller.request, caller.credential, "requests", len(messages) - 1)
    answers: list[_Answer] = []
    for message in messages:
        try:
            if answers:
                caller = caller._replace(credential=await auth.authenticate(caller.request, agents=True))
        except (ApiError, Refused) as error:
            answers.append(_refuse_one(message, _to_rpc_error(http.describe_error(caller.request, error))))
        else:
            answers.append(await _answer_one(caller, message, in_batch=True))
    values = [answer.value for answer in answers if answer.value is not None]
    return _Answer(200, values) if values else _Answer(202)


def _refuse_one(raw: Any, error: RpcError) -> _Answer:
    """Return the answer to a message that is refused before it is read; a notification has none."""
    is_notification = isinstance(raw, dict) and "method" in raw and "id" not in raw
    return _Answer(error.status, None if is_notification else protocol.error_body(protocol.get_id(raw), error))


async def _answer_one(caller: Caller, raw: Any, in_batch: bool = False) -> _Answer:
    """Return the answer to one message. Clients of older revisions get 200 even for an error of a request.

    For them a 404 would mean that a session has ended.
    """
    version = protocol.CURRENT_VERSION
    try:
        message = protocol.read_message(raw, caller.request)
        if message is None or message.is_notification:
            return _Answer(202)
        version = message.version
        if in_batch and message.method == "initialize":
            raise RpcError(INVALID_REQUEST, "initialize must not be part of a batch.")
        result = await methods.run(caller, message)
    except RpcError as error:
        status = error.status if version == protocol.CURRENT_VERSION else 200
        return _Answer(status, protocol.error_body(protocol.get_id(raw), error))
    except (ApiError, Refused):
        raise
    except Exception:
        log.exception("mcp: request failed", extra=http.log_context(caller.request))
        failure = RpcError(protocol.INTERNAL_ERROR, "Internal error.")
        return _Answer(500, protocol.error_body(protocol.get_id(raw), failure))
    return _Answer(200, protocol.result_body(message.id, result))
