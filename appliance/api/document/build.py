"""Puts the document together."""

from functools import cache
from typing import Any

import yaml

from appliance import VERSION, config
from appliance.api.document import outside, responses, samples, schemas, signing_in
from appliance.api.document.operations import noun, operation
from appliance.api.document.refusals import Error
from appliance.api.document.tags import INTRODUCTION, TAGS
from appliance.api.login import SignedIn
from appliance.api.routes import ROUTES
from appliance.api.shapes import Event


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
    paths |= outside.paths() | signing_in.paths()
    found = schemas.all_schemas(_kinds())
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
    return {kind for kind in named if kind is not None} | {Error, Event} | signing_in.KINDS
