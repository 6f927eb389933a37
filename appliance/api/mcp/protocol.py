"""The wire format of the Model Context Protocol over HTTP: JSON-RPC messages, protocol revisions, and errors.

Revision 2026-07-28 is stateless: each request carries its revision in `params._meta` and in headers
(https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http). Clients of older revisions
call `initialize` first and send the agreed revision in `MCP-Protocol-Version`; no session is kept for them.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sanic import Request

from appliance.core.validation import UNSTORABLE

CURRENT_VERSION = "2026-07-28"
# The revisions with a handshake, the newest first. Only the oldest has batches, and no header for the revision.
HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
BATCH_VERSION = HANDSHAKE_VERSIONS[-1]
VERSIONS = (CURRENT_VERSION, *HANDSHAKE_VERSIONS)
MAX_BATCH_MESSAGES = 20

# JSON-RPC 2.0, section 5.1, and the codes of the revision 2026-07-28 (basic/index, "Error Codes")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
# Revisions before 2026-07-28 (server/resources, "Error Handling")
RESOURCE_NOT_FOUND = -32002
_STATUS_BY_CODE = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    INVALID_PARAMS: 400,
    INTERNAL_ERROR: 500,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
}
_META_VERSION = "io.modelcontextprotocol/protocolVersion"
_META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
# The parameter that the header `Mcp-Name` repeats, by method
_NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENCODED_HEADER = re.compile(r"=\?base64\?(.*)\?=")
_MAX_ID_CHARACTERS = 256

MessageId = int | float | str | None


class RpcError(Exception):
    """A JSON-RPC error of one message. `status` is the HTTP status in the revision 2026-07-28."""

    def __init__(self, code: int, message: str, data: Any = None, status: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data
        self.status = status if status is not None else _STATUS_BY_CODE.get(code, 400)


class Message(NamedTuple):
    """A request (with an id) or a notification of a client; `version` is its revision of the protocol."""

    method: str
    params: dict[str, Any]
    id: MessageId
    version: str
    is_notification: bool = False

    @property
    def is_current(self) -> bool:
        """Return whether the message is of the stateless revision."""
        return self.version == CURRENT_VERSION


def read_version_header(request: Request) -> str | None:
    """Return the revision in `MCP-Protocol-Version`, or None without it. Raises RpcError if it is sent twice."""
    for name in ("mcp-protocol-version", "mcp-method", "mcp-name"):
        if len(request.headers.getall(name, [])) > 1:
            raise RpcError(HEADER_MISMATCH, f"Header mismatch: {name} is sent more than once")
    return _get_header(request, "mcp-protocol-version")


def _get_header(request: Request, name: str) -> str | None:
    """Return the value of a header without the white space around it, or None (RFC 9110, section 5.5)."""
    value: str | None = request.headers.get(name)
    return value.strip(" \t") if value is not None else None


def read_message(raw: Any, request: Request) -> Message | None:
    """Return a message of a body, or None for a response, which a client of an older revision may send.

    Raises RpcError for anything else, for headers that differ from the body, and for an unknown revision.
    """
    header = read_version_header(request)
    if not isinstance(raw, dict) or raw.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "The body must be a single JSON-RPC 2.0 request or notification.")
    is_current = _is_current(raw, header)
    if "method" not in raw and ("result" in raw or "error" in raw) and not is_current:
        return None
    method, params = raw.get("method"), raw.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict) or ("id" in raw and not _is_id(raw["id"])):
        raise RpcError(INVALID_REQUEST, "A request has a method, a string or integer id, and an object of params.")
    if not is_current:
        version = header if header is not None else BATCH_VERSION
        return Message(method, params, raw.get("id"), version, "id" not in raw)
    if "id" not in raw:
        if header != CURRENT_VERSION:
            raise _unsupported(header)
        return Message(method, params, None, CURRENT_VERSION, True)
    _check_envelope(method, params, request, header)
    return Message(method, params, raw["id"], CURRENT_VERSION)


def get_id(raw: Any) -> MessageId:
    """Return the id of a message that was refused, or None if it has no valid one."""
    message_id: MessageId = raw.get("id") if isinstance(raw, dict) else None
    return message_id if _is_id(message_id) else None


def is_batch_allowed(request: Request) -> bool:
    """Return whether a body may be a list of messages: only in the revision 2025-03-26."""
    return read_version_header(request) in (None, BATCH_VERSION)


def _is_id(value: Any) -> bool:
    """Return whether a value can be an id, which the response repeats: a text that UTF-8 has, or an integer."""
    if isinstance(value, str):
        return len(value) <= _MAX_ID_CHARACTERS and not UNSTORABLE.search(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_current(raw: Mapping[str, Any], header: str | None) -> bool:
    """Return whether a message is of the stateless revision, or of an unknown one.

    A client of an older revision sends that revision or no header, and no revision in `_meta`.
    """
    params = raw.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and _META_VERSION in meta:
        return True
    return header is not None and header not in HANDSHAKE_VERSIONS


def _check_envelope(method: str, params: dict[str, Any], request: Request, header: str | None) -> None:
    """Raise RpcError unless a request has the fields of the revision 2026-07-28, and headers that equal them."""
    meta = params.get("_meta")
    required = (_META_VERSION, _META_CAPABILITIES)
    missing = [key for key in required if not isinstance(meta, dict) or key not in meta]
    if missing or not isinstance(meta, dict):
        raise RpcError(INVALID_PARAMS, f"params._meta must have {' and '.join(missing)}.")
    version = meta[_META_VERSION]
    if not isinstance(version, str) or not isinstance(meta[_META_CAPABILITIES], dict):
        raise RpcError(INVALID_PARAMS, f"{_META_VERSION} must be a string, and {_META_CAPABILITIES} an object.")
    if header != version:
        raise RpcError(HEADER_MISMATCH, "Header mismatch: MCP-Protocol-Version differs from params._meta")
    if _get_header(request, "mcp-method") != method:
        raise RpcError(HEADER_MISMATCH, "Header mismatch: Mcp-Method differs from the method")
    name = _NAME_PARAMETERS.get(method)
    if name is not None and isinstance(params.get(name), str) and _read_name_header(request) != params[name]:
        raise RpcError(HEADER_MISMATCH, f"Header mismatch: Mcp-Name differs from params.{name}")
    if version != CURRENT_VERSION:
        raise _unsupported(version)


def _read_name_header(request: Request) -> str | None:
    """Return the value of `Mcp-Name`, which is in base64 if it is not plain ASCII; None if it is missing or invalid."""
    header = _get_header(request, "mcp-name")
    match = _ENCODED_HEADER.fullmatch(header or "")
    if match is None:
        return header
    try:
        content = base64.b64decode(match[1], validate=True)
        return content.decode() if base64.b64encode(content).decode() == match[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _unsupported(version: str | None) -> RpcError:
    data = {"supported": list(VERSIONS), "requested": (version or "")[:64]}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def result_body(message_id: MessageId, result: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a response with a result."""
    return {"jsonrpc": "2.0", "id": message_id, "result": result}


def error_body(message_id: MessageId, error: RpcError) -> dict[str, Any]:
    """Return the body of a response with an error."""
    detail = {"code": error.code, "message": error.message}
    return {
        "jsonrpc": "2.0",
        "id": message_id,
        "error": detail if error.data is None else {**detail, "data": error.data},
    }
