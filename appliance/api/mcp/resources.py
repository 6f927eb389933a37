"""The resources that assistants can read: guides of the product, and specifications of filters, designs and flows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from sanic import Request

from appliance.accounts.access import Credential
from appliance.api.in_process import ApiCall, call_api
from appliance.api.mcp import output
from appliance.api.mcp.protocol import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError
from appliance.api.mcp.tools.base import find_denial, get_route
from appliance.core.hidden_characters import clean_text

Json = dict[str, Any]

_GUIDE, _SPEC = "campanero://guide/", "campanero://spec/"
_MAX_QUOTED_CHARACTERS = 200


class GuideText(NamedTuple):
    """A guide as assistants read it: its name, title, introduction, and a function that returns its Markdown."""

    name: str
    title: str
    lead: str
    read: Callable[[], str]


Guides = Sequence[GuideText]


class Spec(NamedTuple):
    """A specification that the API returns."""

    name: str
    title: str
    description: str
    path: str

    def is_readable(self, credential: Credential) -> bool:
        """Return whether a credential may read it."""
        return find_denial(credential, get_route(f"GET {self.path}")) is None


SPECS = (
    Spec(
        "filters",
        "Conditions of segments",
        "The fields that contacts can be selected by, and the predicates of each type.",
        "/segments/spec",
    ),
    Spec(
        "designs",
        "Email designs",
        "The sections of email designs with their properties, merge tags, and ready-made emails.",
        "/templates/spec",
    ),
    Spec("flows", "Flows", "The steps of flows, triggers and known events.", "/flows/spec"),
)
TEMPLATES: list[Json] = [
    {
        "uriTemplate": f"{_GUIDE}{{name}}",
        "name": "guide",
        "title": "Guide",
        "description": "A guide of Campanero by its name, in Markdown.",
        "mimeType": "text/markdown",
    }
]


def list_resources(credential: Credential, guides: Guides) -> list[Json]:
    """Return the resources that a credential may read."""
    specs = [
        {
            "uri": f"{_SPEC}{spec.name}",
            "name": f"spec-{spec.name}",
            "title": spec.title,
            "description": spec.description,
            "mimeType": "application/json",
        }
        for spec in SPECS
        if spec.is_readable(credential)
    ]
    return specs + [
        {
            "uri": f"{_GUIDE}{guide.name}",
            "name": f"guide-{guide.name}",
            "title": guide.title,
            "description": guide.lead,
            "mimeType": "text/markdown",
        }
        for guide in guides
    ]


async def read_resource(
    request: Request, credential: Credential, guides: Guides, uri: str, is_masked: bool
) -> Json | None:
    """Return the contents of a resource, or None for an unknown one or one that the credential may not read.

    Raises RpcError if the API cannot return a specification now.
    """
    guide = next((guide for guide in guides if uri == f"{_GUIDE}{guide.name}"), None)
    if guide is not None:
        return {"uri": uri, "mimeType": "text/markdown", "text": guide.read()}
    spec = next((spec for spec in SPECS if uri == f"{_SPEC}{spec.name}"), None)
    if spec is None or not spec.is_readable(credential):
        return None
    reply = await call_api(request, credential, ApiCall("GET", spec.path))
    if reply.is_error:
        message = reply.value.get("message", "") if isinstance(reply.value, dict) else ""
        raise RpcError(reply.status, f"The specification cannot be read now: {message}", status=reply.status)
    text = msgspec.json.encode(output.clean(reply.value)).decode()
    if is_masked:
        text = output.Masker().mask_text(text)
    return {"uri": uri, "mimeType": "application/json", "text": text}


def not_found(uri: str, is_current: bool) -> RpcError:
    """Return the error for an unknown resource, whose code changed with the revision 2026-07-28."""
    code = INVALID_PARAMS if is_current else RESOURCE_NOT_FOUND
    return RpcError(code, "Resource not found", {"uri": clean_text(uri)[:_MAX_QUOTED_CHARACTERS]})
