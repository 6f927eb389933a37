"""The base of all tools of the MCP server: the declaration of a tool, its calls of the API, and its result.

A tool does nothing by itself: it calls the API in process with the credential of its caller, so it can do only what the
same credential can do over HTTP (`appliance/api/in_process.py`).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs
from sanic import Request

from appliance.accounts.access import Credential
from appliance.api import auth
from appliance.api.endpoints import Route
from appliance.api.http import ApiError
from appliance.api.in_process import ApiCall, ApiReply, call_api
from appliance.api.mcp import output
from appliance.api.routes import ROUTES
from appliance.core.errors import Invalid

S = TypeVar("S", bound=Struct)
Json = dict[str, Any]

_CONTACT_PATH = re.compile(r"/contacts/(\d{1,18})(?:/|$)")
_CONTACT_ID = re.compile(r"[0-9]{1,18}")
# Responses that show the values of a contact in content that the caller may have written: merge tags could spell a name
# in another way, or one letter at a time.
_RENDERS_CONTACT = re.compile(r"/templates/preview/?|/flows/[^/]+/simulate/?")
SAMPLE_VALUES = "Personal data is masked, so this shows the values of a sample contact."
_MAX_LISTED_FAULTS = 40


class ToolFailed(Exception):
    """A tool call that did not succeed; the text says why in plain words, and what to change."""


class ToolOutput(Struct, kw_only=True, omit_defaults=True):
    """The fields that every result has."""

    cut: Annotated[
        list[str], Meta(description="what was left out because the result was too long, and how to get the rest")
    ] = []


class ToolResult(NamedTuple):
    """The result of a tool: one sentence of our own without any text of the data, and the data."""

    summary: str
    value: ToolOutput


class ToolCall:
    """One call of a tool.

    Its methods call the API and return JSON without hidden characters. With `is_masked`, personal data in it is masked.
    """

    def __init__(self, request: Request, credential: Credential, is_masked: bool) -> None:
        self._request = request
        self.credential = credential
        self.masker = output.Masker() if is_masked else None
        self._known_contacts: set[int] = set()

    def can_call(self, operation: str) -> bool:
        """Return whether the caller may call an operation, such as `GET /campaigns`."""
        return find_denial(self.credential, get_route(operation)) is None

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of a GET request; parameters that are None or UNSET are left out. Raises ToolFailed."""
        return (await self.call("GET", path, query)).value

    async def post(self, path: str, body: Any = None) -> Any:
        """Return the JSON of a POST request. Raises ToolFailed."""
        return (await self.call("POST", path, {}, body)).value

    async def patch(self, path: str, body: Any) -> Any:
        """Return the JSON of a PATCH request. Raises ToolFailed."""
        return (await self.call("PATCH", path, {}, body)).value

    async def call(self, method: str, path: str, query: Json, body: Any = None, key: str | None = None) -> ApiReply:
        """Return the reply of the API, cleaned and masked; `key` is an idempotency key. Raises ToolFailed."""
        sent = {name: value for name, value in query.items() if value is not None and value is not UNSET}
        body = drop_unset(body)
        if self.masker is not None and isinstance(body, dict) and _RENDERS_CONTACT.fullmatch(path):
            body = {name: value for name, value in body.items() if name != "contact_id"}
        call = ApiCall(method, path, sent, body, key)
        await self._learn_contacts(call)
        # A large reply would hold up the event loop, on which all requests run.
        reply = await asyncio.to_thread(self._show, await call_api(self._request, self.credential, call))
        if reply.is_error:
            raise ToolFailed(describe_failure(method, path, reply))
        return reply

    async def get_unmasked(self, path: str) -> Any:
        """Return the JSON of a GET request unchanged, to send it to the API again. Raises ToolFailed.

        Masked or shortened values would change what the API renders. No result may contain this JSON.
        """
        reply = await call_api(self._request, self.credential, ApiCall("GET", path))
        if reply.is_error:
            raise ToolFailed(describe_failure("GET", path, reply))
        return reply.value

    async def _learn_contacts(self, call: ApiCall) -> None:
        """Read the contacts that a call is about, so that their names are masked in its response."""
        if self.masker is None:
            return
        body = call.body if isinstance(call.body, dict) else {}
        match = _CONTACT_PATH.search(call.path)
        for contact_id in (call.query.get("contact_id"), body.get("contact_id"), match[1] if match else None):
            if not _CONTACT_ID.fullmatch(str(contact_id)) or int(str(contact_id)) in self._known_contacts:
                continue
            self._known_contacts.add(int(str(contact_id)))
            contact = await call_api(self._request, self.credential, ApiCall("GET", f"/contacts/{contact_id}"))
            if not contact.is_error:
                await asyncio.to_thread(self._learn_contact, contact)

    def _learn_contact(self, reply: ApiReply) -> None:
        if self.masker is not None:
            self.masker.learn(output.clean(reply.value), "contact")

    def _show(self, reply: ApiReply) -> ApiReply:
        value = output.clean(reply.value)
        if self.masker is not None:
            self.masker.learn(value)
            value = self.masker.mask(value)
        return reply._replace(value=value)


@cache
def get_route(operation: str) -> Route:
    """Return the route of an operation, such as `GET /contacts/{id}`. Raises StopIteration for an unknown one."""
    return next(route for route in ROUTES if f"{route.method} {route.path}" == operation)


def find_denial(credential: Credential, route: Route) -> str | None:
    """Return why a credential may not call a route, or None if it may."""
    try:
        auth.require_route_access(credential, route)
    except ApiError as error:
        return error.message
    return None


Run = Callable[[ToolCall, Any], Awaitable[ToolResult]]


class Tool(NamedTuple):
    """A tool: what a model reads about it, its input and output, and the operations of the API that it needs.

    Whoever may not call one of these operations (`needs`, such as `GET /account`) does not see the tool. The hints are
    those of the protocol (server/tools, "ToolAnnotations").
    """

    name: str
    title: str
    description: str
    input_type: type[Struct]
    output_type: type[ToolOutput]
    run: Run
    needs: tuple[str, ...] = ()
    is_read_only: bool = True
    is_destructive: bool = False
    is_idempotent: bool = True
    reaches_outside: bool = False
    is_for_agents: bool = False  # whether only keys of agents get the tool

    def find_denial(self, credential: Credential) -> str | None:
        """Return why a credential may not use the tool, or None if it may."""
        if self.is_for_agents and not credential.is_agent:
            return "Only the key of an agent has this tool."
        denials = (find_denial(credential, get_route(operation)) for operation in self.needs)
        return next((denial for denial in denials if denial is not None), None)

    def describe(self) -> Json:
        """Return the tool as clients get it in `tools/list`."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": build_schema(self.input_type),
            "outputSchema": build_schema(self.output_type),
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.is_read_only,
                "destructiveHint": self.is_destructive,
                "idempotentHint": self.is_idempotent,
                "openWorldHint": self.reaches_outside,
            },
        }


def build_schema(kind: type[Struct]) -> Json:
    """Return the JSON Schema of a Struct, with an object at its root and the Structs in its fields in `$defs`."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = components.pop(kind.__name__)
    for schema in (root, *components.values()):
        schema.pop("title", None)
    root.pop("description", None)
    if kind.__struct_config__.forbid_unknown_fields:
        root["additionalProperties"] = False
    return {**root, "$defs": components} if components else root


def pick(kind: type[S], value: Any, **fields: Any) -> S:
    """Return a Struct with those fields of a JSON object of the API that it declares, and further fields.

    A field of the object that is null is left out if the Struct has a default for it.
    """
    names = {field.encode_name: not field.required for field in structs.fields(kind)}
    chosen = {
        name: item for name, item in value.items() if name in names and not (item is None and names[name])
    }  # fmt: skip
    return msgspec.convert({**chosen, **fields}, kind)


def pick_all(kind: type[S], values: Iterable[Any]) -> list[S]:
    """Return a Struct for each JSON object of a list, as `pick`."""
    return [pick(kind, value) for value in values]


def drop_unset(value: Any) -> Any:
    """Return a value as JSON: Structs become objects, and what is UNSET is left out."""
    if isinstance(value, dict):
        return {key: drop_unset(item) for key, item in value.items() if item is not UNSET}
    if isinstance(value, Struct):
        return msgspec.to_builtins(value)
    return value


def describe_failure(method: str, path: str, reply: ApiReply) -> str:
    """Return an error of the API as text for a model: the reason, each field with its errors, and when to retry."""
    body = reply.value if isinstance(reply.value, dict) else {}
    lines = [f"{method} {path} failed ({reply.status} {body.get('code', 'error')}): {body.get('message', '')}".strip()]
    faults = body.get("validation_errors")
    if isinstance(faults, dict):
        lines += describe_faults(faults)
    if "required_scope" in body:
        lines.append(f"The key needs the scope {body['required_scope']}; only a person can give it another key.")
    if "retry-after" in reply.headers:
        lines.append(f"Try again in {reply.headers['retry-after']} seconds.")
    if body.get("reason"):
        lines.append(f"Reason: {body['reason']}")
    return "\n".join(lines)


def describe_faults(fields: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each field with errors."""
    lines = [f"- {'' if path == 'base' else f'{path} '}{'; '.join(texts)}" for path, texts in fields.items()]
    if len(lines) > _MAX_LISTED_FAULTS:
        lines[_MAX_LISTED_FAULTS:] = [f"- and {len(lines) - _MAX_LISTED_FAULTS} more"]
    return lines


def refuse_arguments(error: Invalid) -> ToolFailed:
    """Return the failure for arguments that do not match the input schema of a tool."""
    return ToolFailed("\n".join(["The arguments are not valid:", *describe_faults(error.fields)]))


class Paging(NamedTuple):
    """The position of a page in a list of the API: the number of all entries, and the next page or None."""

    total: int
    next_page: int | None


def read_paging(reply: ApiReply) -> Paging:
    """Return the position of the page in a reply, from its headers."""
    next_page = reply.headers.get("x-next-page")
    return Paging(int(reply.headers.get("x-total-count", "0")), int(next_page) if next_page else None)


Page = Annotated[int, Meta(ge=1, le=1_000_000, description="page of the list, from 1")]
Limit = Annotated[int, Meta(ge=1, le=50, description="entries of a page")]
Id = Annotated[int, Meta(ge=1, le=10**18)]
OptionalId = Id | UnsetType
