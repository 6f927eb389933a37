"""The settings pages: account, consent and frequency rules, data, and health.

The switch that stops all sending, the theme of a browser, and the messages of a restored backup are also here. Other
settings have modules of their own, such as `sending.py`, `brand.py` and `users.py`.
"""

import asyncio
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance import VERSION
from appliance.accounts import access, accounts, audit
from appliance.core import errors, executable, recipient_texts, validation
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.wait_until import name_weekday
from appliance.ops.backups import restore
from appliance.sending.delivery import smtp_connect
from appliance.sending.messages import senders
from appliance.sending.messages.marketing_calendar import WEEKDAYS
from appliance.sending.transports import TRANSPORTS
from appliance.settings import config
from appliance.storage.transactions import commit, fetch, scan_for
from ui import formats, forms, guard, session, view
from ui.forms import Form, FormPart, FormParts, lookups, parse_number, safe_path, utm_forms
from ui.forms.lookups import time_zone_groups
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_settings")

_APPROVAL_SWITCHES = ("approval_required", "approval_by_another")
_CONTENT_SWITCHES = ("block_on_missing_variable", "transactional_allowed")
_FIELDS = ("name", "time_zone", "locale", "country_code", "email_from_name", "email_from_email", "email_reply_to")
_ACCOUNT_PARTS = FormParts(
    FormPart(gettext_noop("Name"), ("name",)), FormPart(gettext_noop("Time zone"), ("time_zone",)),
    FormPart(gettext_noop("Language for recipients"), ("locale",)),
    FormPart(gettext_noop("Default phone country"), ("country_code",)),
    FormPart(gettext_noop("From name"), ("email_from_name",)),
    FormPart(gettext_noop("From address"), ("email_from_email",)),
    FormPart(gettext_noop("Reply-to address"), ("email_reply_to",)),
    FormPart(gettext_noop("Test email recipients"), ("test_email_recipients",)),
    FormPart(gettext_noop("Require approval for campaigns and flows"), ("approval_required",), True),
    FormPart(gettext_noop("Require a different approver"), ("approval_by_another",), True),
    FormPart(gettext_noop("Require a value for every merge tag"), ("block_on_missing_variable",), True),
    FormPart(gettext_noop("Allow transactional messages"), ("transactional_allowed",), True),
)  # fmt: skip


@pages.get("/settings", strict_slashes=False)
@signed_in("account:read")
async def show_account(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of the account settings."""
    return await _render_account(
        request, visit, forms.open_form(_build_account_form(visit.account), _ACCOUNT_PARTS), 200
    )


@pages.post("/settings", strict_slashes=False)
@signed_in("account:write")
@forms.retry_on_change
async def save_account(request: Request, visit: Visit) -> HTTPResponse:
    """Save the form of the account settings."""
    form = Form.from_request(request)
    forms.merge_form(form, _ACCOUNT_PARTS, _build_account_form(await fetch(accounts.get, visit.account_id)))
    if form.conflicts:
        return await _render_account(request, visit, form, 409)
    form.require("name", gettext("Enter an account name."))
    try:
        if form.errors:
            raise errors.Invalid({})
        raw: dict[str, Any] = {name: form.text(name) for name in _FIELDS if name in form.values}
        if form["checkboxes"] == "approval":
            # A browser omits an unchecked checkbox; the hidden field shows that the form had it.
            raw |= {name: form[name] == "yes" for name in _APPROVAL_SWITCHES}
        if form["content_checkboxes"]:
            raw |= {name: form[name] == "yes" for name in _CONTENT_SWITCHES}
        testers = re.split(r"[\s,;]+", form["test_email_recipients"])
        if "test_email_recipients" in form.values:
            raw["test_email_recipients"] = [tester for tester in testers if tester]
        body = validation.read(accounts.AccountWrite, raw)
        write = partial(_update, visit, body)
        await commit(
            forms.write_if_unchanged,
            form,
            _ACCOUNT_PARTS,
            lambda: _build_account_form(accounts.get(visit.account_id)),
            write,
        )
    except errors.Invalid as error:
        names = {path: "test_email_recipients" for path in error.fields if path.startswith("test_email_recipients")}
        return await _render_account(request, visit, form.add_errors(error, names) if error.fields else form, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, "/settings")


def _update(visit: Visit, changes: accounts.AccountWrite) -> None:
    audit.update_and_record(visit.actor, "account_update", accounts.get, accounts.update, visit.account_id, changes)


@pages.post("/settings/stop")
@signed_in("account:write")
async def stop_sending(request: Request, visit: Visit) -> HTTPResponse:
    """Stop all sending of the account, or resume it."""
    form = Form.from_request(request)
    stopped = form["stop"] == "1"
    params = {"sending_stopped": stopped, "stop_reason": form["stop_reason"][:255] if stopped else None}
    changes = validation.read(accounts.AccountWrite, params)
    await commit(_update, visit, changes)
    view.flash(request, gettext("Sending stopped.") if stopped else gettext("Sending resumed."))
    return view.redirect(request, "/settings")


@pages.post("/settings/theme")
@signed_in(access.SELF_SCOPE)
async def set_theme(request: Request, visit: Visit) -> HTTPResponse:
    """Set the theme of this browser, and redirect to the page that the form is on."""
    return _set_browser_choice(request, "theme", session.THEMES)


@pages.post("/settings/keyboard")
@signed_in(access.SELF_SCOPE)
async def set_shortcuts(request: Request, visit: Visit) -> HTTPResponse:
    """Turn single-key shortcuts on or off in this browser, and redirect to the page that the form is on."""
    return _set_browser_choice(request, "keys", ("on", "off"))


def _build_account_form(account: Any) -> Form:
    """Return the form with the stored settings of an account."""
    form = Form({name: getattr(account, name) or "" for name in _FIELDS})
    form.values |= {name: "yes" if getattr(account, name) else "" for name in (*_APPROVAL_SWITCHES, *_CONTENT_SWITCHES)}
    form.values["test_email_recipients"] = ", ".join(account.test_email_recipients)
    return form


def _set_browser_choice(request: Request, name: str, offered: tuple[str, ...]) -> HTTPResponse:
    choice = Form.from_request(request)[name]
    return_path = safe_path(guard.referring_path(request))
    response = view.redirect(request, return_path)
    if choice in offered:
        session.set_choice(request, response, name, choice)
    return response


def _list_languages(form: Form) -> list[tuple[str, str]]:
    """Return the languages of texts for recipients as (code, label), and the account's locale if it is another one."""
    names = [(code.replace("_", "-"), name) for code, name in recipient_texts.LANGUAGE_NAMES.items()]
    locale = form["locale"]
    if locale and locale not in dict(names):
        names.append(
            (locale, f"{recipient_texts.LANGUAGE_NAMES[recipient_texts.language_of_locale(locale)]} ({locale})")
        )
    return names


async def _render_account(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    config = request.app.ctx.config
    is_direct = config.email.transport == "direct"
    http_transport = TRANSPORTS.get(config.email.transport)
    return view.render(
        request, "settings/show.html", status, form=form, zones=time_zone_groups(form["time_zone"]),
        languages=_list_languages(form),
        countries=lookups.country_options(gettext("No country")), email=config.email, config=config,
        http_label=http_transport.label if http_transport else None,
        greets_as=smtp_connect.get_helo_name() if is_direct else None, steps=len(senders.DAILY_CAPS),
        beginning=await fetch(senders.list_warm_up_days,
            visit.account_id) if is_direct and config.email.direct.warm_up else (),
    )  # fmt: skip


# Consent and frequency rules.

IP_CHOICES = (
    (
        "truncated",
        gettext_noop("Shortened"),
        gettext_noop("Shows the country, but does not identify a contact."),
    ),
    ("full", gettext_noop("Full address"), gettext_noop("Requires a reason that your privacy notice states.")),
    ("none", gettext_noop("No IP address"), gettext_noop("No IP address is stored with activity.")),
)


_END_OF_DAY = "24:00"
_CONSENT_PARTS = FormParts(
    FormPart(gettext_noop("IP addresses"), ("privacy_ip",)),
    FormPart(gettext_noop("Frequency cap"), ("cap_messages", "cap_days")),
    FormPart(gettext_noop("Control group"), ("control_share",)),
    FormPart(gettext_noop("Attribution window"), ("attribution_days",)),
    FormPart(gettext_noop("UTM parameters"), tuple(utm_forms.FIELDS.values())),
    FormPart(
        gettext_noop("Allowed times for marketing email"),
        (*(f"calendar_{day}" for day in WEEKDAYS), "calendar_from", "calendar_to", "calendar_holidays"), True,
    ),
    FormPart(gettext_noop("Quiet hours"), ("quiet_from", "quiet_to")),
    FormPart(gettext_noop("Opt-out text"), ("sms_opt_out_hint", "sms_opt_out_hints")),
)  # fmt: skip


@pages.get("/settings/consent")
@signed_in("account:read")
async def show_consent(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of the consent and frequency rules."""
    return _render_consent(request, forms.open_form(_build_consent_form(visit.account), _CONSENT_PARTS))


def _render_consent(request: Request, form: Form, status: int = 200) -> HTTPResponse:
    weekdays = [(day, name_weekday(day)) for day in WEEKDAYS]
    return view.render(request, "settings/consent.html", status, form=form, ips=IP_CHOICES, weekdays=weekdays)


def _build_consent_form(account: Any) -> Form:
    """Return the form with the stored consent and frequency rules of an account."""
    cap, quiet = account.frequency_cap or {}, account.sms_quiet_hours or {}
    return Form({
        "privacy_ip": account.privacy_ip, "cap_messages": str(cap.get("messages", "")),
        "cap_days": str(cap.get("days", "")), "quiet_from": quiet.get("from", ""), "quiet_to": quiet.get("to", ""),
        "sms_opt_out_hint": account.sms_opt_out_hint or "",
        "control_share": f"{round(account.control_share * 100, 2):g}" if account.control_share else "",
        "attribution_days": str(account.attribution_days), **utm_forms.build_values(account.utm),
        "sms_opt_out_hints": "\n".join(f"{tag}: {hint}" for tag, hint in account.sms_opt_out_hints.items()),
        **_build_calendar_fields(account.marketing_calendar or {}),
    })  # fmt: skip


def _build_calendar_fields(calendar: dict[str, Any]) -> dict[str, str]:
    """Return the values of the fields for a stored calendar; all are empty if it is off.

    The end of the day is `00:00`, because the time fields of browsers have no `24:00`.
    """
    end = calendar.get("to", "")
    return {
        **{f"calendar_{day}": "yes" if day in calendar.get("days", ()) else "" for day in WEEKDAYS},
        "calendar_from": calendar.get("from", ""), "calendar_to": "00:00" if end == _END_OF_DAY else end,
        "calendar_holidays": "\n".join(calendar.get("holidays", ())),
    }  # fmt: skip


def _read_calendar(form: Form) -> dict[str, Any] | None:
    """Return the calendar of the form, None if all its fields are empty.

    Without a selected day, every day is allowed; without a time, the allowed hours begin or end with the day.
    """
    days = [day for day in WEEKDAYS if form[f"calendar_{day}"] == "yes"]
    holidays = form["calendar_holidays"].split()
    if not days and not holidays and not form["calendar_from"] and not form["calendar_to"]:
        return None
    end = _END_OF_DAY if form["calendar_to"] in ("", "00:00") else form["calendar_to"]
    return {"days": days or [*WEEKDAYS], "from": form["calendar_from"] or "00:00", "to": end, "holidays": holidays}


def _read_control_share(form: Form) -> float | None:
    """Return the share of the control group from a percentage, None if it is empty or 0."""
    try:
        share = float(parse_number(form["control_share"].removesuffix("%") or "0")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share <= accounts.MAX_CONTROL_SHARE:
        limit = formats.number(round(accounts.MAX_CONTROL_SHARE * 100))
        form.add_error("control_share", gettext("Enter a percentage from 0 to %(limit)s.", limit=limit))
    return share or None


def _read_days(form: Form) -> int:
    """Return the days of the attribution window; add an error unless they are a whole number within the limits."""
    limit = accounts.MAX_ATTRIBUTION_DAYS
    text = form["attribution_days"]
    days = int(text) if text.isdecimal() and len(text) < 9 else 0
    if not 1 <= days <= limit:
        form.add_error("attribution_days", gettext("Enter a whole number from 1 to %(limit)s.", limit=limit))
    return days


def _read_hints(form: Form) -> dict[str, str]:
    """Return the opt-out texts by language tag, from lines such as `de: STOP zum Abmelden`."""
    hints = {}
    for text_line in filter(str.strip, form["sms_opt_out_hints"].splitlines()):
        tag, colon, hint = (part.strip() for part in text_line.partition(":"))
        if not colon:
            form.add_error("sms_opt_out_hints", gettext("Each line needs a language code, a colon and a text."))
        hints[tag] = hint
    return hints


@pages.post("/settings/consent")
@signed_in("account:write")
@forms.retry_on_change
async def save_consent(request: Request, visit: Visit) -> HTTPResponse:
    """Save the form of the consent and frequency rules."""
    form = Form.from_request(request)
    forms.merge_form(form, _CONSENT_PARTS, _build_consent_form(await fetch(accounts.get, visit.account_id)))
    if form.conflicts:
        return _render_consent(request, form, 409)
    raw = {
        "privacy_ip": form["privacy_ip"], "sms_opt_out_hint": form.text("sms_opt_out_hint"),
        "sms_opt_out_hints": _read_hints(form),
        **({"utm": utm_forms.read_values(form)} if "utm_source" in form.values else {}),
        **({"control_share": _read_control_share(form)} if "control_share" in form.values else {}),
        **({"attribution_days": _read_days(form)} if "attribution_days" in form.values else {}),
        "frequency_cap": _read_pair(form, "cap_messages", "messages", "cap_days", "days", is_pair_required=True),
        "sms_quiet_hours": _read_pair(form, "quiet_from", "from", "quiet_to", "to"),
        "marketing_calendar": _read_calendar(form),
    }  # fmt: skip
    try:
        if form.errors:
            raise errors.Invalid({})
        body = validation.read(accounts.AccountWrite, raw)
        write = partial(_update, visit, body)
        await commit(
            forms.write_if_unchanged,
            form,
            _CONSENT_PARTS,
            lambda: _build_consent_form(accounts.get(visit.account_id)),
            write,
        )
    except errors.Invalid as error:
        names = {"messages": "cap_messages", "days": "cap_days", "from": "quiet_from", "to": "quiet_to",
                 "sms_quiet_hours": "quiet_to", **utm_forms.FIELDS}  # fmt: skip
        for path in [path for path in error.fields if path.startswith("marketing_calendar.")]:
            name = path.partition(".")[2].partition("[")[0]
            names[path] = f"calendar_{name}"
        for path in [path for path in error.fields if path.startswith("sms_opt_out_hints.")]:
            problem = gettext(
                "%(language)s: %(problem)s", language=path.partition(".")[2], problem=error.fields.pop(path)[0]
            )
            form.add_error("sms_opt_out_hints", problem)
        return _render_consent(request, form.add_errors(error, names) if error.fields else form, 422)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, "/settings/consent")


def _read_pair(
    form: Form, first: str, first_key: str, second: str, second_key: str, is_pair_required: bool = False
) -> dict[str, Any] | None:
    """Return the values of two fields as a dict of `first_key` and `second_key`, or None if both fields are empty.

    If only one of the fields is filled in, add an error to the empty field. With `is_pair_required` the values must be
    whole numbers.
    """
    if not form[first] and not form[second]:
        return None
    for name in (first, second):
        form.require(name, gettext("Fill in both fields or neither."))
    values = (form[first], form[second])
    if is_pair_required:
        for name in (first, second):
            if form[name] and not (form[name].isdecimal() and len(form[name]) < 9):
                form.add_error(name, gettext("Enter a whole number."))
        return {first_key: int(values[0]), second_key: int(values[1])} if not form.errors else None
    return {first_key: values[0], second_key: values[1]}


# Data.

_FIRST_ACCOUNT = 1


@pages.get("/settings/data")
@signed_in("account:read")
async def show_data(request: Request, visit: Visit) -> HTTPResponse:
    """Show the counts of stored objects, and the retention of events.

    Users who manage the installation also see the size and the path of its data directory.
    """
    loaded = config.current()
    directory = Path(loaded.data_dir)
    counts = await fetch(accounts.count_objects, visit.account_id)
    sent, skipped = await scan_for(visit.account_id, accounts.count_messages, visit.account_id)
    rules = _manages_installation(visit)
    size = await fetch(_directory_bytes, directory) if rules else 0
    return view.render(
        request, "settings/data.html", counts=counts | {"sent": sent}, skipped=skipped, size=size,
        where=str(loaded.data_dir) if rules else "",
        keep=config.parse_seconds(loaded.events.keep) // 86_400, version=VERSION,
    )  # fmt: skip


@pages.get("/restored")
@signed_in("account:read")
async def show_restored(request: Request, visit: Visit) -> HTTPResponse:
    """Show what would be sent once sending resumes after a backup was restored."""
    is_held = restore.is_account_held(visit.account)
    held_sending = await fetch(restore.find_held_sending, visit.account_id) if is_held else None
    return view.render(request, "settings/restored.html", held_sending=held_sending)


def _manages_installation(visit: Visit) -> bool:
    """Return whether the user is an owner or admin of the first account, which manages the data of all accounts."""
    return visit.can(access.ADMIN_SCOPE) and visit.account_id == _FIRST_ACCOUNT


def _directory_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*") if path.is_file())


# Health: the findings of `campanero doctor`, which runs on request.

log = logging.getLogger("campanero.ui")
_DOCTOR_TIMEOUT_SECONDS = 90.0
# One run at a time, because each starts a process.
_doctor_lock = asyncio.Lock()


@pages.get("/settings/doctor", strict_slashes=False)
@signed_in("account:read")
async def show_doctor(request: Request, visit: Visit) -> HTTPResponse:
    """Show the health page before `campanero doctor` has run."""
    return _render_doctor(request, visit, None)


@pages.post("/settings/doctor", strict_slashes=False)
@signed_in("account:write")
async def run_doctor(request: Request, visit: Visit) -> HTTPResponse:
    """Run `campanero doctor` in a separate process, and show its findings.

    Only users of the first account see details of the installation.
    """
    seed = ("--seed",) if Form.from_request(request)["seed"] else ()
    tenant = () if _manages_installation(visit) else ("--tenant",)
    directory = str(config.current().data_dir)
    arguments = ("doctor", "--json", "--account", str(visit.account_id), "--data", directory, *tenant, *seed)
    async with _doctor_lock:
        try:
            text = await asyncio.to_thread(executable.run_and_read, *arguments, seconds=_DOCTOR_TIMEOUT_SECONDS)
            data = msgspec.json.decode(text)["findings"]
        except (TimeoutError, msgspec.DecodeError, KeyError) as error:
            log.warning("doctor: run failed: %s", error)
            data = [
                {
                    "level": "fail",
                    "check": "doctor",
                    "words": gettext("did not respond: %(error)s", error=error),
                    "fix": "",
                    "title": gettext("Health check"),
                    "meaning": gettext("The checks could not be completed. Try again in a few minutes."),
                }
            ]
    return _render_doctor(request, visit, data)


def _render_doctor(request: Request, visit: Visit, rows: list[dict[str, Any]] | None) -> HTTPResponse:
    order = {"fail": 0, "warn": 1, "note": 2, "ok": 3}
    ordered = None if rows is None else sorted(rows, key=lambda finding: order[finding["level"]])
    may_run = visit.can("account:write")
    return view.render(request, "settings/doctor.html", findings=ordered, may_run=may_run)
