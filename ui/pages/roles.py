"""The pages of roles: the built-in ones, and those that an account has made."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, roles
from appliance.accounts.roles import RolePatch, RoleUse, RoleWrite
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from appliance.storage.models import Role
from appliance.storage.transactions import commit, fetch
from ui import forms, role_labels, view
from ui.forms import Form, FormPart, FormParts
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit

pages = Pages("ui_roles", url_prefix="/settings/roles")


@pages.get("", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """Show the roles of the account and who has them."""

    def load() -> dict[str, Any]:
        rows = roles.list_all(visit.account_id)
        named = [*role_labels.BUILT_IN, *(str(row.id) for row in rows)]
        return {"rows": rows, "uses": {role: roles.find_use(visit.account_id, role) for role in named}}

    return view.render(
        request, "settings/roles.html", built_in=role_labels.BUILT_IN, describe_rights=role_labels.describe_rights,
        max_roles=roles.MAX_ROLES, **await fetch(load),
    )  # fmt: skip


@pages.get("/new")
@signed_in(access.ADMIN_SCOPE)
async def show_new(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of a new role, with the rights of a built-in role (`from`) or of an own role (its id)."""
    origin = request.args.get("from") or "viewer"
    if origin in access.ROLES:
        scopes, contact_data = access.role_scopes(origin) & access.OWN_ROLE_SCOPES, "full"
    else:
        row = await fetch(roles.get, visit.account_id, forms.parse_id(origin))
        scopes, contact_data = frozenset(row.scopes), row.contact_data
    form = Form({"name": "", "contact_data": contact_data}, {"scopes": sorted(scopes)})
    return _render_form(request, None, form, 200)


@pages.post("", strict_slashes=False)
@signed_in(access.ADMIN_SCOPE)
@ignore_double_submit
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Create a role."""
    form = _read_form(request)
    try:
        if form.errors:
            raise errors.Invalid({})
        row = await commit(roles.create, visit.actor, RoleWrite(*_read_values(form)))
    except errors.Invalid as error:
        return _render_form(request, None, form.add_errors(error) if error.fields else form, 422)
    view.flash(request, gettext("Role “%(name)s” created.", name=row.name))
    return view.redirect(request, "/settings/roles")


@pages.get("/<role_id:int>")
@signed_in(access.ADMIN_SCOPE)
async def show(request: Request, visit: Visit, role_id: int) -> HTTPResponse:
    """Show a role, its rights and who has it."""
    row = await fetch(roles.get, visit.account_id, role_id)
    form = forms.open_form(_build_form(row), _list_parts())
    return _render_form(request, row, form, 200, await _load_use(visit, row), await _load_options(visit, row))


@pages.post("/<role_id:int>")
@signed_in(access.ADMIN_SCOPE)
@forms.retry_on_change
async def update(request: Request, visit: Visit, role_id: int) -> HTTPResponse:
    """Change a role, at once for everybody who has it."""
    form, row, parts = _read_form(request), await fetch(roles.get, visit.account_id, role_id), _list_parts()
    if not form.errors:
        forms.merge_form(form, parts, _build_form(row), {})
    use, options = await _load_use(visit, row), await _load_options(visit, row)
    if form.errors or form.conflicts:
        return _render_form(request, row, form, 409 if form.conflicts else 422, use, options)
    try:
        row = await commit(
            forms.write_if_unchanged,
            form,
            parts,
            lambda: _build_form(roles.get(visit.account_id, role_id)),
            roles.update,
            visit.actor,
            role_id,
            RolePatch(*_read_values(form)),
        )
    except errors.Invalid as error:
        return _render_form(request, row, form.add_errors(error), 422, use, options)
    view.flash(request, gettext("Role “%(name)s” saved.", name=row.name))
    return view.redirect(request, "/settings/roles")


@pages.post("/<role_id:int>/delete")
@signed_in(access.ADMIN_SCOPE)
async def delete(request: Request, visit: Visit, role_id: int) -> HTTPResponse:
    """Delete a role; those who have it get the role that the form names."""
    posted = Form.from_request(request)
    try:
        row = await commit(roles.delete, visit.actor, role_id, posted.text("replacement"))
    except errors.Invalid:
        row = await fetch(roles.get, visit.account_id, role_id)
        form = forms.open_form(_build_form(row), _list_parts())
        form.add_error("replacement", gettext("Select the role that those who have this one get instead."))
        return _render_form(request, row, form, 422, await _load_use(visit, row), await _load_options(visit, row))
    view.flash(request, gettext("Role “%(name)s” deleted.", name=row.name))
    return view.redirect(request, "/settings/roles")


def _read_form(request: Request) -> Form:
    form = Form.from_request(request)
    form.require("name", gettext("Enter a name, such as Agency."))
    if not form.getlist("scopes"):
        form.add_error("scopes", gettext("Select at least one right."))
    return form


def _read_values(form: Form) -> tuple[str, list[str], Any]:
    """Return the name, the scopes and the contact data of a posted form."""
    return form["name"], form.getlist("scopes"), "masked" if form["contact_data"] == "masked" else "full"


def _build_form(row: Role) -> Form:
    return Form({"name": row.name, "contact_data": row.contact_data}, {"scopes": sorted(row.scopes)})


def _list_parts() -> FormParts:
    return FormParts(
        FormPart(gettext_noop("Name"), ("name",)), FormPart(gettext_noop("Rights"), ("scopes",), True),
        FormPart(gettext_noop("Contact data"), ("contact_data",)),
    )  # fmt: skip


async def _load_use(visit: Visit, row: Role) -> RoleUse:
    return await fetch(roles.find_use, visit.account_id, str(row.id))


async def _load_options(visit: Visit, row: Role) -> dict[str, str]:
    """Return the roles that the users of a deleted role can get, with their names."""
    options = await fetch(role_labels.list_options, visit.account_id)
    may_make_owners = visit.user.role == "owner"
    return {
        role: label
        for role, (label, _) in options.items()
        if role != str(row.id) and (role != "owner" or may_make_owners)
    }


def _render_form(
    request: Request, row: Role | None, form: Form, status: int, use: RoleUse | None = None,
    options: dict[str, str] | None = None,
) -> HTTPResponse:  # fmt: skip
    return view.render(
        request, "settings/own_role.html", status, row=row, form=form, use=use, options=options or {},
        rights=role_labels.list_rights(), max_name=roles.MAX_NAME_CHARACTERS,
    )  # fmt: skip
