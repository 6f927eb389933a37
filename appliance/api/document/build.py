"""Puts the document together."""

from collections.abc import Iterable
from functools import cache
from typing import Any, get_args

import msgspec
import yaml
from msgspec import Struct

from appliance import VERSION
from appliance.api import login
from appliance.api.declare import LOGIN, LOGOUT
from appliance.api.document import outside, responses, samples, words
from appliance.api.document.operations import noun, operation, ref, shown
from appliance.api.document.responses import EVERY, Error, error, headers
from appliance.api.login import SignedIn
from appliance.api.routes import ROUTES
from appliance.api.shapes import Event
from appliance.audience.filters import spec
from appliance.content.designs.document import MAX_SECTIONS
from appliance.content.designs.kind import STYLES
from appliance.content.designs.props import Prop
from appliance.content.designs.sections import KINDS as sections_KINDS
from appliance.content.designs.theme import THEME
from appliance.core import validation
from appliance.core.fields import EVENT_NAME, declared, is_cleared_by_empty
from appliance.flows.document import KEYS
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.wait import MAX_SECONDS
from appliance.settings import config

# What the parts of the interface are about, in words.

INTRODUCTION = """\
Email and SMS marketing for one account at a time: contacts with their consent, lists and segments, campaigns, flows,
single messages, and everything that happens to them.

Every request carries `Authorization: Bearer` with a key of the account. Requests and answers are JSON in UTF-8; times
are answered in UTC with milliseconds and read with any offset. Absent keys keep what is stored, `null` and `""` clear
it. Keys that are unknown or read-only are ignored and named in `X-Ignored-Fields`, in a 422 too; unknown parameters of
a query are refused, and so are filters by an id that is not there.

Lists are paged by `page` and `limit` and say in their headers how many there are. Whatever is refused has one shape,
`Error`, and names all that is wrong at once. Within version 1 only additions come: clients
ignore what they do not know.
"""

TAGS = {
    "messages": "Single messages, and every message to anybody: what it said and what became of it.",
    "campaigns": "One message to many people at once, now or at a time: drafts, sends, reports.",
    "contacts": "People with their addresses, their consent and the evidence for it, and their history.",
    "incoming": "SMS that people wrote.",
    "suppressions": "Addresses that must not be written to, account-wide.",
    "exports": "Contacts, events and messages as files.",
    "lists": "Groups of people by membership.",
    "segments": "Groups of people that follow from filters.",
    "imports": "Files of people, and what came of them.",
    "forms": "Forms through which people sign themselves up.",
    "templates": "What a message says: subject, body and design; previews and tests.",
    "uploads": "Pictures for designs and the brand.",
    "flows": "Automations: an event starts them, steps wait, decide and send.",
    "brand": "How the account looks and sounds.",
    "domains": "Domains that mail may come from, and their DNS records.",
    "account": "The account: its settings, what it can do and what stands in its way.",
    "delivery": "How sending stands right now.",
    "capture": "What was kept on this machine instead of sent: everything on a fresh installation, and what test keys "
    "send.",
    "events": "Everything that happened, recorded by the service or by clients.",
    "webhooks": "Addresses that are told of events.",
    "users": "The people of the account, for its owner and admins.",
    "user": "Oneself: name, password, second factor, sessions.",
    "api_keys": "Keys of the account, for its owner and admins.",
    "audit": "Who did what, for the account's owner and admins.",
    "login": "Tokens for people.",
    "hooks": "Where providers tell what became of messages, and what people answered.",
    "service": "The service itself: its health and its description.",
}


# What the document says of signing in and out (docs/decisions.md#2).

KINDS = {login.Login, login.SignedIn}
_JSON = "application/json"
_WHO = {"email": "ann@example.com", "password": "correct horse battery"}
_EXAMPLES = {
    "password": {"summary": "Sign in", "value": _WHO},
    "code": {
        "summary": "Sign in with a second factor, all of it within `user`",
        "value": {"user": {**_WHO, "otp": "123456"}},
    },
}


def login_paths() -> dict[str, Any]:
    """Return the paths; each has another name below `/v1/my`."""
    return {
        **{path: {"post": _login(number)} for number, path in enumerate(LOGIN)},
        **{path: {"delete": _logout(number)} for number, path in enumerate(LOGOUT)},
    }


def _login(number: int) -> dict[str, Any]:
    asked = ref(login.Login)
    nested = {"type": "object", "properties": {"user": asked}, "required": ["user"]}
    told = {"description": "`Bearer` and the token", "schema": {"type": "string"}}
    return {
        "operationId": "my_login" if number else "login",
        "summary": "Sign in and get a JWT",
        "tags": ["service"],
        "description": "Needs no credential. The token reaches what the role of the person reaches, for twelve hours; "
        "logging out, another password or second factor, and shutting the person out end it at once. 401 "
        "`invalid_credentials`: address, password or code are not right. 401 `otp_required`: they are, and the code "
        "of the second factor is missing. After ten failures in a quarter of an hour, for an address or a client, "
        "429, even if all is right." + (" Another name of `/v1/login`." if number else ""),
        "security": [],
        "requestBody": {
            "required": True, "content": {_JSON: {"schema": {"anyOf": [asked, nested]}, "examples": _EXAMPLES}},
        },
        "responses": {
            "200": {
                "description": "Signed in", "headers": {**headers(*EVERY), "Authorization": told},
                "content": {_JSON: {"schema": ref(login.SignedIn), "examples": shown(login.SignedIn)}},
            },
            **{str(status): error(status) for status in (400, 401, 413, 415, 422, 429, 500, 503)},
        },
    }  # fmt: skip


def _logout(number: int) -> dict[str, Any]:
    return {
        "operationId": "my_logout" if number else "logout",
        "summary": "End the JWT that asks",
        "tags": ["service"],
        "description": "The token opens nothing any more. A key is revoked instead: 403."
        + (" Another name of `/v1/logout`." if number else ""),
        "security": [{"jwt": []}],
        "responses": {
            "204": {"description": "Signed out", "headers": headers(*EVERY)},
            **{str(status): error(status) for status in (401, 403, 422, 429, 500, 503)},
        },
    }


# Schemas of what is read by readers of its own: designs, filters and steps, made from their registries.
#
# A Struct names one of them by `fields.named`.

# A person's "24px", a script's 24: both are read, so both may stand there
_PLAIN = ["string", "number", "boolean", "null"]


def typed_schemas() -> dict[str, Any]:
    """Return them by name."""
    return {
        "Filter": _filter(), "Design": _design(), "DesignSection": _section(), "DesignTheme": _theme(),
        "FlowStepWrite": _step(), "FlowTriggerWrite": _trigger(),
    }  # fmt: skip


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}], "description": text}


def _filter() -> dict[str, Any]:
    known = spec.spec()
    predicates = sorted({one["predicate"] for tests in known["types"].values() for one in tests})
    names = ", ".join(one["name"] for one in known["fields"])
    return {
        "type": "object",
        "description": "A condition that a person meets or not. Filters side by side all have to hold; `group` joins "
        "them in other ways. Texts are compared without case; a negative predicate also holds for whom nothing is "
        "known. `GET /segments/spec` tells which predicates a name has.",
        "properties": {
            "name": {"type": "string", "description": f"what is looked at: {names}, or a field of Contact"},
            "predicate": {"enum": predicates, "description": "how it is compared"},
            "value": {"description": "what it is compared with, of the type that the name and the predicate ask for"},
        },
        "required": ["name", "predicate"],
        "additionalProperties": False,
    }


def _prop(prop: Prop) -> dict[str, Any]:
    words = ". ".join(filter(None, (prop.label, prop.help)))
    return {"type": _PLAIN, "description": words[:1].lower() + words[1:]}


def _design() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "An email design. It is stored and answered as it was sent.",
        "properties": {
            "sections": {
                "type": "array", "maxItems": MAX_SECTIONS, "items": _ref("DesignSection"),
                "description": "its sections, from top to bottom",
            },
            "theme": _or_null(_ref("DesignTheme"), "colours, fonts and logo; what is absent is taken from the brand"),
        },
    }  # fmt: skip


def _section() -> dict[str, Any]:
    kinds = ", ".join(kind.name for kind in sections_KINDS)
    styles = {
        "type": ["object", "null"], "properties": {one.name: _prop(one) for one in STYLES},
        "description": "what surrounds it; `props` go before these",
    }  # fmt: skip
    return {
        "type": "object",
        "description": "A section of a design.",
        "properties": {
            "id": {"type": ["string", "integer", "null"], "description": "a name of yours for it"},
            "type": {
                "type": ["string", "null"],
                "description": f"its kind: {kinds}. Where it is absent the kind follows from the names in `props`. One "
                "that nobody knows is kept, and keeps the message from being sent",
            },
            "props": {"type": ["object", "null"], "description": "its properties; `GET /templates/spec` names those of "
                      "each kind"},
            "styles": styles,
        },
    }  # fmt: skip


def _theme() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "How a design looks where its sections do not say otherwise.",
        "properties": {one.name: _prop(one) for one in THEME},
    }


# The types of the keys of a step; a kind of step that brings another one says here what it is
_STEP_KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "id": ({"type": "integer"}, "the step that this one was until now; absent: a new one"),
    "type": ({"enum": [*BY_TYPE]}, "what it does; follows from its keys where it is not said"),
    "subject": ({"type": "string", "maxLength": 998}, "of an e-mail, with merge tags"),
    "body": ({"type": "string"}, "HTML or text of an e-mail; by itself the text of an SMS"),
    "preheader": ({"type": "string", "maxLength": 255}, "the line that mailboxes show beside the subject"),
    "from_name": ({"type": "string", "maxLength": 255}, "the sender's name; absent: the account's"),
    "from_email": ({"type": "string"}, "the sender's address; absent: the account's"),
    "reply_to": ({"type": "string"}, "where answers go; absent: to the sender"),
    "design": (_ref("Design"), "the design of an e-mail"),
    "transactional": ({"type": "boolean"}, "whether it goes out without consent, footer and tracking"),
    "template_id": ({"type": "integer"}, "the template that holds its words; read-only"),
    "duration": ({"type": "integer", "minimum": 0, "maximum": MAX_SECONDS}, "seconds to wait"),
    "filters": ({"type": "array", "items": _ref("Filter")}, "which branch is taken: `yes` if all hold"),
    "yes": ({"type": "array", "items": _ref("FlowStepWrite")}, "the steps for whom the filters hold"),
    "no": ({"type": "array", "items": _ref("FlowStepWrite")}, "the steps for whom they do not"),
    "event_name": ({"type": "string"}, "an event to record, `^[a-z][a-z0-9_]{0,63}$`"),
    "event_data": ({"type": "object"}, "what that event says"),
    "forward_event_data": ({"type": "boolean"}, "whether it also says what the one said that started the run"),
    "contact_list_id": ({"type": "integer"}, "the list to join or leave, by `type`"),
    "data_merge": ({"type": "object"}, "a JSON merge patch (RFC 7396) of the person's `data`, by `type`"),
}


def _step() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A step of a flow. What it is follows from its keys, or from `type`; `GET /flows/spec` tells "
        "which keys go together. Null, empty and zero count as absent.",
        "properties": {name: _or_null(*_STEP_KEYS[name]) for name in _STEP_KEYS if name in KEYS},
        "additionalProperties": False,
    }


def _trigger() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1}
    return {
        "type": "object",
        "description": "What starts a flow, and for whom.",
        "properties": {
            "event": _or_null(
                {"type": "string", "pattern": f"^$|{EVENT_NAME}"},
                "the event that starts it; `manual`, null or empty: none is chosen yet, and it cannot go live",
            ),
            "segment_id": _or_null(number, "a segment that they have to be in; by itself: coming into it starts it"),
            "contact_list_id": _or_null(number, "the list that they join or leave"),
            "data": _or_null(
                {"type": "object"},
                "when it starts again (`frequency`), filters (`where`), `keywords`, `tag`; for `date_reached` `path`, "
                "`yearly`, `offset_days`, `at`",
            ),
        },
        "additionalProperties": False,
    }


# The schemas of the document: what the Structs declare, with words for every property.


def all_schemas(kinds: Iterable[type[Struct]]) -> dict[str, Any]:
    """Return `components.schemas`: those of some Structs, of all that they hold, and those written by hand."""
    found = reach(kinds)
    _, components = msgspec.json.schema_components(
        sorted(found, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    classes = {kind.__name__: kind for kind in found}
    schemas = {name: _described(_mend(schema), classes.get(name)) for name, schema in components.items()}
    return dict(sorted({**schemas, **typed_schemas()}.items()))


def reach(kinds: Iterable[type[Struct]]) -> set[type[Struct]]:
    """Return some Structs and every Struct within them."""
    found: set[type[Struct]] = set()
    waiting: list[Any] = list(kinds)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, Struct):
            if kind not in found:
                found.add(kind)
                waiting += [info.type for info in declared(kind)]
        else:
            waiting += [one for one in get_args(kind) if not isinstance(one, str | int | float | msgspec.Meta)]
    return found


def _mend(schema: Any) -> Any:
    """Say of moments that they are text: inside they are whole numbers, on the wire they never are."""
    if isinstance(schema, list):
        return [_mend(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    mended = {key: _mend(value) for key, value in schema.items()}
    if mended.get("format") == "date-time":
        mended["type"] = "string"
    if "$ref" in mended:
        mended.pop("type", None)
    return mended


def _allow_empty(schema: dict[str, Any]) -> None:
    """Let a pattern take an empty text, which clears as null does."""
    for part in (schema, *schema.get("anyOf", ())):
        if "pattern" in part:
            part["pattern"] = f"^$|{part['pattern']}"


def _described(schema: dict[str, Any], kind: type[Struct] | None) -> dict[str, Any]:
    """Give every property its words: those that stand at its declaration, or else those kept for its name."""
    if refused := getattr(kind, "REFUSED", {}):
        schema["description"] += f" These keys are refused (422): {validation.listed_refusals(refused)}."
    cleared = {info.encode_name for info in declared(kind) if is_cleared_by_empty(info.type)} if kind else set()
    for name, one in schema.get("properties", {}).items():
        if name in cleared:
            _allow_empty(one)
        for part in one.get("anyOf", ()):
            one |= {"default": part.pop("default")} if "default" in part else {}
        if "description" in one:
            continue
        within = [part.pop("description") for part in one.get("anyOf", ()) if "description" in part]
        said = within[0] if within else words.of_property(kind, name)
        if said is not None:
            one["description"] = said
    return schema


@cache
def document() -> bytes:
    """Return the document as YAML."""

    text: str = yaml.dump(build(), sort_keys=False, allow_unicode=True, width=120, Dumper=_dumper())
    return text.encode()


def _dumper() -> Any:

    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return type("Dumper", (base,), {"ignore_aliases": lambda self, data: True})


def build() -> dict[str, Any]:
    """Return the document as data."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(f"/v1/my{route.path}", {})[route.method.lower()] = operation(route)
    paths |= outside.paths() | login_paths()
    found = all_schemas(_kinds())
    base_url = config.base_url(config.current())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Campanero",
            "version": VERSION,
            "summary": "Email and SMS marketing, self-hosted.",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "externalDocs": {"description": "Guides, beside this reference", "url": f"{base_url}/docs"},
        "servers": [{"url": base_url}],
        "security": [{"apiKey": []}, {"jwt": []}],
        "tags": [{"name": name, "description": TAGS[name]} for name in _nouns()],
        "paths": paths,
        "webhooks": {"event": {"post": outside.told()}},
        "components": {
            "securitySchemes": _SECURITY,
            "parameters": responses.all_parameters(),
            "headers": responses.all_headers(),
            "responses": responses.all_responses(),
            "schemas": found,
            "examples": samples.Samples(found, ROUTES).all(*_answered()),
        },
    }


_SECURITY = {
    "apiKey": {
        "type": "http", "scheme": "bearer", "bearerFormat": "camp_live_... or camp_test_...",
        "description": "A key of the account, made under Settings, API keys. What a test key sends is captured and "
        "never leaves the machine.",
    },
    "jwt": {
        "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
        "description": "A token of somebody who has logged in. It is looked at where no key of that name is found.",
    },
}  # fmt: skip


def _nouns() -> list[str]:
    """Return the tags in the order of the paths."""
    return list(dict.fromkeys([*(noun(route) for route in ROUTES), "hooks", "service"]))


def _answered() -> tuple[set[str], set[str]]:
    """Return the kinds of which one is answered, and those of which lists are."""
    told = [(route.returns.__name__, route.many) for route in ROUTES if route.returns is not None]
    return {name for name, many in told if not many} | {SignedIn.__name__}, {name for name, many in told if many}


def _kinds() -> set[Any]:
    named = (kind for route in ROUTES for kind in (route.returns, route.reads, route.form))
    return {kind for kind in named if kind is not None} | {Error, Event} | KINDS
