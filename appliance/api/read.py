"""Reads requests: size, type, JSON, id, fields; in the order of decisions, section 3."""

import json as stdlib_json
from typing import Any

import msgspec
from msgspec import Struct
from sanic import Request

from appliance import fields, reader
from appliance.account import idempotency
from appliance.api.declare import Route
from appliance.api.reply import Fault
from appliance.errors import Invalid


class _Nothing(Struct):
    """The query of an endpoint that takes no parameters."""


_decoder = msgspec.json.Decoder()
_MOST_DIGITS = 300


def raw_body(request: Request, route: Route) -> Any:
    """Answer a body as the JSON object it is, None where none is read; faults of size, type and JSON."""
    if route.reads is None:
        return None
    if not request.body and not route.body_required:
        return {}
    return json_object(request, request.body)


def body(raw: Any, route: Route) -> tuple[Any, list[str]]:
    """Answer (struct, ignored keys) of a body; raises Invalid with every fault of its fields."""
    if route.reads is None:
        return None, []
    return fields.read_with_ignored(route.reads, raw)


def json_object(request: Request, content: bytes) -> dict[str, Any]:
    """Answer a body as the JSON object it is; faults of type and JSON."""
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
        return int(digits) if len(digits) <= _MOST_DIGITS else float("inf")

    try:
        return stdlib_json.loads(content.decode("utf-8"), parse_constant=refuse, parse_int=whole)
    except (ValueError, RecursionError):
        raise Fault(400, "invalid_json", "the body is not JSON") from None


def query(request: Request, kind: type[Struct] | None) -> Any:
    """Read a query string; an unknown parameter is a fault.

    So a misspelt filter never returns everything, and who asks for a rehearsal (`dry_run`) where there is none has
    nothing done.
    """
    if kind is None:
        if not request.query_string:
            return None
        kind = _Nothing
    known = {info.encode_name for info in reader.declared(kind)}
    # An empty value of a filter is no filter; of a page or limit it is a fault like any other
    raw = {name: values[0] for name, values in request.get_args(keep_blank_values=True).items()}
    unknown = {name: ["is not a known parameter"] for name in raw if name not in known}
    try:
        struct = fields.read(kind, raw, loose=True)
    except Invalid as error:
        raise Invalid({**unknown, **error.fields}) from None
    if unknown:
        raise Invalid(unknown)
    return struct


def number(text: str) -> int:
    """Read an id of a path; whatever is no whole number is a thing that does not exist."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Fault(404, "not_found")
    return int(text)


def idempotency_key(request: Request) -> str | None:
    """Answer the Idempotency-Key header, checked, or None."""
    key = request.headers.get("idempotency-key")
    if key is not None:
        idempotency.check_key(key)
    return key
