"""People: the table, one person, adding and changing."""

from typing import Any

from markupsafe import Markup
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import erase, lists, requests, store, write
from appliance.audience.contacts.consent import Evidence
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import countries, crowds, own_data, people, rights, tables, together, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.together import Part

pages = Pages("ui_contacts", url_prefix="/contacts")
_PLAIN = ("first_name", "last_name", "country_code")
PARTS = own_data.Parts(
    Part("First name", ("first_name",)), Part("Last name", ("last_name",)), Part("Email", ("email",)),
    Part("Phone", ("phone",)), Part("Country", ("country_code",)), Part("Lists", ("list_ids",), True),
)  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The table, searched as one types."""
    table = tables.Table(
        request, "/contacts", ("person", "people"), crowds.COLUMNS, "-updated", crowds.FILTERS
    )  # fmt: skip
    table.acts = "/contacts/acts" if rights.may(visit.user.role, "POST", "/contacts/acts") else ""
    found = await call(crowds.fill, visit.account_id, table)
    return tables.answer(request, "contacts/index.html", table, lists=found)


@pages.get("/new", name="new")
@signed_in
async def new(request: Request, visit: Visit) -> HTTPResponse:
    """An empty form; a list it was opened from is chosen already."""
    search = (request.args.get("like") or "").strip()
    form = Form({"email" if "@" in search else "first_name": search})
    form.lists["list_ids"] = request.args.getlist("list") or []
    return await _form(request, visit, form, None, 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Add a person; who has the address already is named."""
    form = Form.of(request)
    if form["more"] or form["drop"]:
        return await _form(request, visit, form, None, 200)
    raw = _raw(form)
    raw["data"] = own_data.read(form, own_data.posted(form)) or None
    _complete_phone(visit, form)
    raw["email"], raw["phone"], raw["opt_in"] = form.text("email"), form.text("phone"), form["opt_in"] == "yes"
    if form["opt_in"] == "yes" and (form["email"] or form["phone"]):
        form.need("agreed", "Say how they agreed. It is kept as evidence of consent.")
    if not (form["email"] or form["phone"] or form["first_name"] or form["last_name"]):
        form.wrong("email", "Write an address, or at least a name.")
    if form.errors:
        return await _form(request, visit, form, None, 422)
    try:
        asked = fields.read(requests.ContactWrite, {name: value for name, value in raw.items() if value is not None})
        evidence = people.evidence(visit)
        evidence.text = form["agreed"][:1000] or None
        done = await commit(_add, visit.account_id, asked, evidence, form["new_list"])
    except errors.Invalid as refused:
        form = await _taken(visit, form, refused, {"name": "new_list"})
        return await _form(request, visit, form, None, 422)
    view.say(request, _told(done, form["opt_in"] == "yes"))
    return view.go(request, f"/contacts/{done.contact.id}")


def _told(done: write.Upserted, wanted: bool) -> str:
    """Return what became of a contact that was added, and whether it may be written to."""
    who = words.name(done.contact)
    first = f"{who} was added"
    if not done.contact.channels:
        return f"{first}."
    if any(channel.subscribed for channel in done.contact.channels):
        return f"{first}, subscribed." if wanted else f"{first}."
    return f"{first}, not subscribed: campaigns skip them."


def _add(account_id: int, asked: requests.ContactWrite, evidence: Evidence, new_list: str) -> write.Upserted:
    """Add a person, to a list that is made for them too if it has a name; all or nothing.

    Raises Invalid, also where somebody has one of the addresses: nobody is laid over a contact whom they do not see.
    """
    given = {kind: getattr(asked, kind) for kind in ("email", "phone")}
    taken = [kind for kind, text in given.items() if isinstance(text, str) and _has_owner(account_id, kind, text)]
    if taken:
        raise errors.Invalid({kind: ["has already been taken"] for kind in taken})
    if new_list:
        made = lists.create(account_id, fields.read(lists.ListCreate, {"name": new_list}))
        asked.list_ids = [*(asked.list_ids or []), made.id]
    return write.upsert(account_id, asked, evidence)


def _has_owner(account_id: int, kind: str, text: str) -> bool:
    try:
        return people.owner(account_id, kind, text) is not None
    except ValueError:
        return False  # what is no address is told by whoever adds it


@pages.get("/<contact_id:int>/edit", name="edit")
@signed_in
async def edit(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """The form with what is known."""
    contact = await call(store.get, visit.account_id, contact_id)
    form = _kept(contact, await call(people.all_lists, visit.account_id))
    return await _form(request, visit, together.opened(form, PARTS), contact, 200)


@pages.post("/<contact_id:int>", name="update")
@signed_in
@together.meeting
async def update(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Keep what was changed; a changed address is the same channel under another address."""
    form = Form.of(request)
    contact = await call(store.get, visit.account_id, contact_id)
    if form["more"] or form["drop"]:
        return await _form(request, visit, form, contact, 200)
    offered = await call(people.all_lists, visit.account_id)
    together.meet(form, PARTS, _kept(contact, offered), {"Lists": {str(one.id): one.name for one in offered}})
    if form.met:
        return await _form(request, visit, form, contact, 409)
    if form["phone"] not in [channel.value for channel in contact.channels]:
        _complete_phone(visit, form)
    changed = _channels(contact, form)
    raw = {**_raw(form), "channels_attributes": [asked for _, asked in changed]}
    # Of many lists some are not offered here: those stay
    raw["list_ids"] += await call(_beyond, contact, offered)
    # A form that does not show the data leaves it as it is; what came meanwhile under other names stays
    if "data_shown" in form.values:
        shown = set(form["data_shown"].split("\n"))
        kept = {key: value for key, value in contact.data.items() if key not in shown or key == "tags"}
        raw["data"] = kept | own_data.read(form, own_data.posted(form))
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = fields.read(requests.ContactPatch, raw)
        args = (write.update, visit.account_id, contact_id, asked, people.evidence(visit))
        await commit(together.still, form, PARTS, lambda: _kept(store.get(*args[1:3]), offered), *args)
    except errors.Invalid as refused:
        at = {f"channels_attributes[{index}].value": kind for index, (kind, _) in enumerate(changed)}
        return await _form(request, visit, await _taken(visit, form, refused, at), contact, 422)
    view.say(request, "Saved.")
    return view.go(request, f"/contacts/{contact_id}")


@pages.get("/<contact_id:int>/delete", name="sure")
@signed_in
async def sure(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """The question before a person is deleted."""
    contact = await call(store.get, visit.account_id, contact_id)
    return view.page(request, "contacts/delete.html", contact=contact)


@pages.post("/<contact_id:int>/delete", name="delete")
@signed_in
async def delete(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Delete a person for good; an opt-out of theirs stays as a mark that cannot be read."""
    gone = await commit(audit.noting, visit.by, "contact_delete", write.delete, visit.account_id, contact_id)
    view.say(request, f"{words.name(gone)} is deleted.")
    return view.go(request, "/contacts")


@pages.post("/<contact_id:int>/erase", name="erase")
@signed_in
async def erase_person(request: Request, visit: Visit, contact_id: int) -> HTTPResponse:
    """Erase a person with every trace; what stays is that their addresses are never written to again."""
    contact = await call(store.get, visit.account_id, contact_id)
    args = (erase.erase, visit.account_id, contact_id, people.evidence(visit))
    await commit(audit.noting, visit.by, "contact_erase", *args)
    view.say(request, f"{words.name(contact)} is erased.")
    return view.go(request, "/contacts")


def _kept(contact: Any, offered: list[Any]) -> Form:
    """Return the form that shows what is kept of a person; a list that its segment fills is no choice."""
    form = Form({name: getattr(contact, name) or "" for name in _PLAIN} | {"email": "", "phone": ""})
    for kind in ("email", "phone"):
        form.values[kind] = next((channel.value for channel in contact.channels if channel.kind == kind), "")
    choices = {one.id for one in offered if one.segment_id is None}
    form.lists["list_ids"] = [str(one) for one in contact.list_ids if one in choices]
    for row in own_data.rows(contact.data):
        for name, value in zip(own_data.NAMES, row, strict=True):
            form.lists.setdefault(name, []).append(value)
    return form


def _beyond(contact: Any, offered: list[Any]) -> list[int]:
    """Return the lists of a person that a form has no room for."""
    rest = set(contact.list_ids) - {one.id for one in offered}
    return [one for one in rest if lists.get(contact.account_id, one).segment_id is None]


def _complete_phone(visit: Visit, form: Form) -> None:
    """Write the phone number of a form in E.164 by the country of the account, where it can be read."""
    form.values["phone"] = people.written_phone(visit, form["phone"])


def _raw(form: Form) -> dict[str, Any]:
    raw: dict[str, Any] = {name: form.text(name) for name in _PLAIN}
    return {**raw, "list_ids": form.ids("list_ids")}


def _channels(contact: Any, form: Form) -> list[tuple[str, dict[str, Any]]]:
    """Return what the form says about the first address and the first number, by kind, in the words of the domain."""
    wanted: list[tuple[str, dict[str, Any]]] = []
    for kind in ("email", "phone"):
        have = next((channel for channel in contact.channels if channel.kind == kind), None)
        if have and not form[kind]:
            wanted.append((kind, {"id": have.id, "_destroy": True}))
        elif have and form[kind] != have.value:
            wanted.append((kind, {"id": have.id, "value": form[kind]}))
        elif not have and form[kind]:
            # An address that a colleague adds has agreed to nothing yet; its page subscribes it
            wanted.append((kind, {"value": form[kind], "kind": kind, "subscribed": False}))
    return wanted


async def _form(request: Request, visit: Visit, form: Form, contact: Any, status: int) -> HTTPResponse:
    found = await call(people.all_lists, visit.account_id)
    data = own_data.posted(form) + ([own_data.Row("", "text", "")] if form["more"] else [])
    shown = "\n".join(key for key in contact.data if key != "tags") if contact else ""
    shown = form.values.get("data_shown", shown)
    return view.page(
        request, "contacts/form.html", status, form=form, contact=contact, lists=found, data=data, shown=shown,
        kinds=own_data.KINDS, country=dict(countries.names()).get(visit.account.country_code or ""),
        countries=countries.choices("None", form["country_code"]),
    )  # fmt: skip


async def _taken(visit: Visit, form: Form, refused: errors.Invalid, names: dict[str, str]) -> Form:
    """Note the faults of the domain, and whose an address is already; none where the form found some itself."""
    for path, messages in refused.fields.items():
        kind = names.get(path, path)
        if kind == "phone" and messages[0] == "is invalid" and (fault := people.phone_fault(visit, form["phone"])):
            form.wrong(kind, fault)
        if kind not in ("email", "phone") or messages[0] != "has already been taken":
            continue
        if owner := await call(people.owner, visit.account_id, kind, form[kind]):
            text = Markup('This {} already belongs to {}. <a href="/contacts/{}">Open</a>')
            form.wrong(kind, text.format("address" if kind == "email" else "number", words.name(owner), owner.id))
    return form.take(refused, names) if refused.fields else form
