"""Reads requests: size, type, JSON, id, fields; in the order of docs/decisions.md#3."""

import json as stdlib_json
from typing import Any

import msgspec
from msgspec import Struct
from sanic import Request

from appliance.accounts import idempotency
from appliance.api.declare import Route
from appliance.api.reply import Fault
from appliance.core import fields
from appliance.core.errors import Invalid


class Nothing(Struct):
    """What an endpoint reads that takes no parameters, or no body."""


_decoder = msgspec.json.Decoder()
_MAX_DIGITS = 300


def raw_body(request: Request, route: Route) -> Any:
    """Return a body as the JSON object it is, None for a GET or a form; faults of size, type and JSON.

    Where no body is needed an empty one is `{}`; where none is declared its keys are ignored, as unknown ones are.
    """
    if route.form is not None or route.method == "GET":
        return None
    if not request.body and not route.body_required:
        return {}
    return json_object(request, request.body)


def json_object(request: Request, content: bytes) -> dict[str, Any]:
    """Return a body as the JSON object it is; faults of type and JSON."""
    kind = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Fault(415, "unsupported_media_type", "send the body as application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Fault(415, "unsupported_media_type", "send the body without a Content-Encoding")
    try:
        raw = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = _lenient(content)
    if not isinstance(raw, dict):
        raise Fault(400, "invalid_json", "the body has to be a JSON object")
    if fields.is_too_deep(raw):
        raise Fault(400, "invalid_json", "the body is nested too deeply")
    return raw


def _lenient(content: bytes) -> Any:
    """Read what only the standard decoder takes.

    So a lone surrogate, or a number that is too large for any of ours, is a fault of its field and not of all.
    """

    def refuse(word: str) -> Any:
        raise ValueError(word)

    def whole(digits: str) -> int | float:
        return int(digits) if len(digits) <= _MAX_DIGITS else float("inf")

    try:
        return stdlib_json.loads(content.decode("utf-8"), parse_constant=refuse, parse_int=whole)
    except (ValueError, RecursionError):
        raise Fault(400, "invalid_json", "the body is not JSON") from None


def query(request: Request, kind: type[Struct] | None) -> fields.Read:
    """Read a query string; an unknown parameter is a fault.

    So a misspelt filter never returns everything, and who asks for a rehearsal (`dry_run`) where there is none has
    nothing done.
    """
    kind = kind or Nothing
    # An empty value of a filter is no filter; of a page or limit it is a fault like any other
    raw = {name: values[0] for name, values in request.get_args(keep_blank_values=True).items()}
    found = fields.read_sound(kind, raw, loose=True)
    for name in found.ignored:
        found.faults.add(name, "is not a known parameter")
    return found


def number(text: str) -> int:
    """Read an id of a path; whatever is no whole number is a thing that does not exist."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Fault(404, "not_found")
    return int(text)


def idempotency_key(request: Request, body: Any = None) -> str | None:
    """Return the Idempotency-Key header, or the key of the same name in a body, or None.

    Raises Invalid for a header that is no key, and for two that differ.
    """
    key = request.headers.get("idempotency-key")
    if key is not None:
        idempotency.check_key(key)
    own = getattr(body, "idempotency_key", None)
    if not isinstance(own, str) or not own:
        return key
    if key not in (None, own):
        raise Invalid({"idempotency_key": ["differs from the Idempotency-Key header"]})
    return own
