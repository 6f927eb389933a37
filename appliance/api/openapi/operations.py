"""Operations of the OpenAPI document: declared endpoints, forms, provider webhooks, and the service itself."""

from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET, Struct

from appliance.accounts.access import ADMIN_SCOPE, SELF_SCOPE
from appliance.api import schemas
from appliance.api.endpoints import FORM_SUBMISSION_PATH, Route
from appliance.api.openapi import examples as request_examples
from appliance.api.openapi import responses
from appliance.api.openapi.responses import COMMON_HEADERS, error_reference, header_references
from appliance.api.routes import ROUTES, SERVICE_ROUTES
from appliance.core.validation import MAX_INTEGER, declared_fields

# The links of a response lead from a created or listed object to every operation on it, and to the lists that can be
# filtered by it. A client may follow links instead of building paths.

_BODY_ID, _FIRST_ID, _PATH_ID = "$response.body#/id", "$response.body#/0/id", "$request.path.id"


def build_links(route: Route) -> dict[str, Any]:
    """Return the OpenAPI links of an endpoint's success response by name, empty if it returns no object with an id."""
    if route.returns_list and any(other.path == f"{route.path}/{{language}}" for other in ROUTES):
        return dict(
            _link(other, id=_PATH_ID, language="$response.body#/0/language")
            for other in ROUTES
            if other.path == f"{route.path}/{{language}}"
        )
    if "id" not in getattr(route.response_type, "__struct_fields__", ()):
        return {}
    if route.returns_list:
        return _link_to_item(route, _FIRST_ID) if not route.has_id else _link_to_nested(route)
    if route.method == "POST" and route.status == 201 and not route.has_id:
        return {
            **_link_to_item(route, _BODY_ID),
            **_link_to_list(route),
            **_link_to_filtered_lists(route),
            **_link_to_submission(route),
        }
    if route.method in ("PATCH", "PUT") and route.has_id:
        return dict(_link(other, id=_PATH_ID) for other in ROUTES if other.method == "GET" and other.path == route.path)
    return {}


def _link(route: Route, **parameters: str) -> tuple[str, dict[str, Any]]:
    name = route.operation_id
    return name, {"operationId": name, "parameters": parameters}


def _link_to_item(route: Route, number: str) -> dict[str, Any]:
    """Return links to every operation on an object of the list; `number` is the runtime expression of its id."""
    paths = f"{route.path}/{{id}}"
    return dict(
        _link(other, id=number)
        for other in ROUTES
        if other.path.startswith(paths) and other.inner_id_name is None and not other.has_language
    )


def _link_to_nested(route: Route) -> dict[str, Any]:
    """Return links from a list below an object, such as the runs of a flow, to every operation on its items."""
    nested = [
        other for other in ROUTES if other.inner_id_name is not None and other.path.startswith(f"{route.path}/{{")
    ]
    return dict(_link(other, id=_PATH_ID, **{str(other.inner_id_name): _FIRST_ID}) for other in nested)


def _link_to_submission(route: Route) -> dict[str, Any]:
    """Return the link from a created form to the operation that submits it; empty for any other object."""
    if "public_key" not in getattr(route.response_type, "__struct_fields__", ()):
        return {}
    parameters = {"public_key": "$response.body#/public_key"}
    return {"submitForm": {"operationId": "submitForm", "parameters": parameters}}


def _link_to_list(route: Route) -> dict[str, Any]:
    """Return the link from a created object to the list that contains it."""
    return dict(
        _link(other) for other in ROUTES if (other.method, other.path) == ("GET", route.path) and other.returns_list
    )


def _link_to_filtered_lists(route: Route) -> dict[str, Any]:
    """Return links from a created object to the lists that can be filtered by it, such as the messages of a contact."""
    name = f"{route.path.strip('/').removesuffix('s')}_id"
    return dict(
        _link(other, **{name: _BODY_ID})
        for other in ROUTES
        if other.returns_list and not other.has_id and other.path != route.path and other.query_type is not None
        and name in {info.encode_name for info in declared_fields(other.query_type)}
    )  # fmt: skip


# The scopes that no API key has, with the sentence that describes them.
_SIGN_IN_ONLY = {
    ADMIN_SCOPE: "Only for a signed-in owner or admin: no API key has access.",
    SELF_SCOPE: "Only for a signed-in user: no API key has access.",
}


def schema_reference(kind: type[Struct]) -> dict[str, str]:
    """Return a reference to the schema of a Struct."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def example_reference(kind: type[Struct], is_list: bool = False) -> dict[str, Any]:
    """Return the `examples` of a response: a reference to the example of a Struct, or of a list of it."""
    return {"1": {"$ref": f"#/components/examples/{'ListOf' if is_list else ''}{kind.__name__}"}}


def build_operation(route: Route) -> dict[str, Any]:
    """Return the Operation Object of an endpoint."""
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "summary": route.summary.rstrip("."),
        "tags": [tag_of(route)],
        "description": _describe(route),
        "x-required-scope": route.scope,
        "x-rate": route.rate,
    }
    if route.scope in _SIGN_IN_ONLY or route.users_only:
        operation["security"] = [{"jwt": []}]
    if parameters := _build_parameters(route):
        operation["parameters"] = parameters
    if body := _build_request_body(route):
        operation["requestBody"] = body
    operation["responses"] = {
        **{str(status): _build_success(route, status) for status in (route.status, *route.other_statuses)},
        **{str(status): error_reference(status) for status in _error_statuses(route)},
    }
    return operation


def tag_of(route: Route) -> str:
    """Return the tag of an endpoint: the first part of its path."""
    return route.path.strip("/").partition("/")[0]


def _describe(route: Route) -> str:
    """Return the description of an endpoint: the handler's docstring after its first line, and the required scope."""
    lines = (route.handler.__doc__ or "").strip().split("\n")[1:]
    promise = " ".join(line.strip() for line in lines if line.strip())
    scope = _SIGN_IN_ONLY.get(route.scope, f"Scope: `{route.scope}`.")
    own = "" if route.agent_scope in (None, route.scope) else f"Scope of agents: `{route.agent_scope}`."
    open_to = "" if route.agent_scope is None or own else "Open to agents."
    return " ".join(filter(None, (promise, scope, own or open_to)))


def _build_request_body(route: Route) -> dict[str, Any]:
    if route.body_type is not None:
        kind, schema, required = "application/json", schema_reference(route.body_type), route.body_required
    elif route.form_type is not None:
        kind, schema, required = "multipart/form-data", _form_schema(route.form_type), True
    else:
        return {}
    media: dict[str, Any] = {"schema": schema}
    if example_reference := request_examples.find_examples(f"{route.method} {route.path}"):
        media["examples"] = example_reference
    return {"required": required, "content": {kind: media}}


def _form_schema(kind: type[Struct]) -> dict[str, Any]:
    """Return the schema of a multipart body: the field `file`, and the fields of the Struct."""
    binary = {"type": "string", "format": "binary", "description": "the file"}
    return {"allOf": [{"type": "object", "properties": {"file": binary}, "required": ["file"]}, schema_reference(kind)]}


def _media_schema(kind: str) -> dict[str, Any]:
    is_text = kind.startswith("text/") or kind.endswith("jsonl")
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


def _build_success(route: Route, status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": _success_description(route, status),
        "headers": responses.success_headers(route),
    }
    if route.media is not None:
        kinds = [kind for kind in (route.media, route.alternative_media) if kind is not None]
        return {**response, "content": {kind: {"schema": _media_schema(kind)} for kind in kinds}}
    assert route.response_type is not None
    schema = (
        {"type": "array", "items": schema_reference(route.response_type)}
        if route.returns_list
        else schema_reference(route.response_type)
    )
    response["content"] = {
        "application/json": {"schema": schema, "examples": example_reference(route.response_type, route.returns_list)}
    }
    if status == route.status and (links := build_links(route)):
        response["links"] = links
    return response


def _success_description(route: Route, status: int) -> str:
    if status == 201:
        return "Created"
    return "The existing object" if route.status == 201 else "Success"


def _error_statuses(route: Route) -> list[int]:
    statuses = {401, 403, 422, 429, 500, 503}
    if route.has_id:
        statuses.add(404)
    if route.method != "GET":
        statuses |= {400, 413, 415}
    # A body with `updated_at` as last read conflicts with a newer object.
    is_checked = route.body_type is not None and "updated_at" in route.body_type.__struct_fields__
    if route.method == "PATCH" or route.idempotent or (route.method == "PUT" and is_checked) or route.has_conflicts:
        statuses.add(409)
    return sorted(statuses)


def _build_parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    if route.has_id:
        parameters.append(responses.parameter_reference("id"))
    if route.inner_id_name is not None:
        parameters.append({
            "name": route.inner_id_name, "in": "path", "required": True,
            "description": f"id of the {route.inner_id_name.removesuffix('_id')}",
            "schema": {"type": "integer", "minimum": 1},
        })  # fmt: skip
    if route.has_language:
        parameters.append({
            "name": "language", "in": "path", "required": True,
            "description": "tag of the language (RFC 5646), such as `de` or `pt-BR`",
            "schema": {"type": "string", "maxLength": 35}, "example": "de",
        })  # fmt: skip
    if route.idempotent:
        parameters.append(responses.parameter_reference("Idempotency-Key"))
    if route.query_type is not None:
        parameters += [_build_query_parameter(route.query_type, info) for info in declared_fields(route.query_type)]
    return parameters


def _build_query_parameter(kind: type[Struct], info: Any) -> dict[str, Any]:
    if responses.is_paging_parameter(kind, info.encode_name):
        return responses.parameter_reference(info.encode_name)
    schema = msgspec.json.schema(info.type)
    if schema.get("type") == "integer":
        # The database stores integers with 64 bits.
        schema = {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER} | schema
    if info.default not in (NODEFAULT, UNSET):
        schema["default"] = info.default
    name = info.encode_name
    nested = [part.pop("description") for part in schema.get("anyOf", ()) if "description" in part]
    description = schema.pop("description", None) or next(iter(nested), None)
    parameter = {
        "name": name,
        "in": "query",
        "required": info.required,
        "description": description,
        "schema": schema,
    }
    return {name: value for name, value in parameter.items() if value is not None}


# A custom provider reports to `/hooks/email` and `/hooks/sms`. It signs its requests as outgoing webhooks are signed
# (docs/decisions.md#15).

_JSON = "application/json"
_WEBHOOK_ERRORS = (400, 403, 404, 405, 413, 422, 500, 503)
_SIGNATURE_DESCRIPTION = (
    "Available if a secret is configured, otherwise 404. Requests are signed as standardwebhooks.com specifies; a "
    "missing or invalid signature, or one older than `network.hook_max_age` (five minutes), gets 403. "
    "Repeated reports have no effect, and a status never moves backwards."
)
_RECEIVED_SCHEMA = {"type": "integer", "description": "number of reports in the request"}


def build_webhook_paths(signed: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the path items of the webhooks for custom providers; `signed` are the parameters of the signature."""
    return {"/hooks/email": {"post": _build_email_webhook(signed)}, "/hooks/sms": {"post": _build_sms_webhook(signed)}}


def _text_schema(description: str, *options: str) -> dict[str, Any]:
    return {"type": "string", "description": description} | ({"enum": list(options)} if options else {})


def _nullable_schema(description: str, *kinds: str) -> dict[str, Any]:
    return {"type": [*(kinds or ("string",)), "null"], "description": description}


def _build_webhook(
    name: str,
    summary: str,
    description: str,
    body: dict[str, Any],
    examples: dict[str, Any],
    signed: list[dict[str, Any]],
) -> dict[str, Any]:
    response_schema = {"type": "object", "properties": {"received": _RECEIVED_SCHEMA}, "required": ["received"]}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["hooks"],
        "description": f"{description} {_SIGNATURE_DESCRIPTION}",
        "security": [],
        "parameters": signed,
        "requestBody": {"required": True, "content": {_JSON: {"schema": body, "examples": examples}}},
        "responses": {
            "200": {"description": "Recorded", "headers": header_references("X-Request-Id"),
                    "content": {_JSON: {"schema": response_schema, "examples": {"1": {"value": {"received": 1}}}}}},
            **{str(status): error_reference(status) for status in _WEBHOOK_ERRORS},
        },
    }  # fmt: skip


def _build_email_webhook(signed: list[dict[str, Any]]) -> dict[str, Any]:
    body = {
        "type": "object",
        "properties": {
            "type": _text_schema("type of the report", "delivered", "bounced", "soft_bounced", "complained"),
            "internet_message_id": _text_schema("Message-ID of the message"),
            "recipient": _text_schema("recipient of the message; reports about other addresses are ignored"),
            "diagnostic": _nullable_schema("response of the server, such as `550 5.1.1 no such user`"),
        },
        "required": ["type", "internet_message_id", "recipient"],
    }
    value = {
        "type": "bounced", "internet_message_id": "<991.k3@news.example.com>", "recipient": "jane@example.org",
        "diagnostic": "550 5.1.1 unknown",
    }  # fmt: skip
    return _build_webhook(
        "reportEmailStatus", "Report the delivery status of an email", "For your own relay.", body,
        {"1": {"summary": "An email bounced", "value": value}}, signed,
    )  # fmt: skip


def _build_sms_webhook(signed: list[dict[str, Any]]) -> dict[str, Any]:
    body = {
        "type": "object",
        "properties": {
            "type": _text_schema(
                "`status` for a delivery report; `message` for an incoming SMS", "status", "message"
            ),
            "id": _nullable_schema("id of the message at the provider", "string", "integer"),
            "status": _nullable_schema("delivery status"),
            "from": _nullable_schema("sender", "string", "integer"),
            "to": _nullable_schema("recipient", "string", "integer"),
            "body": _nullable_schema("text of the message"),
            "error": {"description": "why the message was not delivered"},
            "answered": _nullable_schema("keyword that the provider has already acted on and replied to"),
        },
        "required": ["type"],
    }  # fmt: skip
    incoming_sms = {"type": "message", "id": "in-1", "from": "+14155550123", "to": "+15550009999", "body": "Thanks!"}
    examples = {
        "1": {"summary": "An SMS was delivered", "value": {"type": "status", "id": "sms-991", "status": "delivered"}},
        "2": {"summary": "An SMS was received", "value": incoming_sms},
    }
    return _build_webhook(
        "reportSms", "Report the delivery status of an SMS, or an incoming SMS", "For the provider `http`.", body,
        examples, signed,
    )  # fmt: skip


JSON = "application/json"
_TEXT = {"type": "string"}
_SIGNATURE_HEADERS = {
    "webhook-id": "same for every attempt of a delivery", "webhook-timestamp": "time of the attempt, in Unix seconds",
    "webhook-signature": "`v1,` and the base64 HMAC-SHA256 of `id.timestamp.body`; several are separated by spaces",
}  # fmt: skip


def build_other_paths() -> dict[str, Any]:
    """Return the path items outside `/v1/my`, except for log-in and log-out. Only `/metrics` needs a credential."""
    return {
        FORM_SUBMISSION_PATH: {"post": _build_form_submission()},
        "/openapi.yaml": {"get": _build_openapi_path()},
        "/healthz": {"get": _build_healthz()},
        "/readyz": {"get": _build_readyz()},
        **{route.path: {"get": _build_service_operation(route)} for route in SERVICE_ROUTES},
        **build_webhook_paths(_signature_parameters()),
    }


def _object_schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _json_response(text: str, schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    media = {"schema": schema, "examples": {"1": {"summary": text, "value": value}}}
    return {"description": text, "headers": header_references(*COMMON_HEADERS), "content": {JSON: media}}


def _build_form_submission() -> dict[str, Any]:
    """Return the Operation Object that submits a sign-up form."""
    descriptions = {
        "email": "email address; this or `phone` is required", "phone": "phone number, such as `+14155550123`",
        "first_name": "first name, if the form has this field", "last_name": "last name, if the form has this field",
        "website": "must be empty: the field is hidden, and only bots fill it in",
    }  # fmt: skip
    properties: dict[str, Any] = {name: {"type": "string", "description": text} for name, text in descriptions.items()}
    properties["data"] = {
        "type": "object", "additionalProperties": True,
        "description": "values of the other fields, by name; an array for `checkboxes`",
    }  # fmt: skip
    properties["topics"] = {
        "type": "array", "items": {"type": "integer"},
        "description": "ids of the lists that the contact chose from the form's `topic_ids`; others are ignored",
    }  # fmt: skip
    accepted = {"const": True, "description": "always true; reveals nothing about the address"}
    suggested = {
        "type": ["string", "null"],
        "description": "`email` with the domain of a large mailbox provider, if its own is probably a typo of it, such "
        "as gmail.con; ask the visitor. The address is accepted as it is.",
    }
    answer = _object_schema(("accepted", "suggested_email"), accepted=accepted, suggested_email=suggested)
    body = {"schema": _object_schema(**properties)}
    example = request_examples.find_examples(f"POST {FORM_SUBMISSION_PATH}")
    kinds = {JSON: {**body, "examples": example}, "application/x-www-form-urlencoded": body}
    return {
        "operationId": "submitForm",
        "summary": "Submit a form",
        "tags": ["forms"],
        "description": "No credential is required. The response does not depend on whether the address is known. "
        "`website` must be empty. Pages of the form's `origins` may read the response.",
        "security": [],
        "parameters": [{
            "name": "public_key", "in": "path", "required": True, "description": "public key of the form",
            "schema": _TEXT,
        }],
        "requestBody": {"required": True, "content": kinds},
        "responses": {
            "202": _json_response("Accepted", answer, {"accepted": True, "suggested_email": None}),
            "303": {"description": "Redirect of a browser form to the `redirect_url`"},
            **{str(status): error_reference(status) for status in (400, 404, 413, 415, 422, 429, 500, 503)},
        },
    }  # fmt: skip


def build_event_webhook() -> dict[str, Any]:
    """Return the Operation Object of the request that a webhook receives for an event."""
    return {
        "operationId": "receiveEvent",
        "summary": "An event to which a webhook subscribes",
        "tags": ["webhooks"],
        "description": "Signed as standardwebhooks.com specifies; the key is the part after `whsec_`, base64-decoded. "
        "Events may arrive more than once and out of order. A delivery that is not accepted within 5 seconds is "
        "retried after 30 s, 1, 2, 5, 15, 30 min, 1, 2, 6 and 24 h, or later if `Retry-After` asks for it.",
        "security": [],
        "parameters": _signature_parameters(),
        "requestBody": {"required": True, "content": {JSON: {"schema": schema_reference(schemas.RecordedEvent)}}},
        "responses": {
            "2XX": {"description": "Accepted"}, "410": {"description": "Gone: the webhook is disabled"},
            "default": {"description": "Not accepted"},
        },
    }  # fmt: skip


def _signature_parameters() -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": True, "description": text, "schema": _TEXT}
        for name, text in _SIGNATURE_HEADERS.items()
    ]


def _build_openapi_path() -> dict[str, Any]:
    response = {
        "description": "OpenAPI 3.1; compressed with gzip if the client accepts it",
        "headers": header_references(*COMMON_HEADERS),
        "content": {"application/yaml": {"schema": _TEXT}},
    }
    return {
        "operationId": "getOpenapi",
        "summary": "Get this document",
        "tags": ["service"],
        "description": "No credential is required.",
        "security": [],
        "responses": {"200": response, **{str(status): error_reference(status) for status in (400, 500, 503)}},
    }


def _build_healthz() -> dict[str, Any]:
    status = {"const": "ok", "description": "always `ok`"}
    return {
        "operationId": "getHealthz",
        "summary": "Check the health of the service",
        "tags": ["service"],
        "description": "No credential is required.",
        "security": [],
        "responses": {
            "200": _json_response(
                "The service can read and write", _object_schema(("status",), status=status), {"status": "ok"}
            ),
            "400": error_reference(400),
            "503": error_reference(503),
        },
    }


def _build_readyz() -> dict[str, Any]:
    status = {"const": "ready", "description": "always `ready`"}
    return {
        "operationId": "getReadyz",
        "summary": "Check whether the service handles requests and sends messages",
        "tags": ["service"],
        "description": "No credential is required. 503 during start and shutdown, while nothing can be stored, and if "
        "the queue does not run; the message names the missing part in one word.",
        "security": [],
        "responses": {
            "200": _json_response(
                "The service is ready", _object_schema(("status",), status=status), {"status": "ready"}
            ),
            "400": error_reference(400),
            "503": error_reference(503),
        },
    }


def _build_service_operation(route: Route) -> dict[str, Any]:
    """Return the Operation Object of an endpoint of the service that requires a credential: `/metrics`.

    The headers of downloads and of the API version are left out, because the response does not have them.
    """
    operation = build_operation(route)
    success = operation["responses"]["200"]
    headers = responses.header_references(*COMMON_HEADERS[:1], *responses.CREDENTIAL_HEADERS)
    return {
        **operation,
        "tags": ["service"],
        "responses": {**operation["responses"], "200": {**success, "headers": headers}},
    }
