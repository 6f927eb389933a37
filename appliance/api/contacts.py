"""Contacts over the API."""

from appliance.account import audit
from appliance.api import contact_shapes, dossier, shapes, shaping
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.api.reply import page_headers
from appliance.contacts import erase, merge, store, timeline, write
from appliance.contacts.consent import Evidence
from appliance.contacts.requests import (
    ContactPatch,
    ContactQuery,
    ContactWrite,
    DeleteQuery,
    MergeWrite,
    SearchQuery,
)
from appliance.db.work import call, commit, glance
from appliance.fields import PageQuery

ROUTES = Routes()


def evidence(request: Call) -> Evidence:
    """Return how a write over the API came about, with the words that it says somebody agreed to."""
    words = getattr(request.body, "consent_source", None)
    return Evidence(
        source="api", actor=request.actor, ip=request.request.ctx.client,
        user_agent=request.request.headers.get("user-agent"),
        text=(words.strip() or None) if isinstance(words, str) else None, test=request.credential.test,
    )  # fmt: skip


@ROUTES.add("GET", "/contacts", scope="contacts:read", query=ContactQuery, returns=shapes.Contact, many=True)
async def index(request: Call) -> Answer:
    """List contacts, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([shaping.contact(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/contacts/search", scope="contacts:read", query=SearchQuery, returns=shapes.Contact, many=True)
async def search(request: Call) -> Answer:
    """Search contacts, best match first."""
    query: SearchQuery = request.query
    page = await call(store.find, request.account_id, query.q, query.page, query.size())
    return Answer([shaping.contact(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/contacts", scope="contacts:write", reads=ContactWrite, inside=checked(write.check),
    returns=shapes.ContactWritten, status=201,
    also=(200,),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a contact, or update the one who has the address (then 200)."""
    made = await commit(write.upsert, request.account_id, request.body, evidence(request))
    return Answer(shaping.contact_written(made.contact, made.kept_opt_out), 201 if made.created else 200)


@ROUTES.add("GET", "/contacts/{id}", scope="contacts:read", returns=shapes.Contact)
async def show(request: Call) -> Answer:
    """Get a contact."""
    # What programs ask for most, a handful of rows by their keys: half of all that it cost was to hand it over
    return Answer(shaping.contact(glance(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH",
    "/contacts/{id}",
    scope="contacts:write",
    reads=ContactPatch,
    inside=checked(write.check),
    returns=shapes.ContactWritten,
)
async def update(request: Call) -> Answer:
    """Update a contact."""
    done = await commit(write.update, request.account_id, request.id, request.body, evidence(request))
    return Answer(shaping.contact_written(done.contact, done.kept_opt_out))


@ROUTES.add("DELETE", "/contacts/{id}", scope="contacts:write", query=DeleteQuery, returns=shapes.Contact)
async def delete(request: Call) -> Answer:
    """Delete a contact for good; with `erase` every trace of the person too. Opt-outs stay behind as hashes."""
    if request.query.erase:
        told = (request.by, "contact_erase", erase.erase)
        gone = await commit(audit.noting, *told, request.account_id, request.id, evidence(request))
    else:
        gone = await commit(audit.noting, request.by, "contact_delete", write.delete, request.account_id, request.id)
    return Answer(shaping.contact(gone))


@ROUTES.add(
    "GET", "/contacts/{id}/timeline", scope="contacts:read", query=PageQuery, returns=contact_shapes.TimelineEntry,
    many=True,
)  # fmt: skip
async def history(request: Call) -> Answer:
    """List what happened to a contact: events and messages, newest first."""
    page = await call(timeline.page, request.account_id, request.id, request.query.page, request.query.size())
    return Answer(await call(dossier.entries, page.rows), headers=page_headers(page))


@ROUTES.add(
    "GET", "/contacts/{id}/consents", scope="contacts:read", query=PageQuery, returns=contact_shapes.ConsentRow,
    many=True,
)  # fmt: skip
async def consents(request: Call) -> Answer:
    """List the evidence of a contact's consent, newest first."""
    page = await call(timeline.consents, request.account_id, request.id, request.query.page, request.query.size())
    return Answer([contact_shapes.consent(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/contacts/{id}/export", scope="contacts:read", returns=contact_shapes.ContactExport)
async def export(request: Call) -> Answer:
    """Get everything that is kept about a person, as one document."""
    name = f'attachment; filename="contact-{request.id}.json"'
    found = await call(dossier.of, request.account_id, request.id)
    await audit.exported(request.by, request.account_id, f"contact-{request.id}.json", (), 1)
    return Answer(found, headers={"Content-Disposition": name})


def _other(account_id: int, request: MergeWrite, number: int) -> None:
    if isinstance(request.contact_id, int):
        merge.two(account_id, number, request.contact_id)


@ROUTES.add(
    "POST", "/contacts/{id}/merge", scope="contacts:write", reads=MergeWrite, returns=shapes.Contact,
    inside=checked(_other),
)  # fmt: skip
async def merge_in(request: Call) -> Answer:
    """Merge another contact into this one; where they differ about consent the stricter one counts."""
    other: MergeWrite = request.body
    told = (request.account_id, request.id, other.contact_id, evidence(request))
    gone = {"merged_contact_id": other.contact_id}
    one = await commit(audit.noting, request.by, "contact_merge", merge.merge, *told, data=gone)
    return Answer(shaping.contact(one))
