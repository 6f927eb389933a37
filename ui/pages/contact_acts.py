"""What is done with chosen people of a table: some that were ticked, or all that match its filters."""

from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.audience.contacts import bulk_actions, lists, store
from appliance.core import errors, fields
from appliance.storage.work import call, commit
from ui import acts, crowds, people, view, words
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Pages, Visit
from ui.tables import Selection

pages = Pages("ui_contact_acts", url_prefix="/contacts/acts")
# What cannot be undone is asked about first
_ASKED = ("unsubscribe", "delete")
# Over so many the number is to be typed
_TYPED_OVER = 1000


class Wish(NamedTuple):
    """What a form asks for: an act, what it needs, and for whom."""

    act: str
    argument: dict[str, Any]
    ids: list[int]


@pages.post("/", name="begin", strict_slashes=False)
@signed_in
async def begin(request: Request, visit: Visit) -> HTTPResponse:
    """Do something with the chosen people; many of them as a job that the next pages tell of."""
    form = Form.of(request)
    chosen = Selection.of(request, form)
    # Who is on somebody's page comes back to it
    at = number(form["at"], 0)
    back = f"/contacts/{at}" if at else _back(chosen)
    wish = await _wish(visit, form, chosen)
    if not wish.ids:
        view.say(request, "Nobody was chosen.")
        return view.go(request, back)
    if wish.act in _ASKED and not _is_sure(form, len(wish.ids)):
        return _ask(request, form, chosen, wish, await call(bulk_actions.first, visit.account_id, wish.ids))
    made = await commit(
        bulk_actions.begin, visit.account_id, visit.user.id, *wish[:2], wish.ids, people.evidence(visit)
    )
    await go_on(request, visit, made, at)
    return view.go(request, back)


@pages.get("/", name="recent", strict_slashes=False)
@signed_in
async def recent(request: Request, visit: Visit) -> HTTPResponse:
    """What was done with many people since yesterday, with its way back; also when its message is gone."""

    def read() -> list[tuple[Any, dict[str, Any]]]:
        found = bulk_actions.recent(visit.account_id)
        return [(one, _told(one, acts.name_of(visit.account_id, one.act, one.argument))) for one in found]

    names = await call(audit.names, visit.account_id)
    return view.page(request, "contacts/acts.html", rows=await call(read), names=names)


@pages.get("/<act_id:int>", name="progress")
@signed_in
async def progress(request: Request, visit: Visit, act_id: int) -> HTTPResponse:
    """How far an act is, as the message that asks for it; at its end what became of it."""
    found = await call(bulk_actions.get, visit.account_id, act_id)
    name = await call(acts.name_of, visit.account_id, found.act, found.argument)
    if found.state != "working":
        view.hush(request)
    told = _told(found, name)
    return view.page(request, "contacts/progress.html", act=found, toast=told, quarter=acts.quarter(found))


@pages.post("/<act_id:int>/undo", name="undo")
@signed_in
async def undo(request: Request, visit: Visit, act_id: int) -> HTTPResponse:
    """Take back what an act changed."""
    await call(bulk_actions.get, visit.account_id, act_id)
    try:
        made = await commit(bulk_actions.undo, visit.account_id, act_id, visit.user.id, people.evidence(visit))
    except errors.Invalid:
        view.say(request, "This was undone already.")
        return view.go(request, "/contacts")
    at = number(Form.of(request)["at"], 0)
    await go_on(request, visit, made, at)
    return view.go(request, f"/contacts/{at}" if at else _list_of(made) or "/contacts")


async def _wish(visit: Visit, form: Form, chosen: Selection) -> Wish:
    # Enter in a field of the menus names no act: what was typed says which is meant
    typed = "tag_add" if form["tag"] else "list_add:new" if form["new_list"] else ""
    act, _, which = (form["act"] or typed).partition(":")
    argument: dict[str, Any] = {}
    if act.startswith("tag_"):
        argument = {"tag": which or form["tag"]}
    elif act == "list_add" and which == "new":
        made = await commit(lists.create, visit.account_id, fields.read(lists.ListCreate, {"name": form["new_list"]}))
        argument = {"contact_list_id": made.id}
    elif act.startswith("list_"):
        argument = {"contact_list_id": number(which, 0)}
    if act not in bulk_actions.ACTS:
        raise errors.Invalid({}, message="Choose what to do with them.")
    return Wish(act, argument, await call(_chosen, visit.account_id, chosen))


def _chosen(account_id: int, chosen: Selection) -> list[int]:
    """Return who is meant: by the filter, as it is now, or by their ids."""
    if not chosen.is_all:
        return [one.id for one in store.by_ids(chosen.ids[:1000]) if one.account_id == account_id]
    asks = crowds.asked(chosen.state)
    return store.all_ids(account_id, asks.query, asks.rules)


def _is_sure(form: Form, count: int) -> bool:
    """Return whether the question was answered for this many people; over a thousand the number is typed."""
    if form["expected"] != str(count):
        return False
    typed = "".join(letter for letter in form["typed"] if letter.isdecimal())
    return count <= _TYPED_OVER or typed == str(count)


def _ask(request: Request, form: Form, chosen: Selection, wish: Wish, first: list[Any]) -> HTTPResponse:
    count = len(wish.ids)
    status = 200
    if form["expected"]:
        status = 422
        if form["expected"] != str(count):
            form.wrong("base", f"It is {words.people(count)} now.")
        else:
            form.wrong("typed", f"Type {words.number(count)} to go on.")
        form.values["typed"] = ""
    return view.page(
        request, "contacts/sure.html", status, form=form, fields=[("act", form["act"]), *chosen.fields],
        count=count, ask=acts.question(wish.act, count), first=[words.name(one) for one in first],
        must_type=count > _TYPED_OVER, back=_back(chosen),
    )  # fmt: skip


async def go_on(request: Request, visit: Visit, made: Any, at: int = 0) -> None:
    """Do a small act to its end; of a large one the next pages tell."""
    if made.number <= bulk_actions.AT_ONCE:
        while await commit(bulk_actions.step, made.id):
            pass
    found = await call(bulk_actions.get, visit.account_id, made.id)
    name = await call(acts.name_of, visit.account_id, found.act, found.argument)
    told = _told(found, name, at)
    view.say(request, told["text"], told["undo"], told["follow"])


def _told(found: Any, name: str, at: int = 0) -> dict[str, Any]:
    here = f"/contacts/acts/{found.id}"
    if found.state == "working":
        return {"text": acts.going(found, name), "undo": None, "follow": here}
    undo: tuple[str, dict[str, str]] | None = (
        (f"{here}/undo", {"at": str(at)} if at else {}) if found.can_undo else None
    )
    return {"text": acts.done(found, name), "undo": undo, "follow": ""}


def _back(chosen: Selection) -> str:
    """Return the table they were chosen in: that of a list where it was one."""
    list_id = number(chosen.state.get("of_list"), 0)
    if list_id:
        chosen.state.pop("of_list")
        found = chosen.back(f"/lists/{list_id}")
        chosen.state["of_list"] = str(list_id)
        return found
    return chosen.back("/contacts")


def _list_of(made: Any) -> str:
    return f"/lists/{made.argument['contact_list_id']}" if made.act.startswith("list_") else ""
