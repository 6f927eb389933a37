"""What can be done with a template besides writing it: its design as a file, its history, a test of it."""

import re
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.content.templates import history, homes, revisions, store
from appliance.content.templates.requests import DESIGN_BYTES, TemplateWrite
from appliance.core import errors, fields
from appliance.core.fields import PageQuery
from appliance.sending.messages import send_test
from appliance.storage.work import call, commit, render
from ui import people, unfinished, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.pages import editor
from ui.pages.editor import page_of
from ui.pages.templates import FIELDS, changed_since, is_edited, page
from ui.session import Pages, Visit

pages = Pages("ui_template_acts", url_prefix="/templates")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_FAULTS = 5


@pages.get("/<template_id:int>/design.json", name="download")
@signed_in
async def download(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """The design as a file, as it is stored."""
    row = await call(store.get, visit.account_id, template_id)
    name = _UNSAFE.sub("-", row.name or "template").strip("-.")[:60] or "template"
    headers = {"content-disposition": f'attachment; filename="{name}.json"'}
    content = msgspec.json.format(msgspec.json.encode(row.design), indent=2)
    return HTTPResponse(content, 200, headers, "application/json")


@pages.post("/<template_id:int>/design", name="upload")
@signed_in
async def upload(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Take a design from a file; everything that is wrong with it is said, and if somebody else was first."""
    seen = number(Form.of(request)["revision"], 0) or None
    row = await call(store.get, visit.account_id, template_id)
    try:
        asked = fields.read(TemplateWrite, {"design": _design(request)})
        await render(store.warm, visit.account_id, asked, template_id)
        await commit(store.update, visit.account_id, template_id, asked, visit.user.id, seen)
    except errors.Invalid as refused:
        form = _form(row)
        told = [f"{path} {messages[0]}" for path, messages in refused.fields.items()]
        more = f" and {len(told) - _MAX_FAULTS} more" if len(told) > _MAX_FAULTS else ""
        form.wrong("file", f"This file cannot be used: {'; '.join(told[:_MAX_FAULTS])}{more}.")
        return await _refused(request, visit, row, form)
    except errors.Conflict as refused:
        row = await call(store.get, visit.account_id, template_id)
        form = _form(row)
        form.wrong("file", f"{changed_since(refused)} Look at it; choose the file again to put it in its place.")
        return await _refused(request, visit, row, form)
    view.say(request, "The design of the file is in place. The one before is in the history.")
    return view.go(request, page_of(await call(homes.of, row)))


async def _refused(request: Request, visit: Visit, row: Any, form: Form) -> HTTPResponse:
    """Show what is wrong with a file, where it was chosen."""
    if is_edited(row):
        return await editor.show(request, visit, row, 422, file=form.errors["file"])
    return await page(request, row, form, 422)


def _design(request: Request) -> Any:
    given = request.files.get("file") if request.files else None
    if given is None or not given.body:
        raise errors.Invalid({"the file": ["is empty"]})
    if len(given.body) > 2 * DESIGN_BYTES:
        raise errors.Invalid({"the file": ["is too large"]})
    try:
        found = msgspec.json.decode(given.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise errors.Invalid({"the file": ["is not JSON"]}) from None
    if fields.is_too_deep(found):
        raise errors.Invalid({"the file": ["is nested too deeply"]})
    # What `GET /templates` answers holds a design too
    inner = found.get("design") if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise errors.Invalid({"the file": ["holds no design"]})
    return inner if isinstance(inner, dict) else found


@pages.post("/<template_id:int>/test", name="test")
@signed_in
async def test(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Send a test to some addresses, by default to whoever asks for it."""
    typed = Form.of(request)
    row = await call(store.get, visit.account_id, template_id)
    is_sms = row.channel == "sms"
    edits = is_edited(row)
    # Numbers have spaces in them
    given = re.split(r"[,;\n]+" if is_sms else r"[\s,;]+", typed["emails"])
    emails = [one.strip() for one in given if one.strip()] or ([] if is_sms else [visit.user.email])
    to = [people.written_phone(visit, one) for one in emails] if is_sms else emails
    try:
        asked = fields.read(send_test.TestRequest, {"phones" if is_sms else "emails": to})
        await render(send_test.warm, visit.account_id, template_id)
        told = await commit(send_test.send, visit.account_id, template_id, asked)
    except errors.Invalid as refused:
        form = _form(row)
        form.values["emails"] = typed["emails"]
        form.wrong("emails", _why(refused, emails))
        if edits:
            return await editor.told(request, visit, row, {"emails": form.errors["emails"]})
        return await page(request, row, form, 422)
    if edits:
        return await editor.answer(request, visit, template_id, None, (), notice={"text": _sent(told), "undo": None})
    view.say(request, _sent(told))
    return view.go(request, f"/templates/{template_id}/edit")


def _why(refused: errors.Invalid, emails: list[str]) -> str:
    if {"emails", "phones"} & refused.fields.keys():
        return f"Write at most {send_test.MAX_RECIPIENTS} addresses."
    paths = (re.match(r"(?:emails|phones)\[(\d+)\]", path) for path in refused.fields)
    wrong = [emails[int(found[1])] for found in paths if found]
    if wrong:
        return f"{words.listed(wrong)} {'is no address' if len(wrong) == 1 else 'are no addresses'}."
    return words.sentence(next(iter(refused.fields.values()))[0])


def _sent(told: send_test.TestsSent) -> str:
    good = [one.to for one in told.results if one.success]
    bad = [one.to for one in told.results if not one.success]
    parts = [f"A test is on its way to {words.listed(good)}."] if good else []
    parts += [f"{words.listed(bad)} may not be written to."] if bad else []
    return " ".join(parts) + unfinished.after_test(told.warnings)


@pages.get("/<template_id:int>/history", name="history")
@signed_in
async def show_history(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Every kept revision with who made it, and the one that is chosen as it looked."""
    asked = number(request.args.get("at"), 0)

    def read() -> dict[str, Any]:
        row = store.get(visit.account_id, template_id)
        query = PageQuery(page=number(request.args.get("page")), limit=30)
        at = revisions.get(visit.account_id, template_id, asked or row.revision)
        found = revisions.page(visit.account_id, template_id, query)
        home = homes.of(row)
        may_write = visit.user.role != "viewer" and not home.is_locked
        return {"row": row, "found": found, "at": at, "reach": history.reach(row), "title": home.name,
                "back": page_of(home), "may_write": may_write}  # fmt: skip

    return view.page(request, "templates/history.html", **await call(read))


@pages.post("/<template_id:int>/label", name="label")
@signed_in
async def label(request: Request, visit: Visit, template_id: int) -> HTTPResponse:
    """Name a revision, which keeps it for good."""
    form = Form.of(request)
    at = number(form["at"], 0)
    await commit(revisions.name, visit.account_id, template_id, at, form.text("label"))
    return view.go(request, f"/templates/{template_id}/history?at={at}")


def _form(row: Any) -> Form:
    return Form({name: getattr(row, name) or "" for name in FIELDS} | {"revision": str(row.revision)})
