"""Bulk actions on selected contacts: start, confirmation, progress, result and undo."""

from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience import bulk_actions, lists
from appliance.audience.contacts import store
from appliance.core import errors, validation
from appliance.core.i18n import format_percent, gettext, gettext_noop, ngettext
from appliance.storage.transactions import commit, fetch, scan
from ui import formats, view
from ui.forms import Form, parse_id, parse_int
from ui.guard import signed_in
from ui.pages import contacts
from ui.session import Pages, Visit
from ui.widgets.tables import Selection

pages = Pages("ui_contact_acts", url_prefix="/contacts/acts")


_SKIPPED_LABELS = {
    "in_list": gettext_noop("already in the list"),
    "left_list": gettext_noop("left the list themselves"),
    "not_in_list": gettext_noop("not in the list"),
    "tagged": gettext_noop("already tagged"),
    "untagged": gettext_noop("not tagged"),
    "too_many_tags": gettext_noop("too many tags"),
    "not_subscribed": gettext_noop("not subscribed"),
    "gone": gettext_noop("deleted meanwhile"),
}


def _count_skipped(reason: str, count: int) -> str:
    """Return the number of contacts that a bulk action skipped for a reason, such as `3 already tagged`."""
    return {
        "in_list": lambda: ngettext("%(num)s already in the list", "%(num)s already in the list", count),
        "left_list": lambda: ngettext("%(num)s who left the list", "%(num)s who left the list", count),
        "not_in_list": lambda: ngettext("%(num)s not in the list", "%(num)s not in the list", count),
        "tagged": lambda: ngettext("%(num)s already tagged", "%(num)s already tagged", count),
        "untagged": lambda: ngettext("%(num)s not tagged", "%(num)s not tagged", count),
        "too_many_tags": lambda: ngettext("%(num)s with too many tags", "%(num)s with too many tags", count),
        "not_subscribed": lambda: ngettext("%(num)s not subscribed", "%(num)s not subscribed", count),
        "gone": lambda: ngettext("%(num)s deleted meanwhile", "%(num)s deleted meanwhile", count),
    }[reason]()


def target_name(account_id: int, act: str, argument: dict[str, Any]) -> str:
    """Return the name of the list or tag that a bulk action adds or removes; empty for other actions."""
    if not act.startswith("list_"):
        return str(argument.get("tag", ""))
    try:
        return str(lists.get(account_id, argument["contact_list_id"]).name)
    except errors.NotFound:
        return gettext("Deleted list")


def progress_message(act: Any, name: str) -> str:
    """Return the progress of a running bulk action as text; `name` is its list or tag."""
    values = {"name": name, "done": formats.number(act.processed), "total": formats.number(act.contact_count)}
    message = {
        "list_add": gettext_noop("Adding contacts to “%(name)s”: %(done)s of %(total)s"),
        "list_remove": gettext_noop("Removing contacts from “%(name)s”: %(done)s of %(total)s"),
        "tag_add": gettext_noop("Adding the tag “%(name)s”: %(done)s of %(total)s contacts"),
        "tag_remove": gettext_noop("Removing the tag “%(name)s”: %(done)s of %(total)s contacts"),
        "unsubscribe": gettext_noop("Unsubscribing contacts: %(done)s of %(total)s"),
        "delete": gettext_noop("Deleting contacts: %(done)s of %(total)s"),
    }[act.action]
    return gettext(message, **values)


def progress_label(act: Any) -> str:
    """Return the progress in steps of 25%, so that screen readers do not announce every change."""
    quarters = 4 * act.processed // act.contact_count if act.contact_count else 4
    return gettext("%(percentage)s done", percentage=format_percent(quarters / 4, 0))


def result_message(act: Any, name: str) -> str:
    """Return a text with the outcome of an ended action and why contacts were skipped."""
    if act.state == "failed":
        return ngettext(
            "“%(name)s” was deleted before the action finished. %(num)s contact was changed.",
            "“%(name)s” was deleted before the action finished. %(num)s contacts were changed.",
            act.changed, name=name,
        )  # fmt: skip
    # Only the message of the action is used; each is a literal, so that the catalogues have it.
    message = {
        "list_add": lambda: ngettext(
            "%(num)s contact added to “%(name)s”.", "%(num)s contacts added to “%(name)s”.", act.changed, name=name
        ),
        "list_remove": lambda: ngettext(
            "%(num)s contact removed from “%(name)s”.",
            "%(num)s contacts removed from “%(name)s”.",
            act.changed,
            name=name,
        ),
        "tag_add": lambda: ngettext(
            "Tag “%(name)s” added to %(num)s contact.",
            "Tag “%(name)s” added to %(num)s contacts.",
            act.changed,
            name=name,
        ),
        "tag_remove": lambda: ngettext(
            "Tag “%(name)s” removed from %(num)s contact.", "Tag “%(name)s” removed from %(num)s contacts.",
            act.changed, name=name,
        ),
        "unsubscribe": lambda: ngettext(
            "%(num)s contact unsubscribed.", "%(num)s contacts unsubscribed.", act.changed
        ),
        "delete": lambda: ngettext("%(num)s contact deleted.", "%(num)s contacts deleted.", act.changed),
    }[act.action]()  # fmt: skip
    return f"{message} {_skipped_message(act.skipped)}".strip()


def _skipped_message(skipped: dict[str, int]) -> str:
    if not skipped:
        return ""
    total = sum(skipped.values())
    if len(skipped) == 1:
        reasons = gettext(_SKIPPED_LABELS[next(iter(skipped))])
    else:
        reasons = formats.join_names([_count_skipped(reason, number) for reason, number in skipped.items()])
    return ngettext("%(num)s skipped: %(reasons)s.", "%(num)s skipped: %(reasons)s.", total, reasons=reasons)


def get_confirmation_texts(act: str, number: int) -> dict[str, str]:
    """Return the texts of the page that asks to confirm an action, because it cannot be undone.

    The keys are `title`, `text` and `verb` (the button).
    """
    if act == "unsubscribe":
        return {
            "title": ngettext("Unsubscribe %(num)s contact?", "Unsubscribe %(num)s contacts?", number),
            "text": gettext(
                "They no longer receive campaigns by email or SMS. Transactional messages, such as receipts, are still "
                "sent. Contacts can subscribe again."
            ),
            "verb": ngettext("Unsubscribe %(num)s contact", "Unsubscribe %(num)s contacts", number),
        }
    return {
        "title": ngettext("Delete %(num)s contact?", "Delete %(num)s contacts?", number),
        "text": gettext(
            "They are deleted permanently, with their addresses, data and list memberships. Unsubscribes are "
            "remembered in case the addresses are added again."
        ),
        "verb": ngettext("Delete %(num)s contact", "Delete %(num)s contacts", number),
    }


# Actions that cannot be undone need a confirmation.
_CONFIRMED_ACTIONS = ("unsubscribe", "delete")
# Above this number of contacts the user must type the number to confirm.
_CONFIRM_BY_TYPING_OVER = 1000


class BulkRequest(NamedTuple):
    """A requested bulk action, its argument (a list id or a tag), and the ids of the contacts."""

    act: str
    argument: dict[str, Any]
    ids: list[int]


@pages.post("/", name="begin", strict_slashes=False)
@signed_in("contacts:write")
async def start(request: Request, visit: Visit) -> HTTPResponse:
    """Run an action on the selected contacts, after a confirmation if the action cannot be undone.

    With more than `MAX_SYNC_CONTACTS` contacts, the action runs as a job, whose progress the following pages show.
    """
    form = Form.from_request(request)
    selection = Selection.from_request(request, form)
    # An action that was started on the page of a contact returns to that page.
    at = parse_int(form["at"], 0)
    return_path = f"/contacts/{at}" if at else _table_url(selection)
    bulk_request = await _read_request(visit, form, selection)
    if not bulk_request.ids:
        view.flash(request, gettext("No contacts selected."))
        return view.redirect(request, return_path)
    if bulk_request.act in _CONFIRMED_ACTIONS and not _is_confirmed(form, len(bulk_request.ids)):
        return _render_confirmation(
            request,
            form,
            selection,
            bulk_request,
            await fetch(bulk_actions.fetch_first_contacts, visit.account_id, bulk_request.ids),
        )
    created = await commit(
        bulk_actions.start, visit.account_id, visit.user.id, *bulk_request[:2], bulk_request.ids, visit.evidence()
    )
    await run_or_follow(request, visit, created, at)
    return view.redirect(request, return_path)


@pages.get("/", name="recent", strict_slashes=False)
@signed_in("contacts:read")
async def list_recent(request: Request, visit: Visit) -> HTTPResponse:
    """Show the bulk actions since yesterday, each with its undo button."""

    def read() -> list[tuple[Any, dict[str, Any]]]:
        actions = bulk_actions.fetch_recent(visit.account_id)
        return [(job, _build_notice(job, target_name(visit.account_id, job.action, job.argument))) for job in actions]

    names = await fetch(audit.fetch_actor_names, visit.account_id)
    return view.render(request, "contacts/acts.html", rows=await fetch(read), names=names)


@pages.get("/<act_id:int>", name="progress")
@signed_in("contacts:read")
async def show_progress(request: Request, visit: Visit, act_id: int) -> HTTPResponse:
    """Show the progress of a bulk action, or its result once it has ended."""
    job = await fetch(bulk_actions.get, visit.account_id, act_id)
    name = await fetch(target_name, visit.account_id, job.action, job.argument)
    if job.state != "working":
        view.clear_flash(request)
    notice = _build_notice(job, name)
    return view.render(request, "contacts/progress.html", act=job, toast=notice, quarter=progress_label(job))


@pages.post("/<act_id:int>/undo", name="undo")
@signed_in("contacts:write")
async def undo(request: Request, visit: Visit, act_id: int) -> HTTPResponse:
    """Undo a bulk action, as a job if the action has many contacts."""
    await fetch(bulk_actions.get, visit.account_id, act_id)
    try:
        job = await commit(bulk_actions.undo, visit.account_id, act_id, visit.user.id, visit.evidence())
    except errors.Invalid:
        view.flash(request, gettext("This action was already undone."))
        return view.redirect(request, "/contacts")
    at = parse_int(Form.from_request(request)["at"], 0)
    await run_or_follow(request, visit, job, at)
    return view.redirect(request, f"/contacts/{at}" if at else _list_url(job) or "/contacts")


async def _read_request(visit: Visit, form: Form, selection: Selection) -> BulkRequest:
    # Pressing Enter in a field of a menu sends no action, so the field that is filled in decides.
    typed = "tag_add" if form["tag"] else "list_add:new" if form["new_list"] else ""
    act, _, which = (form["act"] or typed).partition(":")
    argument: dict[str, Any] = {}
    if act.startswith("tag_"):
        argument = {"tag": which or form["tag"]}
    elif act == "list_add" and which == "new":
        created = await commit(
            lists.create, visit.account_id, validation.read(lists.ListCreate, {"name": form["new_list"]})
        )
        argument = {"contact_list_id": created.id}
    elif act.startswith("list_"):
        argument = {"contact_list_id": parse_id(which)}
    if act not in bulk_actions.ACTIONS:
        raise errors.Invalid({}, message=gettext("Select an action."))
    return BulkRequest(act, argument, await scan(_selected_ids, visit.account_id, selection))


def _selected_ids(account_id: int, selection: Selection) -> list[int]:
    """Return the ids of the selected contacts, or of all contacts that match the table's filters now."""
    if not selection.is_all:
        return [id_.id for id_ in store.fetch_by_ids(selection.ids[:1000]) if id_.account_id == account_id]
    search = contacts.read_search(selection.state)
    return store.fetch_ids(account_id, search.query, search.rules)


def _is_confirmed(form: Form, count: int) -> bool:
    """Return whether the form confirms an action on this number of contacts.

    Above `_CONFIRM_BY_TYPING_OVER` the user must have typed the number.
    """
    if form["expected"] != str(count):
        return False
    typed = "".join(letter for letter in form["typed"] if letter.isdecimal())
    return count <= _CONFIRM_BY_TYPING_OVER or typed == str(count)


def _render_confirmation(
    request: Request, form: Form, selection: Selection, bulk_request: BulkRequest, first: list[Any]
) -> HTTPResponse:
    count = len(bulk_request.ids)
    status = 200
    if form["expected"]:
        status = 422
        if form["expected"] != str(count):
            form.add_error(
                "base",
                ngettext(
                    "The selection now has %(num)s contact. Check the number and confirm again.",
                    "The selection now has %(num)s contacts. Check the number and confirm again.",
                    count,
                ),
            )
        else:
            form.add_error("typed", gettext("Type %(number)s to continue.", number=formats.number(count)))
        form.values["typed"] = ""
    return view.render(
        request, "contacts/sure.html", status, form=form, fields=[("act", form["act"]), *selection.fields],
        count=count, ask=get_confirmation_texts(bulk_request.act, count),
        first=[formats.contact_name(contact) for contact in first],
        must_type=count > _CONFIRM_BY_TYPING_OVER, back=_table_url(selection),
    )  # fmt: skip


async def run_or_follow(request: Request, visit: Visit, action: Any, at: int = 0) -> None:
    """Run a small bulk action to its end and flash the result, or start a job for a large one and flash its progress.

    The notice of progress polls the job until it has ended. `at` is the id of the contact whose page the undo returns
    to, or 0.
    """
    if action.contact_count <= bulk_actions.MAX_SYNC_CONTACTS:
        while await commit(bulk_actions.run_batch, action.id):
            pass
    job = await fetch(bulk_actions.get, visit.account_id, action.id)
    name = await fetch(target_name, visit.account_id, job.action, job.argument)
    notice = _build_notice(job, name, at)
    view.flash(request, notice["text"], notice["undo"], notice["follow"])


def _build_notice(job: Any, name: str, at: int = 0) -> dict[str, Any]:
    url = f"/contacts/acts/{job.id}"
    if job.state == "working":
        return {"text": progress_message(job, name), "undo": None, "follow": url}
    undo: tuple[str, dict[str, str]] | None = (f"{url}/undo", {"at": str(at)} if at else {}) if job.can_undo else None
    return {"text": result_message(job, name), "undo": undo, "follow": ""}


def _table_url(selection: Selection) -> str:
    """Return the URL of the table in which the contacts were selected: the table of a list or of all contacts."""
    list_id = parse_id(selection.state.get("of_list"))
    if list_id:
        selection.state.pop("of_list")
        page = selection.table_url(f"/lists/{list_id}")
        selection.state["of_list"] = str(list_id)
        return page
    return selection.table_url("/contacts")


def _list_url(job: Any) -> str:
    return f"/lists/{job.argument['contact_list_id']}" if job.action.startswith("list_") else ""
