"""The switcher between the accounts of a person."""

from sanic import Request
from sanic.exceptions import NotFound as NoPage
from sanic.response import HTTPResponse

from appliance.accounts import access, members, sessions
from appliance.core.errors import NotFound
from appliance.core.i18n import gettext
from appliance.storage.transactions import commit, fetch
from ui import other_accounts, session, view
from ui.forms import Form, safe_path
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_accounts", url_prefix="/accounts")


@pages.post("/open")
@signed_in(access.SELF_SCOPE, any_account=True)
async def open_account(request: Request, visit: Visit) -> HTTPResponse:
    """Open another account of the person in this browser, at the same page if that account has it, else at Home.

    Without `next`, which a dialog over a page leaves out, the page stays as it is, with all that was typed.
    """
    form = Form.from_request(request)
    number = form["account"]
    if not number.isdecimal() or int(number) >> 63:
        raise NotFound
    await commit(sessions.open_account, visit.session.id, int(number), visit.actor)
    # What a page of the account before would have shown is not for this one.
    view.clear_flash(request)
    session.forget_secrets(visit.session.id)
    if not form["next"] and view.is_partial(request):
        return HTTPResponse("", 200, {"hx-retarget": "#dialog", "hx-reswap": "innerHTML"}, "text/html; charset=utf-8")
    user = await fetch(members.find_active, int(number), visit.user.id)
    assert user is not None  # The account was just opened.
    where = safe_path(form["next"])
    view.flash(request, gettext("You are now in %(account)s.", account=user.account.name))
    return view.redirect(request, where if await _has_page(visit, int(number), user.role, where) else "/")


async def _has_page(visit: Visit, account_id: int, role: str, where: str) -> bool:
    """Return whether an account has a page that a role may open there: a page of no object, or of one of its own."""
    path = where.partition("#")[0].partition("?")[0]
    try:
        if not await fetch(visit.can_open, path, role):
            return False
    except NoPage:
        return False
    if other_accounts.is_shared_page(path):
        return True
    return await fetch(other_accounts.is_page_of, account_id, path)
