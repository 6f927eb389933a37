"""The settings of sending: email and SMS transports, relay tests, and sending domains."""

import asyncio
from collections.abc import Callable
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit, settings, transports
from appliance.core import errors, validation
from appliance.core.i18n import gettext, gettext_noop, ngettext, pgettext
from appliance.sending.delivery import relay_ports, smtp_connect
from appliance.sending.delivery.oauth import PROVIDERS
from appliance.sending.domains import keys, records, store
from appliance.sending.domains.records import Record
from appliance.sending.messages import oauth_grants
from appliance.sending.messages.oauth_grants import GrantStatus
from appliance.sending.transports import TRANSPORTS
from appliance.sending.transports.base import SettingField, Transport
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.settings.schema import Config, Email
from appliance.storage.models import SendingDomain
from appliance.storage.transactions import commit, fetch, fetch_inline
from ui import formats, forms, view
from ui.forms import Form, FormPart, FormParts, parse_int
from ui.forms.relay_presets import RELAY_PRESETS
from ui.guard import ignore_double_submit, signed_in
from ui.session import Pages, Visit
from ui.transport_labels import describe_rules, list_transports

pages = Pages("ui_sending", url_prefix="/settings")

# The settings of each HTTP API as the form shows them, by transport.
API_FIELDS = {
    name: [(f"email.{name}.{field.name}", field) for field in transport.fields]
    for name, transport in TRANSPORTS.items()
}
_API_SETTINGS = {setting: field for fields in API_FIELDS.values() for setting, field in fields}
SECRETS = {name for name, info in config.list_settings() if config.is_secret(info)}
EMAIL_SETTINGS = (
    "email.transport", "email.relay.host", "email.relay.port", "email.relay.tls", "email.relay.username",
    "email.relay.password", "email.relay.login", "email.allow_unverified_domains", "email.rate_per_hour",
    *_API_SETTINGS,
)  # fmt: skip
SMS_SETTINGS = (
    "sms.transport", "sms.twilio.account_sid", "sms.twilio.auth_token", "sms.twilio.from", "sms.http.url",
    "sms.http.secret",
)  # fmt: skip
FORM_PARTS = FormParts(
    FormPart(gettext_noop("Email sending method"), ("email.transport",)),
    FormPart(gettext_noop("Server"), ("email.relay.host",)), FormPart(gettext_noop("Port"), ("email.relay.port",)),
    FormPart(gettext_noop("Encryption"), ("email.relay.tls",)),
    FormPart(gettext_noop("Login"), ("email.relay.login",)),
    FormPart(gettext_noop("Username"), ("email.relay.username",)),
    FormPart(gettext_noop("Maximum emails per hour"), ("email.rate_per_hour",)),
    FormPart(gettext_noop("SMS provider"), ("sms.transport",)),
    FormPart(gettext_noop("Account SID"), ("sms.twilio.account_sid",)),
    FormPart(gettext_noop("Sender number or name"), ("sms.twilio.from",)),
    FormPart(gettext_noop("URL"), ("sms.http.url",)),
    *(FormPart(field.label, (name,)) for name, field in _API_SETTINGS.items() if name not in SECRETS),
)  # fmt: skip
_TEST_TIMEOUT_SECONDS = 20.0
# The transport settings apply to the whole installation, so only its first account may change them.
_FIRST_ACCOUNT = 1
# The titles of failed relay tests, by cause.
_OTHER_FAILURE = gettext_noop("%(server)s cannot be used with these settings")
_FAILURE_TITLES: dict[str, str] = {
    **dict.fromkeys(
        ("refused", "timed_out", "unknown_name", "no_name_server", "no_route", "closed"),
        gettext_noop("%(server)s cannot be reached"),
    ),
    **dict.fromkeys(("certificate", "tls"), gettext_noop("No encrypted connection to %(server)s")),
    **dict.fromkeys(("login", "consent"), gettext_noop("%(server)s rejected the login")),
    "busy": gettext_noop("%(server)s accepts no connections at the moment"),
    "rejected": gettext_noop("%(server)s rejected the connection"),
}  # fmt: skip
_FIELD_ERRORS = {
    "email.relay.host": gettext_noop("Enter the name of the server, such as smtp.example.com."),
    "email.relay.port": gettext_noop("Enter a number from 1 to 65535: 587 for STARTTLS, 465 for TLS."),
    "email.relay.password": gettext_noop(
        "Enter the password for this server. The saved password is for another server."
    ),
    "email.mailgun.domain": gettext_noop("Enter a domain, such as example.com."),
    "sms.twilio.account_sid": gettext_noop("Copy the account SID from the console. It starts with AC."),
    "sms.twilio.auth_token": gettext_noop("Copy the auth token from the console."),
    "sms.twilio.from": gettext_noop(
        "Enter a number such as +15551234567, a short code, or a name of up to 11 letters."
    ),
    "sms.http.url": gettext_noop("Enter the URL that receives each SMS. It starts with https://"),
    "sms.http.secret": gettext_noop("Enter the secret that signs each request."),
}


@pages.get("/sending", strict_slashes=False)
@signed_in("account:read")
async def show_transports(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of the transports with the active settings and the layer that each setting comes from.

    The query's `preset` fills in the server of a well-known relay, and `port` its other port.
    """
    form = forms.open_form(build_transport_form(), FORM_PARTS)
    fill_preset(form, request.args.get("preset") or "", request.args.get("port") or "")
    return _render_transports(request, visit, form, 200)


@pages.post("/sending", strict_slashes=False)
@signed_in("account:write")
@forms.retry_on_change
async def save_transports(request: Request, visit: Visit) -> HTTPResponse:
    """Save the email or SMS settings of the form, either all or none; workers apply them at once."""
    form = Form.from_request(request)
    names = SMS_SETTINGS if form["part"] == "sms" else EMAIL_SETTINGS
    forms.merge_form(form, FORM_PARTS, build_transport_form())
    if form.conflicts:
        return _render_transports(request, visit, form, 409)
    try:
        await save_settings(request, visit, form, names)
    except errors.Invalid as error:
        return _render_transports(request, visit, add_transport_errors(form, error), 422)
    if (path := await find_missing_connection()) is not None:
        return view.redirect(request, path)
    view.flash(request, gettext("Saved. New settings apply to all messages sent from now on."))
    return view.redirect(request, "/settings/sending")


@pages.post("/sending/test")
@signed_in("account:write")
async def test_connection(request: Request, visit: Visit) -> HTTPResponse:
    """Test the relay or HTTP API with the settings of the form, and show its response; nothing is saved or sent."""
    form = Form.from_request(request)
    test_result = await check_transport(visit, form)
    return _render_transports(request, visit, form, 422 if form.errors else 200, test_result=test_result)


def build_transport_form(loaded: Config | None = None) -> Form:
    """Return a form with the values of all transport settings, by default the active ones; secrets are left empty."""
    loaded, names = loaded or config.current(), EMAIL_SETTINGS + SMS_SETTINGS
    return Form({name: "" if name in SECRETS else _format_setting(config.get_value(loaded, name)) for name in names})


def _format_setting(value: Any) -> str:
    """Return the value of a setting as its form field contains it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def fill_preset(form: Form, key: str, port: str = "") -> None:
    """Fill in the settings of a relay preset, with its other port if `port` is that; an unknown key changes nothing."""
    if row := RELAY_PRESETS.get(key):
        chosen_port = row.other_port if port == str(row.other_port) else row.port
        form.values |= {
            "email.transport": "relay", "email.relay.host": row.host, "email.relay.port": str(chosen_port),
            "email.relay.tls": row.tls, "email.relay.username": row.username, "email.relay.login": row.login,
        }  # fmt: skip


async def save_settings(request: Request, visit: Visit, form: Form, names: tuple[str, ...]) -> None:
    """Save the named settings of a merged form, and apply them to the workers.

    Raises Invalid for invalid settings, NotAllowed unless the user belongs to the first account, and ChangedMeanwhile.
    """
    require_first_account(visit)
    changed = _changed_settings(form, names)

    def build_stored() -> Form:
        # The active settings may be older, because they are replaced after the commit.
        return build_transport_form(config.get_loaded().with_pages(settings.load()).config)

    def write() -> LoadedConfig:
        return record_change(visit, settings.save, changed)

    apply_settings(request, await commit(forms.write_if_unchanged, form, FORM_PARTS, build_stored, write))


def record_change(visit: Visit, function: Callable[..., LoadedConfig], *arguments: Any) -> LoadedConfig:
    """Call a function that stores settings, and record the names of those that differ afterwards, if any."""
    before = settings.load()
    loaded = function(*arguments)
    after = settings.load()
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        audit.record(visit.actor, visit.account_id, "settings_update", None, {"changed": changed})
    return loaded


async def find_missing_connection() -> str | None:
    """Return the path of the page that connects the mailbox, if the transport needs one that is not connected yet."""
    needed = await fetch(oauth_grants.find_needed_status)
    if needed is None or needed[1].state != "missing":
        return None
    return f"/settings/sending/connect/{needed[0]}"


def apply_settings(request: Request, loaded: LoadedConfig) -> None:
    """Apply saved settings to this process, including the workers."""
    config.set_current(loaded.config, loaded)
    request.app.ctx.config = loaded.config
    if (
        works := request.app.ctx.works
    ) is not None:  # at start the workers do not exist yet, and read the settings later
        works.renew()


def list_apis() -> list[tuple[Transport, list[tuple[str, SettingField, bool, bool]]]]:
    """Return each HTTP API with its settings for the form: (name, declaration, is a secret, is optional)."""
    return [
        (
            TRANSPORTS[name],
            [
                (setting, field, setting in SECRETS, setting not in config.list_required(name))
                for setting, field in fields
            ],
        )
        for name, fields in API_FIELDS.items()
    ]


def list_consents() -> dict[str, GrantStatus]:
    """Return the state of the consent of each provider of mailboxes (OAuth 2.0)."""
    return {name: fetch_inline(oauth_grants.find_status, name) for name in PROVIDERS}


def require_first_account(visit: Visit) -> None:
    """Raise NotAllowed unless the user belongs to the first account, which alone may change how messages are sent."""
    if visit.account_id != _FIRST_ACCOUNT:
        raise errors.NotAllowed(
            gettext("Only the first account of this installation can change how messages are sent.")
        )


def _is_hidden(name: str, transport: str) -> bool:
    """Return whether the page hides a setting while a transport of email is selected."""
    section = name.split(".")[1]
    return section != transport and (section == "relay" or section in TRANSPORTS) and name.startswith("email.")


def _changed_settings(form: Form, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings that a form changes, without those of the transports of email that are not selected.

    An empty secret leaves the stored secret unchanged; any other empty field resets its setting to the default (None).
    """
    current = build_transport_form()
    transport = form["email.transport"]
    posted = [
        name for name in names
        if name in form.values and settings.can_set(name) and not _is_hidden(name, transport)
    ]  # fmt: skip
    changes: dict[str, Any] = {name: form.text(name) for name in posted if form[name] != current[name]}
    for name in changes:
        if name in SECRETS:
            changes[name] = form.raw(name) or None
    return {name: value for name, value in changes.items() if not (name in SECRETS and value is None)}


async def check_transport(visit: Visit, form: Form) -> dict[str, Any] | None:
    """Test the connection and login to the relay or HTTP API of a form; return a dict of `good`, `title` and `words`.

    If settings are invalid, add errors to the form and return None. A stored password is only sent to the server that
    it was saved for. Raises NotAllowed unless the user belongs to the first account.
    """
    require_first_account(visit)
    transport = TRANSPORTS.get(form["email.transport"])
    selected = transport.name if transport else "relay"
    names = [name for name in EMAIL_SETTINGS if name in form.values and not _is_hidden(name, selected)]
    values = {name: value for name in names if (value := form.raw(name) or None) is not None}
    values["email.transport"] = selected
    try:
        email = (await fetch(settings.build_config, values)).config.email
    except errors.Invalid as error:
        add_transport_errors(form, error)
        return None
    return await check_connection(email)


async def check_connection(email: Email) -> dict[str, Any]:
    """Test the relay or HTTP API of these settings; return a dict of `good`, `title` and `words`."""
    transport = TRANSPORTS.get(email.transport)
    return await (_check_api(transport, email) if transport else _check_relay(email))


async def _check_api(transport: Transport, email: Email) -> dict[str, Any]:
    """Test the key of an HTTP API; the result has the provider's own words."""
    try:
        async with asyncio.timeout(_TEST_TIMEOUT_SECONDS):
            words = await transport.check(email)
    except (errors.DeliveryError, TimeoutError) as error:
        title = gettext(_FAILURE_TITLES.get(_find_cause(error), _OTHER_FAILURE), server=transport.label)
        text = _describe_failure(error) if isinstance(error, errors.DeliveryError) else _describe_timeout()
        return {"good": False, "title": title, "words": text}
    return {"good": True, "title": gettext("%(server)s is ready", server=transport.label), "words": words}


def _describe_failure(error: errors.DeliveryError) -> str:
    return " ".join(formats.sentence(text) for text in (error.text, error.help) if text)


def _find_cause(error: Exception) -> str:
    """Return the key in `_FAILURE_TITLES` for an error of an HTTP API, or `other`."""
    kinds = {errors.ConnectionFailed: "refused", errors.ClientRejected: "login", TimeoutError: "timed_out"}
    return next((cause for kind, cause in kinds.items() if isinstance(error, kind)), "other")


def _describe_timeout() -> str:
    seconds = round(_TEST_TIMEOUT_SECONDS)
    return ngettext("No response within %(num)s second.", "No response within %(num)s seconds.", seconds)


async def _check_relay(email: Email) -> dict[str, Any]:
    """Test the connection and login to a relay."""
    try:
        async with asyncio.timeout(_TEST_TIMEOUT_SECONDS):
            await smtp_connect.check_relay_login(email)
    except errors.DeliveryError as error:
        title = gettext(_FAILURE_TITLES.get(error.cause, _OTHER_FAILURE), server=_server_label(email, error.cause))
        # The title says that the server cannot be reached.
        place = smtp_connect.UNREACHABLE % {"host": email.relay.host, "port": email.relay.port, "error": ""}
        phrases = [formats.sentence(text) for text in (error.text.removeprefix(place), error.help) if text]
        if error.cause in relay_ports.SHUT_CAUSES:
            phrases += [await relay_ports.suggest_port(email.relay.host, email.relay.port)]
        return {"good": False, "title": title, "words": " ".join(phrases)}
    except TimeoutError:
        cause = "timed_out"
        title = gettext(_FAILURE_TITLES[cause], server=_server_label(email, cause))
        return {"good": False, "title": title, "words": _describe_timeout()}
    words = gettext("It accepts connections.")
    if email.relay.username:
        words = gettext("It accepts the login of %(username)s.", username=email.relay.username)
    return {"good": True, "title": gettext("%(server)s is ready", server=email.relay.host), "words": words}


def _server_label(email: Email, cause: str) -> str:
    """Return the host of a relay for a title, with its port if the relay could not be reached."""
    is_reached = cause in ("login", "consent", "busy", "rejected", "")
    return email.relay.host if is_reached else f"{email.relay.host}:{email.relay.port}"


def add_transport_errors(form: Form, error: errors.Invalid) -> Form:
    """Add the errors of settings to their fields as sentences, and return the form."""
    for name, messages in error.fields.items():
        field = name if name in form.values else "base"
        form.add_error(field, _describe_fault(name, messages[0]))
    return form


def _describe_fault(name: str, message: str) -> str:
    """Return the error of a setting as a sentence."""
    if name in _FIELD_ERRORS:
        return gettext(_FIELD_ERRORS[name])
    if name in _API_SETTINGS:
        if message.startswith("needed"):
            return gettext("%(field)s is required.", field=gettext(_API_SETTINGS[name].label))
        return gettext("%(field)s contains characters that are not allowed.", field=gettext(_API_SETTINGS[name].label))
    return f"{name}: {message}"


def _render_transports(
    request: Request, visit: Visit, form: Form, status: int, test_result: Any = None
) -> HTTPResponse:
    loaded = config.current()
    locked = {
        name: config.get_loaded().sources[name]
        for name in (*EMAIL_SETTINGS, *SMS_SETTINGS)
        if not settings.can_set(name)
    }
    stored = {name for name in SECRETS if config.get_value(loaded, name)}
    elsewhere = visit.account_id != _FIRST_ACCOUNT
    may_change = not elsewhere and visit.can("account:write")
    return view.render(
        request, "settings/sending.html", status, form=form, test_result=test_result,
        relays=RELAY_PRESETS if may_change else {},
        locked=locked, stored=stored, config=loaded, may_change=may_change, elsewhere=elsewhere, apis=list_apis(),
        transports=list_transports(loaded.email), rules=describe_rules(loaded.email),
        may_change_rules=may_change and transports.can_change(),
        consents=list_consents(),
        submission_host=config.get_submission_host(loaded),
    )  # fmt: skip


# Sending domains.

_PAGE_SIZE = 50
# The purpose of each DNS record, and why the sender needs it.
RECORD_PURPOSES = {
    "ownership": (gettext_noop("Domain ownership"), ""),
    "dkim": (
        gettext_noop("DKIM key"),
        gettext_noop("Lets mailbox providers verify that an email is yours and unaltered."),
    ),
    "dkim_next": (gettext_noop("Next DKIM key"), gettext_noop("Replaces the current key once this record is found.")),
    "dkim_second": (
        gettext_noop("Second DKIM key"),
        gettext_noop("A shorter kind of key that some receivers support."),
    ),
    "dkim_previous": (
        gettext_noop("Previous DKIM key"),
        gettext_noop("Keep it for a week: emails in transit are still checked with it."),
    ),
    "return_path": (
        gettext_noop("Return path"),
        gettext_noop("Receives bounces, so that invalid addresses are suppressed."),
    ),
    "spf": (
        gettext_noop("SPF for the return path"),
        gettext_noop("Authorises your sending server. Your own SPF record stays as it is."),
    ),
    "dmarc": (
        gettext_noop("DMARC policy"),
        gettext_noop("Required by large mailbox providers. If you already have a stricter policy, keep it."),
    ),
    "tracking": (
        gettext_noop("Tracking domain"),
        gettext_noop("Links in your emails show your domain instead of this installation’s."),
    ),
}
_NAME_FAULTS = {
    "is invalid": gettext_noop("Enter only the domain name, such as example.com."),
    "is reserved": gettext_noop("This domain belongs to a mailbox provider. Add one of your own."),
    "has already been taken": gettext_noop("This domain has already been added."),
}


@pages.get("/domains", strict_slashes=False)
@signed_in("domains:read")
async def list_domains(request: Request, visit: Visit) -> HTTPResponse:
    """Show the table of sending domains."""
    query = validation.read(store.DomainQuery, {"page": parse_int(request.args.get("page")), "limit": _PAGE_SIZE})
    page = await fetch(store.list_domains, visit.account_id, query)
    return view.render(
        request,
        "settings/domains.html",
        page=page,
        state=domain_badge,
        display_domain=records.display_domain,
        may_edit=_can_edit_domains(visit),
    )


@pages.get("/domains/new")
@signed_in("domains:write")
async def new_domain(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form for a new sending domain."""
    return view.render(request, "settings/domain_new.html", form=Form(), may_edit=_can_edit_domains(visit))


@pages.post("/domains", strict_slashes=False)
@signed_in("domains:write")
@ignore_double_submit
async def create_domain(request: Request, visit: Visit) -> HTTPResponse:
    """Add a sending domain, and redirect to its DNS records."""
    form = Form.from_request(request)
    created = await add_domain(request, visit, form)
    if created is None:
        return view.render(request, "settings/domain_new.html", 422, form=form, may_edit=_can_edit_domains(visit))
    view.flash(
        request,
        gettext(
            "%(domain)s added. Now add its records at your DNS provider.", domain=records.display_domain(created.name)
        ),
    )
    return view.redirect(request, f"/settings/domains/{created.id}")


async def add_domain(request: Request, visit: Visit, form: Form) -> SendingDomain | None:
    """Create the sending domain of a form with its DKIM keys; on failure add errors to the form and return None."""
    form.require("name", gettext("Enter a domain, such as example.com."))
    if form.errors:
        return None
    try:
        body = validation.read(store.DomainCreate, {"domain": {"name": form["name"]}})
        await fetch(store.validate_name, visit.account_id, body)
        pairs = await asyncio.to_thread(keys.generate_keys)
        return await commit(store.create, visit.account_id, body, pairs, visit.actor)
    except errors.Invalid as error:
        for message in error.fields.get("domain.name", ["is invalid"]):
            sentence = next((text for fault, text in _NAME_FAULTS.items() if message == gettext(fault)), None)
            form.add_error("name", gettext(sentence) if sentence else formats.sentence(message))
        return None


@pages.get("/domains/<domain_id:int>")
@signed_in("domains:read")
async def show_domain(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """Show the DNS records of a sending domain and their states."""
    return await _render_domain(request, visit, domain_id, 200)


@pages.post("/domains/<domain_id:int>/verify")
@signed_in("domains:write")
async def verify_domain(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """Look up the DNS records of a sending domain now."""
    params = await fetch(lambda: store.prepare_check(store.get(visit.account_id, domain_id).id))
    if params is not None:
        await store.check_now(params)
    row = await fetch(store.get, visit.account_id, domain_id)
    is_verified = row.status == "verified"
    view.flash(request, gettext("Domain verified.") if is_verified else gettext("DNS records checked."))
    return view.redirect(request, f"/settings/domains/{domain_id}")


@pages.post("/domains/<domain_id:int>/rotate")
@signed_in("domains:write")
async def rotate_domain_key(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """Create the next DKIM key of a sending domain."""
    await fetch(store.get, visit.account_id, domain_id)
    pairs = await asyncio.to_thread(keys.generate_keys)
    await commit(store.rotate_key, visit.account_id, domain_id, pairs, visit.actor)
    view.flash(request, gettext("New key created. Add its DNS record; the key is used once the record is found."))
    return view.redirect(request, f"/settings/domains/{domain_id}")


@pages.post("/domains/<domain_id:int>/delete")
@signed_in("domains:write")
async def delete_domain(request: Request, visit: Visit, domain_id: int) -> HTTPResponse:
    """Delete a sending domain with its keys; if a scheduled or running campaign uses it, show an error."""
    try:
        deleted = await commit(store.delete, visit.account_id, domain_id, visit.actor)
    except errors.Invalid as error:
        form = Form()
        used = ", ".join(str(sender["name"]) for sender in error.extra["used_by"])
        form.add_error(
            "base",
            gettext(
                "Scheduled or sending campaigns use this domain: %(names)s. Cancel or unschedule them first.",
                names=used,
            ),
        )
        return await _render_domain(request, visit, domain_id, 422, form)
    view.flash(request, gettext("%(domain)s deleted.", domain=records.display_domain(deleted.name)))
    return view.redirect(request, "/settings/domains")


async def _render_domain(
    request: Request, visit: Visit, domain_id: int, status: int, form: Form | None = None
) -> HTTPResponse:
    row = await fetch(store.get, visit.account_id, domain_id)
    dns_records = await fetch(records.get_records, row)
    required_records = [record for record in dns_records if record.required or record.purpose == "dkim_next"]
    return view.render(
        request, "settings/domain.html", status, row=row, form=form or Form(), may_edit=_can_edit_domains(visit),
        state=domain_badge, display_domain=records.display_domain, required_records=required_records,
        other_records=[record for record in dns_records if record not in required_records], purposes=RECORD_PURPOSES,
        zone=records.write_zone_file(dns_records), look=record_badge, host=records.get_link_host(),
        public=records.has_public_name(),
        listens=bool(request.app.ctx.config.inbound.listen),
        has_next_key=any(record.purpose == "dkim_next" for record in dns_records),
    )  # fmt: skip


def domain_badge(row: SendingDomain) -> tuple[str, str]:
    """Return the state of a sending domain as (colour class, label)."""
    if row.status == "verified":
        return ("paused", gettext("Needs attention")) if row.attention else ("done", gettext("Verified"))
    return ("failed", pgettext("domain", "Failed")) if row.status == "failed" else ("sched", gettext("Waiting for DNS"))


def record_badge(record: Record) -> tuple[str, str]:
    """Return the state of a DNS record as (colour class, label)."""
    if record.valid == "valid":
        return "done", gettext("Found")
    if not record.value:
        return "paused", gettext("Needs a public address")
    if record.valid == "unknown":
        is_new = record.checked_at is None
        return ("draft", gettext("Not checked yet")) if is_new else ("paused", gettext("DNS lookup failed"))
    missing = "failed" if record.required else "paused"
    return (missing, gettext("Wrong value")) if record.found else (missing, gettext("Not found"))


def _can_edit_domains(visit: Visit) -> bool:
    return visit.can("domains:write")
