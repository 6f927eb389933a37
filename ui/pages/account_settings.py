"""The pages of the accounts of the installation, for its operators: owners and admins of the first account."""

import re
from collections.abc import Callable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, limits, members, operators, public_urls
from appliance.accounts.audit import Actor
from appliance.accounts.limits import AccountLimits
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from appliance.settings import config
from appliance.storage.models import Account, TeamMember, User
from appliance.storage.transactions import commit, fetch, scan_for
from ui import role_labels, view
from ui.forms import Form
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit

pages = Pages("ui_account_settings", url_prefix="/settings/accounts")
_NUMBER = re.compile("[0-9]{1,10}")
_CLOSED = gettext_noop("%(name)s is closed. Nobody can sign in to it, and it sends nothing.")
_REOPENED = gettext_noop("%(name)s is open again. Its users resume sending when they are ready.")


def _require_operator(visit: Visit) -> None:
    """Raise NotAllowed unless the user is an operator of the installation."""
    operators.require_operator(visit.actor)


@pages.get("/", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
async def list_accounts(request: Request, visit: Visit) -> HTTPResponse:
    """List the accounts of the installation, with a form for another one."""
    return await _render_list(request, visit, Form(), 200)


@pages.post("/", strict_slashes=False, name="create")
@signed_in(access.ADMIN_SCOPE)
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create an account, of which the operator becomes the first owner."""
    await fetch(_require_operator, visit)
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name for the account."))
    if form.errors:
        return await _render_list(request, visit, form, 422)
    account = await commit(operators.create, form["name"], visit.user.id, visit.actor)
    view.flash(request, gettext("Account “%(name)s” created. You are its first owner.", name=account.name))
    return view.redirect(request, f"/settings/accounts/{account.id}")


async def _render_list(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    await fetch(_require_operator, visit)
    facts = await scan_for(visit.account_id, operators.list_accounts)
    return view.render(request, "settings/accounts.html", status, form=form, facts=facts)


@pages.get("/<account_id:int>")
@signed_in(access.ADMIN_SCOPE)
async def show_account(request: Request, visit: Visit, account_id: int) -> HTTPResponse:
    """Show an account: its users, the numbers of its objects, and its limits."""
    return await _render_account(request, visit, account_id, None, 200)


@pages.post("/<account_id:int>/limits")
@signed_in(access.ADMIN_SCOPE)
async def set_limits(request: Request, visit: Visit, account_id: int) -> HTTPResponse:
    """Set the limits of an account; an empty field removes a limit."""
    await fetch(_require_operator, visit)
    await fetch(operators.get_facts, account_id)
    form, values = Form.from_request(request), {}
    for name in limits.LABELS:
        text = form[name].strip()
        if text and not (_NUMBER.fullmatch(text) and int(text) <= limits.MAX_LIMIT):
            form.add_error(name, gettext("Enter a number, such as 1000, or nothing for no limit."))
        elif text:
            values[name] = int(text)
    if form.errors:
        return await _render_account(request, visit, account_id, form, 422)
    await commit(limits.update, account_id, AccountLimits(**values), visit.actor)
    view.flash(request, gettext("Limits saved."))
    return view.redirect(request, f"/settings/accounts/{account_id}")


@pages.post("/<account_id:int>/address")
@signed_in(access.ADMIN_SCOPE)
async def set_address(request: Request, visit: Visit, account_id: int) -> HTTPResponse:
    """Set the public address of an account; an empty field removes it."""
    form, notice = Form.from_request(request), gettext("Address saved. Check it under Settings, Health check.")
    return await _change_hosts(request, visit, account_id, public_urls.set_public_url, (form, "public_url"), notice)


@pages.post("/<account_id:int>/address/remove")
@signed_in(access.ADMIN_SCOPE)
async def remove_address(request: Request, visit: Visit, account_id: int) -> HTTPResponse:
    """Remove a former address of an account, whose links stop working."""
    form = Form.from_request(request)
    notice = gettext("%(host)s is removed. Links to it no longer work.", host=form["host"])
    return await _change_hosts(request, visit, account_id, public_urls.release_host, (form, "host"), notice)


async def _change_hosts(
    request: Request,
    visit: Visit,
    account_id: int,
    change: Callable[[int, str, Actor], object],
    posted: tuple[Form, str],
    notice: str,
) -> HTTPResponse:
    """Set the public address of an account, or remove a former one, and show a notice; requests use it at once.

    `posted` is the form and the name of its field with the address.
    """
    await fetch(_require_operator, visit)
    form, name = posted
    try:
        await commit(change, account_id, form[name], visit.actor)
    except errors.Invalid as error:
        return await _render_account(request, visit, account_id, form.add_errors(error), 422)
    await fetch(request.app.ctx.hosts.refresh)
    view.flash(request, notice)
    return view.redirect(request, f"/settings/accounts/{account_id}")


@pages.post("/<account_id:int>/close")
@signed_in(access.ADMIN_SCOPE)
async def close(request: Request, visit: Visit, account_id: int) -> HTTPResponse:
    """Close an account; the notice offers to open it again."""
    undo = f"/settings/accounts/{account_id}/reopen"
    return await _change_state(request, visit, account_id, operators.close, _CLOSED, undo)


@pages.post("/<account_id:int>/reopen")
@signed_in(access.ADMIN_SCOPE)
async def reopen(request: Request, visit: Visit, account_id: int) -> HTTPResponse:
    """Open a closed account again."""
    return await _change_state(request, visit, account_id, operators.reopen, _REOPENED)


async def _change_state(
    request: Request, visit: Visit, account_id: int, change: Callable[[int, Actor], Account], text: str, undo: str = ""
) -> HTTPResponse:
    """Close or reopen an account and return to its page, with a notice; `undo` is the URL of its undo button."""
    await fetch(_require_operator, visit)
    try:
        account = await commit(change, account_id, visit.actor)
    except errors.Invalid as error:
        return await _render_account(request, visit, account_id, Form().add_errors(error), 422)
    view.flash(request, gettext(text, name=account.name), (undo, {}) if undo else None)
    return view.redirect(request, f"/settings/accounts/{account_id}")


def _load_account(visit: Visit, account_id: int) -> tuple[operators.AccountFacts, AccountLimits, list[Any], list[str]]:
    _require_operator(visit)
    people = list(members.select(account_id).order_by(TeamMember.disabled_at, User.name))
    facts = operators.get_facts(account_id)
    return facts, limits.get(account_id), people, public_urls.list_former_hosts(facts.account)


async def _render_account(
    request: Request, visit: Visit, account_id: int, form: Form | None, status: int
) -> HTTPResponse:
    """Render an account; `form` has what was posted with its errors, or is None for what is stored."""
    facts, current, people, former_hosts = await scan_for(visit.account_id, _load_account, visit, account_id)
    stored = {name: "" if (value := getattr(current, name)) is None else str(value) for name in limits.LABELS}
    form = form or Form()
    form.values = {**stored, "public_url": facts.account.public_url or "", **form.values}
    return view.render(
        request, "settings/account.html", status, facts=facts, form=form, people=people,
        roles=await fetch(role_labels.list_options, account_id),
        labels_of_limits=limits.LABELS, base_url=config.base_url(config.current()), former_hosts=former_hosts,
        is_first=account_id == operators.FIRST_ACCOUNT,
        may_enter=any(row.account_id == account_id for row in visit.memberships),
    )  # fmt: skip
