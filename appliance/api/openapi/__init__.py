"""The published OpenAPI 3.1 document, built from the routes and Structs that the API itself uses.

This module builds the document, its schemas and the log-in paths. The other paths are in `operations`, the errors,
headers and parameters in `responses`, the examples in `examples`, and the schemas of values that are no Structs in
`typed_schemas`.
"""

import gzip
import inspect
from collections.abc import Iterable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct

from appliance import VERSION
from appliance.api import auth
from appliance.api.auth import SignedIn
from appliance.api.endpoints import LOGIN_PATHS, LOGOUT_PATHS
from appliance.api.openapi import example_builder, operations, responses, typed_schemas
from appliance.api.openapi.operations import build_operation, example_reference, schema_reference, tag_of
from appliance.api.openapi.responses import COMMON_HEADERS, ErrorResponse, error_reference, header_references
from appliance.api.routes import ROUTES
from appliance.api.schemas import RecordedEvent
from appliance.core import errors
from appliance.core.aliases import Aliases, list_aliases
from appliance.core.validation import declared_fields, is_cleared_by_empty
from appliance.settings import config

INTRODUCTION = """\
Email and SMS marketing for an account: contacts with their consent, lists and segments, campaigns, flows, single
messages, and the events of all of these.

Authenticate with an API key of the account in the header `Authorization: Bearer`. Requests and responses are JSON in
UTF-8. Times in responses are in UTC with milliseconds; times in requests may have any offset. Absent keys leave the
stored value unchanged, `null` and `""` clear it. Unknown and read-only keys are ignored and listed in
`X-Ignored-Fields`, also in a 422. Unknown query parameters are rejected, and so are filters by an id that does not
exist.

Lists are paged with `page` and `limit`; headers contain the totals. All errors have the same shape,
`ErrorResponse`, and list all problems at once. Version 1 changes only by additions: clients should ignore unknown keys.
"""

TAGS = {
    "messages": "Single messages, and all messages with their content and status.",
    "campaigns": "A message to many contacts, sent now or at a given time: drafts, sends, reports.",
    "contacts": "People with their addresses, consent, consent records and history.",
    "incoming": "Incoming SMS.",
    "suppressions": "Addresses to which the account sends nothing.",
    "exports": "Downloads of contacts, events and messages.",
    "lists": "Groups of contacts by membership.",
    "segments": "Groups of contacts defined by filters.",
    "imports": "Imports of contacts and suppressions from files.",
    "forms": "Sign-up forms.",
    "templates": "Content of messages: subject, body and design; previews and test sends.",
    "uploads": "Images for designs and the brand.",
    "flows": "Automations: an event starts them; steps wait, branch and send.",
    "brand": "Look and tone of the account's messages.",
    "domains": "Sending domains and their DNS records.",
    "account": "The account: settings, capabilities and blockers.",
    "backups": "Backups of the installation, for its first account.",
    "delivery": "Current state of sending.",
    "capture": "Messages captured instead of sent: all messages of a new installation, and those sent with test keys.",
    "events": "Events recorded by the service or by clients.",
    "webhooks": "URLs to which events are posted.",
    "users": "Users of the account, for its owner and admins.",
    "user": "The signed-in user: name, password, second factor, sessions, identities at providers.",
    "sign_in": "How people of the account may sign in.",
    "sign_in_providers": "OpenID Connect providers of the account, for its owner and admins.",
    "roles": "Roles of the account besides the built-in ones, for its owner and admins.",
    "invitations": "Invitations to the account by email, for its owner and admins.",
    "api_keys": "API keys of the account, for its owner and admins.",
    "proposals": "What agents propose, and what users decide about it.",
    "agents": "API keys of AI agents, and the switch that stops them.",
    "audit": "Audit log, for the account's owner and admins.",
    "login": "Tokens for users.",
    "hooks": "Webhooks for delivery reports and incoming messages of providers.",
    "service": "Health and description of the service.",
}


# The log-in and log-out endpoints (docs/decisions.md#2), which `Routes` does not declare.

LOGIN_STRUCTS = {auth.Login, auth.SignedIn}
_JSON = "application/json"
_CREDENTIALS = {"email": "ann@example.com", "password": "correct horse battery"}
_EXAMPLES = {
    "password": {"summary": "Sign in", "value": _CREDENTIALS},
    "code": {
        "summary": "Sign in with a second factor, nested in `user`",
        "value": {"user": {**_CREDENTIALS, "otp": "123456"}},
    },
}


def build_login_paths() -> dict[str, Any]:
    """Return the path items for log-in and log-out by path. Each path exists below `/v1` and below `/v1/my`."""
    return {
        **{path: {"post": _build_login(number)} for number, path in enumerate(LOGIN_PATHS)},
        **{path: {"delete": _build_logout(number)} for number, path in enumerate(LOGOUT_PATHS)},
    }


def _build_login(index: int) -> dict[str, Any]:
    credentials = schema_reference(auth.Login)
    nested = {"type": "object", "properties": {"user": credentials}, "required": ["user"]}
    header = {"description": "`Bearer` and the token", "schema": {"type": "string"}}
    return {
        "operationId": "loginMy" if index else "login",
        "summary": "Sign in and get a JWT",
        "tags": ["service"],
        "description": "No credential is required. The token has the permissions of the user's role for 12 hours. It "
        "ends earlier with a log-out, a change of password or second factor, or when the user is disabled. 401 "
        "`invalid_credentials`: address, password or code are wrong. 401 `otp_required`: the code of the second "
        "factor is missing. 401 `password_sign_in_off`: the account allows no passwords. After ten failures within 15 "
        "minutes, by address or by client, all attempts get 429." + (" Same as `/v1/login`." if index else ""),
        "security": [],
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": {"anyOf": [credentials, nested]}, "examples": _EXAMPLES}},
        },
        "responses": {
            "200": {
                "description": "Signed in",
                "headers": {**header_references(*COMMON_HEADERS), "Authorization": header},
                "content": {
                    _JSON: {"schema": schema_reference(auth.SignedIn), "examples": example_reference(auth.SignedIn)}
                },
            },
            **{str(status): error_reference(status) for status in (400, 401, 413, 415, 422, 429, 500, 503)},
        },
    }


def _build_logout(index: int) -> dict[str, Any]:
    return {
        "operationId": "logoutMy" if index else "logout",
        "summary": "End the session of the JWT",
        "tags": ["service"],
        "description": "The token becomes invalid. API keys have no session and get 403; revoke the key instead."
        + (" Same as `/v1/logout`." if index else ""),
        "security": [{"jwt": []}],
        "responses": {
            "204": {"description": "Signed out", "headers": header_references(*COMMON_HEADERS)},
            **{str(status): error_reference(status) for status in (401, 403, 422, 429, 500, 503)},
        },
    }


# The descriptions of fields whose names mean the same in many Structs. A description in a field's own declaration takes
# precedence.
COMMON_DESCRIPTIONS = {
    "id": "unique id; ids ascend and are never reused",
    "account_id": "id of the account",
    "name": "name",
    "type": "type",
    "label": "label in the user interface",
    "created_at": "when the object was created",
    "updated_at": "when the object was last changed",
    "since": "start of the period",
    "until": "end of the period; null if unknown",
    "test": "whether it is a test; tests are captured and never counted",
    "channel": "`email` or `sms`",
    "subject": "subject line, with merge tags",
    "preheader": "preview text that mailboxes show after the subject line",
    "body": "content: HTML or plain text of an email (the text part beside a design), or the text of an SMS",
    "text": "content as plain text",
    "from_name": "sender name; null for that of the account",
    "from_email": "sender address; null for that of the account",
    "reply_to": "address for replies; null for the sender",
    "segments": "number of SMS parts; null for email",
    "tracking": "whether opens and clicks are tracked",
    "message": "explanation for people",
    "message_id": "id of the message; null if there is none",
    "sentence": "description as a sentence",
    "people": "path of the list of these contacts",
    "count": "number",
    "audience": "number of recipients",
    "accepted": "accepted by the next hop: sent, delivered, bounced and complained",
    "bounced": "accepted, and later reported as undeliverable",
    "failed": "rejected permanently, or given up after retries",
    "entered": "contacts that entered",
}

# The other schemas of the document are built from the Structs.


def build_schemas(kinds: Iterable[type[Struct]]) -> dict[str, Any]:
    """Return `components.schemas`: of the given Structs, the Structs in their fields, and `typed_schemas`."""
    structs = collect_structs(kinds)
    _, components = msgspec.json.schema_components(
        sorted(structs, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    classes = {kind.__name__: kind for kind in structs}
    typed = {name: _complete(schema) for name, schema in typed_schemas.build_typed_schemas().items()}
    schemas = {name: _describe_properties(_complete(schema), classes.get(name)) for name, schema in components.items()}
    for name, kind in classes.items():
        _add_aliases(schemas | typed, schemas[name], list_aliases(kind))
    return dict(sorted({**schemas, **typed}.items()))


def collect_structs(kinds: Iterable[type[Struct]]) -> set[type[Struct]]:
    """Return the given Structs and, recursively, every Struct in the types of their fields."""
    structs: set[type[Struct]] = set()
    pending: list[Any] = list(kinds)
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, Struct):
            if kind not in structs:
                structs.add(kind)
                pending += [info.type for info in declared_fields(kind)]
        else:
            pending += [
                argument for argument in get_args(kind) if not isinstance(argument, str | int | float | msgspec.Meta)
            ]
    return structs


def _complete(schema: Any) -> Any:
    """Return a schema with what msgspec and our parsers leave out, recursively.

    A time has the type string, because it is an integer only in Python; a reference has no type. An object without
    declared properties has `additionalProperties`, because some generators of clients would allow no key otherwise, and
    an array has `items`.
    """
    if isinstance(schema, list):
        return [_complete(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    completed = {key: _complete(value) for key, value in schema.items()}
    if isinstance(text := completed.get("description"), str):
        completed["description"] = inspect.cleandoc(text)
    if completed.get("format") == "date-time":
        completed["type"] = "string"
    if "$ref" in completed:
        completed.pop("type", None)
    types = completed.get("type")
    types = types if isinstance(types, list) else [types]
    if "object" in types and completed.keys().isdisjoint(("properties", "additionalProperties")):
        completed["additionalProperties"] = True
    if "array" in types and completed.keys().isdisjoint(("items", "prefixItems")):
        completed["items"] = {}
    return completed


def _add_aliases(schemas: dict[str, Any], schema: dict[str, Any], aliases: Aliases) -> None:
    """Add the aliases of a Struct to its schema: deprecated properties with the schemas of their fields.

    A field that is an alias if its value is a list accepts both.
    """
    for name, alias in aliases.items():
        field = schema
        for part in alias.path.split("."):
            field = _find_object(schemas, field)["properties"][part]
        if alias.is_list:
            own = schema["properties"][name]
            array = next(option for option in field.get("anyOf", [field]) if option.get("type") == "array")
            own["anyOf"].insert(-1, dict(array))
            own["description"] += f"; a list is an alias of `{alias.path}`"
        else:
            copy = {key: value for key, value in field.items() if key != "default"}
            text = f"alias of `{alias.path}`; beside it, both must be the same"
            schema["properties"][name] = {**copy, "description": text, "deprecated": True}


def _find_object(schemas: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that a schema is, refers to, or allows beside null."""
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    reference = options[0].get("$ref")
    target: dict[str, Any] = options[0] if reference is None else schemas[reference.rpartition("/")[2]]
    return target


def _allow_empty(schema: dict[str, Any]) -> None:
    """Extend the patterns of a schema to allow an empty text, which clears a value as null does."""
    for part in (schema, *schema.get("anyOf", ())):
        if "pattern" in part:
            part["pattern"] = f"^$|{part['pattern']}"


def _describe_properties(schema: dict[str, Any], kind: type[Struct] | None) -> dict[str, Any]:
    """Complete the schema of a Struct and return it.

    Each property gets the description of its declaration, or else the description in COMMON_DESCRIPTIONS. If an empty
    text clears a property, its pattern is extended to allow an empty text. The description of the schema names the keys
    that the Struct refuses. `kind` is None for a schema that does not belong to a Struct.
    """
    refused = {name: key for name, key in getattr(kind, "REFUSED", {}).items() if name not in list_aliases(kind)}
    if refused:
        schema["description"] += f" These keys are refused (422): {errors.describe_refused_keys(refused)}."
    cleared = {info.encode_name for info in declared_fields(kind) if is_cleared_by_empty(info.type)} if kind else set()
    declared = {info.encode_name: _find_description(info.type) for info in declared_fields(kind)} if kind else {}
    for name, schema_property in schema.get("properties", {}).items():
        if name in cleared:
            _allow_empty(schema_property)
        for part in schema_property.get("anyOf", ()):
            schema_property |= {"default": part.pop("default")} if "default" in part else {}
        if "description" in schema_property:
            continue
        for part in schema_property.get("anyOf", ()):
            part.pop("description", None)
        description = declared.get(name) or COMMON_DESCRIPTIONS.get(name)
        if description is not None:
            schema_property["description"] = description
    return schema


def _find_description(annotation: Any) -> str | None:
    """Return the description in a field's type, also inside a union, or None.

    The description is read from the type because msgspec drops the description of a field whose type is a Struct.
    """
    metadata = [meta for meta in getattr(annotation, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    descriptions = [meta.description for meta in metadata if meta.description]
    if not descriptions and (isinstance(annotation, UnionType) or get_origin(annotation) in (Annotated, Union)):
        descriptions += filter(None, map(_find_description, get_args(annotation)))
    return descriptions[-1] if descriptions else None


@cache
def render_yaml() -> bytes:
    """Return the OpenAPI document as YAML in UTF-8. It is built once per process."""

    text: str = yaml.dump(build_document(), sort_keys=False, allow_unicode=True, width=120, Dumper=_build_dumper())
    return text.encode()


@cache
def render_gzip() -> bytes:
    """Return the document of `render_yaml` compressed with gzip (RFC 1952). It is compressed once per process."""
    return gzip.compress(render_yaml(), mtime=0)


def _build_dumper() -> Any:

    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return type("Dumper", (base,), {"ignore_aliases": lambda self, data: True})


def build_document() -> dict[str, Any]:
    """Return the OpenAPI document as a dict."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(f"/v1/my{route.path}", {})[route.method.lower()] = build_operation(route)
    paths |= operations.build_other_paths() | build_login_paths()
    schemas = build_schemas(_list_structs())
    base_url = config.base_url(config.current())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Campanero",
            "version": VERSION,
            "summary": "Email and SMS marketing, self-hosted.",
            "description": INTRODUCTION,
            "contact": {"name": "Campanero", "url": f"{base_url}/docs"},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "externalDocs": {"description": "Guides", "url": f"{base_url}/docs"},
        "servers": [{"url": base_url}],
        "security": [{"apiKey": []}, {"jwt": []}],
        "tags": [{"name": name, "description": TAGS[name]} for name in _list_tags()],
        "paths": paths,
        "webhooks": {"event": {"post": operations.build_event_webhook()}},
        "components": {
            "securitySchemes": _SECURITY,
            "parameters": responses.build_parameters(),
            "headers": responses.build_headers(),
            "responses": responses.build_responses(),
            "schemas": schemas,
            "examples": example_builder.ExampleBuilder(schemas, ROUTES).build_all(*_list_response_schemas()),
        },
    }


_SECURITY = {
    "apiKey": {
        "type": "http", "scheme": "bearer", "bearerFormat": "camp_live_... or camp_test_...",
        "description": "An API key, created under Settings, API keys. Messages sent with a test key are captured and "
        "never leave the machine.",
    },
    "jwt": {
        "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
        "description": "A token from `POST /v1/login` with the permissions of the user.",
    },
}  # fmt: skip


def _list_tags() -> list[str]:
    """Return the tags that have operations, in the order of TAGS."""
    tags = {*(tag_of(route) for route in ROUTES), "hooks", "service"}
    return [name for name in TAGS if name in tags]


def _list_response_schemas() -> tuple[set[str], set[str]]:
    """Return two sets of names: the response schemas of single objects, and the response schemas of list items."""
    returned = [
        (route.response_type.__name__, route.returns_list) for route in ROUTES if route.response_type is not None
    ]
    return {name for name, many in returned if not many} | {SignedIn.__name__}, {
        name for name, many in returned if many
    }


def _list_structs() -> set[Any]:
    structs = (kind for route in ROUTES for kind in (route.response_type, route.body_type, route.form_type))
    return {kind for kind in structs if kind is not None} | {ErrorResponse, RecordedEvent} | LOGIN_STRUCTS
