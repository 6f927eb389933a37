"""The pages of further transports of email and of the rules that choose between them."""

from collections.abc import Callable
from typing import Any

from msgspec import structs
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import transports as stored_transports
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from appliance.sending.delivery import mx_routes
from appliance.sending.transports import TRANSPORTS
from appliance.sending.transports.base import SettingField
from appliance.settings import config, transports
from appliance.settings.config import LoadedConfig
from appliance.settings.schema import Email, NamedTransport, Route
from appliance.settings.transports import DEFAULT, DIRECT, KINDS
from appliance.storage.transactions import commit, fetch
from ui import forms, view
from ui.forms import Form, FormPart, FormParts
from ui.guard import ignore_double_submit, signed_in
from ui.pages.sending import apply_settings, check_connection, record_change, require_first_account
from ui.session import Pages, Visit
from ui.transport_labels import TRAFFIC_LABELS, get_kind_label, get_recipient_label, get_transport_label

pages = Pages("ui_transports", url_prefix="/settings/sending")
_LIST_URL = "/settings/sending"

# The options of a relay as the form shows them; the other kinds declare theirs (`Transport.fields`).
_RELAY_FIELDS = (
    SettingField("host", gettext_noop("Server"), placeholder="smtp.example.com"),
    SettingField("port", gettext_noop("Port")),
    SettingField(
        "tls", gettext_noop("Encryption"),
        choices=(("starttls", "STARTTLS (587)"), ("tls", "TLS (465)"),
                 ("none", gettext_noop("None (only for this machine)"))),
    ),
    SettingField("username", gettext_noop("Username"), gettext_noop("Leave empty if the server needs no login.")),
    SettingField("password", gettext_noop("Password")),
)  # fmt: skip
_LIMIT_PARTS = (
    FormPart(gettext_noop("Connections"), ("connections",)),
    FormPart(gettext_noop("Maximum emails per second"), ("rate_per_second",)),
    FormPart(gettext_noop("Maximum emails per hour"), ("rate_per_hour",)),
    FormPart(gettext_noop("Warm-up"), ("warm_up",), True),
)
_LIMITS = ("connections", "rate_per_second", "rate_per_hour")
_FAULTS = {
    "options.password": gettext_noop("Enter the password for this server. The saved password is for another server."),
    "connections": gettext_noop("Enter a number from 1 to 100."),
    "rate_per_second": gettext_noop("Enter a number. 0 means no limit."),
    "rate_per_hour": gettext_noop("Enter a whole number. 0 means no limit."),
    "options.port": gettext_noop("Enter a number from 1 to 65535: 587 for STARTTLS, 465 for TLS."),
}
_SHARE_PREFIX = "share_"
_MAX_SHARE = 100
_RULE_PARTS = FormParts(FormPart(gettext_noop("Email"), ("traffic", "domains", "recipients", "shares")))


def _list_fields(kind: str) -> tuple[SettingField, ...]:
    if kind == "relay":
        return _RELAY_FIELDS
    return TRANSPORTS[kind].fields if kind in TRANSPORTS else ()


def _option_name(option: str) -> str:
    return f"option_{option}"


def _build_parts(kind: str) -> FormParts:
    """Return the parts of the form of a transport, without its secrets, because they are not shown."""
    declared = transports.list_options(kind)
    options = [
        FormPart(field.label, (_option_name(field.name),))
        for field in _list_fields(kind)
        if not transports.is_secret(declared[field.name])
    ]
    return FormParts(FormPart(gettext_noop("Name"), ("name",)), *options, *_LIMIT_PARTS)


def _build_form(kind: str, stored: NamedTransport | None = None) -> Form:
    """Return the form of a stored transport, or of a new one with the defaults; secrets are left empty."""
    declared = transports.list_options(kind)
    values = {"name": stored.name if stored else "" if kind not in TRANSPORTS else TRANSPORTS[kind].label}
    for field in _list_fields(kind):
        value = (stored.options if stored else {}).get(field.name, declared[field.name].default)
        values[_option_name(field.name)] = "" if transports.is_secret(declared[field.name]) else str(value)
    defaults = {info.name: info.default for info in structs.fields(NamedTransport)}
    for name in _LIMITS:
        value = getattr(stored, name) if stored else defaults[name]
        values[name] = f"{value:g}" if isinstance(value, float) else str(value)
    values |= {"warm_up": "yes"} if stored is not None and stored.warm_up else {}
    return Form(values)


def _read_values(form: Form, kind: str) -> dict[str, Any]:
    """Return the fields of `NamedTransport` that a form has."""
    declared = transports.list_options(kind)
    options = {
        field.name: form.raw(_option_name(field.name))
        if transports.is_secret(declared[field.name])
        else form[_option_name(field.name)]
        for field in _list_fields(kind)
    }
    limits = {name: form[name] for name in _LIMITS}
    return {"name": form["name"], "options": options, "warm_up": form["warm_up"] == "yes", **limits}


def _add_errors(form: Form, kind: str, error: errors.Invalid) -> Form:
    labels = {f"options.{field.name}": gettext(field.label) for field in _list_fields(kind)}
    for name, messages in error.fields.items():
        option = name.removeprefix("options.")
        field = _option_name(option) if name in labels else name if name in ("name", *_LIMITS) else "base"
        label = labels.get(name, gettext("Name"))
        if name in _FAULTS:
            sentence = gettext(_FAULTS[name])
        elif messages[0] == transports.IS_REQUIRED:
            sentence = gettext("%(field)s is required.", field=label)
        elif name in labels:
            sentence = gettext("%(field)s contains characters that are not allowed.", field=label)
        else:
            sentence = messages[0]
        form.add_error(field, sentence)
    return form


@pages.get("/transports/new")
@signed_in("account:write")
async def new_transport(request: Request, visit: Visit) -> HTTPResponse:
    """Show the kinds of transports, or the form for a new one of the kind in the query."""
    require_first_account(visit)
    kind = request.args.get("kind") or ""
    if kind not in KINDS:
        email = config.current().email
        kinds = [(key, get_kind_label(key)) for key in KINDS
                 if key != DIRECT or DIRECT not in transports.list_keys(email)]  # fmt: skip
        return view.render(request, "settings/transport_kinds.html", kinds=kinds)
    return _render_form(request, _build_form(kind), kind, None, 200)


@pages.post("/transports", strict_slashes=False)
@signed_in("account:write")
@ignore_double_submit
async def create_transport(request: Request, visit: Visit) -> HTTPResponse:
    """Add a transport, and go back to the list."""
    form = Form.from_request(request)
    kind = form["kind"]
    if kind not in KINDS:
        raise errors.NotFound
    try:
        await _change(request, visit, stored_transports.add, kind, _read_values(form, kind))
    except errors.Invalid as error:
        return _render_form(request, _add_errors(form, kind, error), kind, None, 422)
    view.flash(request, gettext("“%(name)s” added. Now add a rule that uses it.", name=form["name"]))
    return view.redirect(request, _LIST_URL)


@pages.post("/transports/test")
@signed_in("account:write")
async def test_transport(request: Request, visit: Visit) -> HTTPResponse:
    """Test the connection with the settings of the form, and show the response; nothing is saved or sent."""
    require_first_account(visit)
    form = Form.from_request(request)
    stored = transports.find_named(form["key"], config.current().email)
    kind = stored.kind if stored else form["kind"]
    if kind not in KINDS or kind == DIRECT:
        raise errors.NotFound
    try:
        email = await fetch(stored_transports.build, kind, _read_values(form, kind), stored.key if stored else None)
    except errors.Invalid as error:
        return _render_form(request, _add_errors(form, kind, error), kind, stored, 422)
    return _render_form(request, form, kind, stored, 200, await check_connection(email))


@pages.get("/transports/<key:str>")
@signed_in("account:write")
async def edit_transport(request: Request, visit: Visit, key: str) -> HTTPResponse:
    """Show the form of a transport."""
    require_first_account(visit)
    stored = stored_transports.get(key)
    form = forms.open_form(_build_form(stored.kind, stored), _build_parts(stored.kind))
    return _render_form(request, form, stored.kind, stored, 200)


@pages.post("/transports/<key:str>")
@signed_in("account:write")
@forms.retry_on_change
async def update_transport(request: Request, visit: Visit, key: str) -> HTTPResponse:
    """Save the form of a transport."""
    form, stored = Form.from_request(request), stored_transports.get(key)
    kind, parts = stored.kind, _build_parts(stored.kind)
    forms.merge_form(form, parts, _build_form(kind, stored))
    if form.conflicts:
        return _render_form(request, form, kind, stored, 409)
    try:
        await _change(
            request, visit, forms.write_if_unchanged, form, parts,
            lambda: _build_form(kind, stored_transports.get(key, stored_transports.read_stored())),
            stored_transports.update, key, _read_values(form, kind),
        )  # fmt: skip
    except errors.Invalid as error:
        return _render_form(request, _add_errors(form, kind, error), kind, stored, 422)
    view.flash(request, gettext("Saved. New settings apply to all messages sent from now on."))
    return view.redirect(request, _LIST_URL)


@pages.post("/transports/<key:str>/delete")
@signed_in("account:write")
async def delete_transport(request: Request, visit: Visit, key: str) -> HTTPResponse:
    """Delete a transport; if a rule or a message needs it, show an error."""
    stored = stored_transports.get(key)
    try:
        await _change(request, visit, stored_transports.delete, key)
    except errors.Invalid as error:
        form = _build_form(stored.kind, stored)
        return _render_form(request, form.add_errors(error), stored.kind, stored, 422)
    view.flash(request, gettext("“%(name)s” deleted.", name=stored.name))
    return view.redirect(request, _LIST_URL)


async def _change(request: Request, visit: Visit, function: Callable[..., LoadedConfig], *arguments: Any) -> None:
    """Run a change of transports or rules, record it, and apply the new settings to the workers."""
    require_first_account(visit)
    apply_settings(request, await commit(record_change, visit, function, *arguments))


def _render_form(
    request: Request, form: Form, kind: str, stored: NamedTransport | None, status: int, test_result: Any = None
) -> HTTPResponse:
    declared = transports.list_options(kind)
    saved = stored.options if stored else {}
    fields = [
        (field, _option_name(field.name), transports.is_secret(declared[field.name]),
         not transports.is_required(declared[field.name]) and not declared[field.name].default, field.name in saved,
         [(value, gettext(label)) for value, label in field.choices])
        for field in _list_fields(kind)
    ]  # fmt: skip
    return view.render(
        request, "settings/transport.html", status, form=form, kind=kind, kind_label=get_kind_label(kind),
        stored=stored, fields=fields, test_result=test_result, is_direct=kind == DIRECT,
    )  # fmt: skip


# Rules.


@pages.get("/rules/new")
@signed_in("account:write")
async def new_rule(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new rule."""
    require_first_account(visit)
    return _render_rule(request, Form({"traffic": "all"}), None, 200)


@pages.post("/rules", strict_slashes=False)
@signed_in("account:write")
@ignore_double_submit
async def create_rule(request: Request, visit: Visit) -> HTTPResponse:
    """Add a rule at the end."""
    form = Form.from_request(request)
    return await _save_rule(request, visit, form, None, stored_transports.save_route, None)


@pages.get("/rules/<number:int>")
@signed_in("account:write")
async def edit_rule(request: Request, visit: Visit, number: int) -> HTTPResponse:
    """Show the form of a rule."""
    require_first_account(visit)
    form = _build_rule_form(stored_transports.get_route(number))
    return _render_rule(request, forms.open_form(form, _RULE_PARTS), number, 200)


@pages.post("/rules/<number:int>")
@signed_in("account:write")
@forms.retry_on_change
async def update_rule(request: Request, visit: Visit, number: int) -> HTTPResponse:
    """Save the form of a rule."""
    form = Form.from_request(request)
    form.values["shares"] = _join_shares(form)
    forms.merge_form(form, _RULE_PARTS, _build_rule_form(stored_transports.get_route(number)))
    if form.conflicts:
        return _render_rule(request, form, number, 409)

    def build_stored() -> Form:
        return _build_rule_form(stored_transports.get_route(number, stored_transports.read_stored()))

    return await _save_rule(
        request, visit, form, number, forms.write_if_unchanged, form, _RULE_PARTS, build_stored,
        stored_transports.save_route, number,
    )  # fmt: skip


@pages.post("/rules/<number:int>/move")
@signed_in("account:write")
async def move_rule(request: Request, visit: Visit, number: int) -> HTTPResponse:
    """Exchange a rule with the one above or below it."""
    form = Form.from_request(request)
    step = -1 if form["to"] == "up" else 1
    await _change(request, visit, stored_transports.move_route, number, form["digest"], step)
    return view.redirect(request, f"{_LIST_URL}#rules")


@pages.post("/rules/<number:int>/delete")
@signed_in("account:write")
async def delete_rule(request: Request, visit: Visit, number: int) -> HTTPResponse:
    """Delete a rule."""
    form = Form.from_request(request)
    await _change(request, visit, stored_transports.delete_route, number, form["digest"])
    view.flash(request, gettext("Rule deleted."))
    return view.redirect(request, f"{_LIST_URL}#rules")


async def _save_rule(
    request: Request, visit: Visit, form: Form, number: int | None, function: Callable[..., LoadedConfig],
    *arguments: Any,
) -> HTTPResponse:  # fmt: skip
    shares = _read_shares(form)
    values = {
        "traffic": form["traffic"] if form["traffic"] in TRAFFIC_LABELS else "all", "shares": shares,
        "domains": _split(form["domains"]), "recipients": [_find_group(name) for name in _split(form["recipients"])],
    }  # fmt: skip
    if not form.errors:
        try:
            await _change(request, visit, function, *arguments, values)
        except errors.Invalid as error:
            for messages in error.fields.values():
                form.add_error("shares", messages[0])
    if form.errors:
        return _render_rule(request, form, number, 422)
    view.flash(request, gettext("Saved. New settings apply to all messages sent from now on."))
    return view.redirect(request, f"{_LIST_URL}#rules")


def _split(text: str) -> list[str]:
    return [name.strip().lower() for name in text.replace("\n", ",").split(",") if name.strip()]


def _find_group(name: str) -> str:
    """Return the recipient group that a user named, such as `google` for Gmail or gmail.com, else the name."""
    group = mx_routes.get_address_group(name)
    return group if group in mx_routes.LARGE_GROUPS else mx_routes.get_address_group(f"{name}.com") if (
        "." not in name and mx_routes.get_address_group(f"{name}.com") in mx_routes.LARGE_GROUPS
    ) else name  # fmt: skip


def _read_shares(form: Form) -> dict[str, int]:
    """Return the shares of a form by transport, and add an error for each that is not a number from 0 to 100."""
    shares = {}
    for name, text in form.values.items():
        if name.startswith(_SHARE_PREFIX) and text:
            if text.isdecimal() and int(text) <= _MAX_SHARE:
                shares[name.removeprefix(_SHARE_PREFIX)] = int(text)
            else:
                form.add_error(name, gettext("Enter a number from 0 to 100, or nothing."))
    return shares


def _join_shares(form: Form) -> str:
    names = sorted(name for name, text in form.values.items() if name.startswith(_SHARE_PREFIX) and text)
    return ", ".join(f"{name.removeprefix(_SHARE_PREFIX)} {form[name]}" for name in names)


def _build_rule_form(route: Route) -> Form:
    values = {
        "traffic": route.traffic, "domains": ", ".join(route.domains),
        "recipients": ", ".join(get_recipient_label(name) for name in route.recipients),
        **{f"{_SHARE_PREFIX}{key}": str(share) for key, share in route.shares.items()},
    }  # fmt: skip
    form = Form(values)
    form.values["shares"] = _join_shares(form)
    return form


def _render_rule(request: Request, form: Form, number: int | None, status: int) -> HTTPResponse:
    email: Email = config.current().email
    keys = (DEFAULT, *(transport.key for transport in email.transports))
    return view.render(
        request, "settings/rule.html", status, form=form, number=number,
        transports=[(f"{_SHARE_PREFIX}{key}", get_transport_label(key, email)) for key in keys],
        traffic=[(key, gettext(label)) for key, label in TRAFFIC_LABELS.items()],
    )  # fmt: skip
