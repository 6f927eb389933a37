"""Where other people's pages submit a form: its public key is all they need, and all they get is `accepted`."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from sanic import HTTPResponse, Request

from appliance.api import read, reply
from appliance.api.reply import Fault
from appliance.db.work import call
from appliance.forms import intake, reading, store
from appliance.tables import Form

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


async def submit(request: Request, public_key: str) -> HTTPResponse:
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
