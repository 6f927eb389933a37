"""The team: who signs in and what each may do."""

import asyncio
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import passwords, users
from appliance.core import errors
from appliance.storage.work import call, commit
from ui import once, together, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit
from ui.together import Part, Parts

pages = Pages("ui_team", url_prefix="/settings")
ROLES = {
    "owner": ("Owner", "Everything, owners included."),
    "admin": ("Admin", "Everything but deciding about owners."),
    "editor": ("Editor", "Writes, designs and sends; no settings, no brand."),
    "author": ("Author", "Writes and designs; somebody else sends."),
    "viewer": ("Viewer", "Looks at everything and changes nothing."),
}
_NAMES = {key: name for key, (name, _) in ROLES.items()}


@pages.get("/team", name="team")
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Everybody who signs in."""
    return await _page(request, visit, Form({"role": "editor"}), 200)


@pages.post("/team", name="add")
@signed_in
@one_press
async def add(request: Request, visit: Visit) -> HTTPResponse:
    """Add somebody with a password that is shown once, to be told to them."""
    form = Form.of(request)
    form.need("email", "Write the address they will sign in with.")
    secret = users.password()
    try:
        if form.errors:
            raise errors.Invalid({})
        new = await asyncio.to_thread(users.prepare, form["email"], secret, form["name"][:255])
        made = await commit(users.add_member, visit.by, new, form["role"])
    except errors.Invalid as refused:
        if "has already been taken" in refused.fields.get("email", []):
            form.wrong("email", "Somebody signs in with this address already.")
        return await _page(request, visit, form.take(refused) if refused.fields else form, 422)
    once.keep(visit.session.id, "password", {"name": made.name, "email": made.email, "password": secret})
    return view.go(request, "/settings/team")


@pages.post("/team/<user_id:int>/role", name="role")
@signed_in
@together.meeting
async def role(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Give somebody another role."""
    form, have = Form.of(request), await call(users.get, visit.account_id, user_id)
    parts = _parts(have)
    together.meet(form, parts, _kept(have), dict.fromkeys(parts.all(form), _NAMES))
    if form.met:
        return await _page(request, visit, Form({"role": "editor"}), 409, (user_id, form))
    try:
        args = (users.change, visit.by, user_id, form["role"])
        done = await commit(together.still, form, parts, lambda: _kept(users.get(visit.account_id, user_id)), *args)
    except errors.Invalid:
        return await _refused(request, visit, "An account needs an owner. Make somebody else one first.")
    view.say(request, f"{done.name} is {ROLES[done.role][0].lower()} now.")
    return view.go(request, "/settings/team")


@pages.post("/team/<user_id:int>/close", name="close")
@signed_in
async def close(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Let somebody sign in no more; the message offers to undo it."""
    try:
        done = await commit(users.close, visit.by, user_id)
    except errors.Invalid as refused:
        own = "disabled" in refused.fields
        said = "You cannot shut yourself out." if own else "An account needs an owner. Make somebody else one first."
        return await _refused(request, visit, said)
    theirs = (await call(_keys, visit.account_id)).get(user_id)
    left = f" Still working: {words.listed(theirs)}, under API keys." if theirs else ""
    view.say(request, f"{done.name} signs in no more.{left}", (f"/settings/team/{user_id}/reopen", {}))
    return view.go(request, "/settings/team")


@pages.post("/team/<user_id:int>/reopen", name="reopen")
@signed_in
async def reopen(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Let somebody sign in again."""
    done = await commit(users.reopen, visit.by, user_id)
    view.say(request, f"{done.name} may sign in again, with the password they had.")
    return view.go(request, "/settings/team")


@pages.post("/team/<user_id:int>/password", name="password")
@signed_in
async def password(request: Request, visit: Visit, user_id: int) -> HTTPResponse:
    """Give somebody a new password, shown once."""
    secret = users.password()
    done = await commit(users.give_password, visit.by, user_id, await asyncio.to_thread(passwords.make, secret))
    once.keep(visit.session.id, "password", {"name": done.name, "email": done.email, "password": secret})
    return view.go(request, "/settings/team")


async def _refused(request: Request, visit: Visit, said: str) -> HTTPResponse:
    form = Form({"role": "editor"})
    form.wrong("base", said)
    return await _page(request, visit, form, 422)


def _kept(row: Any) -> Form:
    return Form({"role": row.role})


def _parts(row: Any) -> Parts:
    return Parts(Part(f"Role of {row.name}", ("role",)))


async def _page(
    request: Request, visit: Visit, form: Form, status: int, met: tuple[int, Form] | None = None
) -> HTTPResponse:
    """Return the team; `met` is somebody whose role another person changed meanwhile, with what was chosen here."""
    if visit.user.role not in ("owner", "admin"):
        raise errors.NotAllowed("Only owners and admins look after the team.")
    found = await call(users.members, visit.account_id)
    return view.page(
        request,
        "settings/team.html",
        status,
        form=form,
        found=found,
        forms={one.id: together.opened(_kept(one), _parts(one)) for one in found} | dict(filter(None, (met,))),
        met=met,
        roles=ROLES,
        keys=await call(_keys, visit.account_id),
        made=once.take(visit.session.id, "password"),
    )


def _keys(account_id: int) -> dict[int, list[str]]:
    """Return the keys that each person made and that open something, by their names and ends."""
    found: dict[int, list[str]] = {}
    for key in users.keys(account_id):
        if key.created_by_id is not None:
            found.setdefault(key.created_by_id, []).append(f"{key.name} (…{key.hint})")
    return found
