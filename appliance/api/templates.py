"""Templates over the API."""

from msgspec import Struct

from appliance.accounts import audit
from appliance.api import shapes, shaping
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.campaigns import template_access
from appliance.content import brand as brands
from appliance.content.designs import merge, spec
from appliance.content.templates import starters, store
from appliance.content.templates.requests import TemplateCreate, TemplateQuery, TemplateWrite
from appliance.sending.messages import sample_render
from appliance.sending.messages import send_test as test_sends
from appliance.sending.messages.sample_render import Preview, PreviewRequest
from appliance.sending.messages.send_test import TestRequest, TestsSent
from appliance.storage.work import call, commit, render

ROUTES = Routes()


@ROUTES.add("GET", "/templates", scope="templates:read", query=TemplateQuery, returns=shapes.Template, many=True)
async def index(request: Call) -> Answer:
    """List templates, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([shaping.template(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/templates", scope="templates:write", reads=TemplateCreate, returns=shapes.Template, status=201,
    inside=checked(store.look_over, parses=True),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a template."""
    await render(store.warm, request.account_id, request.body)
    return Answer(shaping.template(await commit(store.create, request.account_id, request.body)))


class StarterShape(Struct):
    """A design to begin from, made of the account's brand."""

    name: str
    label: str
    description: str
    subject: str
    preheader: str
    design: shapes.Design


class TemplateSpec(Struct):
    """What designs may be made of, what the merge language knows, and designs to begin from."""

    kinds: list[shapes.Json]
    theme: list[shapes.Json]
    common: list[shapes.Json]
    styles: list[shapes.Json]
    colours: list[str]
    limits: shapes.Json
    merge: dict[str, list[str]]
    starters: list[StarterShape]


@ROUTES.add("GET", "/templates/spec", scope="templates:read", returns=TemplateSpec)
async def describe(request: Call) -> Answer:
    """Get the kinds of sections with their properties and defaults, and designs to begin from."""

    def read() -> TemplateSpec:
        look = brands.look(brands.get(request.account_id))
        begin = [StarterShape(*one) for one in starters.made(look)]
        tags = [one for one in merge.TAGS if one not in ("output", "content", "illegal")]
        said = {"tags": tags, "filters": [*merge.FILTERS], "roots": [*merge.ROOTS]}
        return TemplateSpec(**spec.spec(), merge=said, starters=begin)

    return Answer(await call(read))


@ROUTES.add("GET", "/templates/{id}", scope="templates:read", returns=shapes.Template)
async def show(request: Call) -> Answer:
    """Get a template."""
    return Answer(shaping.template(await call(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH", "/templates/{id}", scope="templates:write", reads=TemplateWrite, returns=shapes.Template,
    inside=checked(store.look_over, parses=True),
)  # fmt: skip
async def update(request: Call) -> Answer:
    """Update a template."""
    await render(store.warm, request.account_id, request.body, request.id)
    done = await commit(template_access.update, request.account_id, request.id, request.body, request.by)
    return Answer(shaping.template(done))


@ROUTES.add("DELETE", "/templates/{id}", scope="templates:write", returns=shapes.Template)
async def delete(request: Call) -> Answer:
    """Delete a stand-alone template."""
    args = (request.account_id, request.id)
    gone = await commit(audit.noting, request.by, "template_delete", store.delete, *args)
    return Answer(shaping.template(gone))


@ROUTES.add(
    "POST", "/templates/preview", scope="templates:read", reads=PreviewRequest, returns=Preview, rate="renders",
    inside=checked(sample_render.check, parses=True),
)  # fmt: skip
async def preview(request: Call) -> Answer:
    """Render an email design to HTML, for a contact or with invented values."""
    return Answer(await render(sample_render.preview, request.account_id, request.body))


@ROUTES.add(
    "POST", "/templates/{id}/send_test", scope="templates:write", reads=TestRequest, body_required=False,
    returns=TestsSent, rate="sends", inside=checked(test_sends.check, parses=True),
)  # fmt: skip
async def send_test(request: Call) -> Answer:
    """Send a test email of a template."""
    await render(test_sends.warm, request.account_id, request.id)
    return Answer(await commit(test_sends.send, request.account_id, request.id, request.body, request.credential.test))
