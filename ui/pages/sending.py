"""How mail and SMS leave: chosen, tried and saved here, as far as whoever runs the machine has not fixed it."""

import asyncio
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit, settings
from appliance.core import errors
from appliance.sending.delivery import providers
from appliance.settings import config
from appliance.settings.config import Loaded
from appliance.settings.schema import Email
from appliance.storage.work import call, commit
from ui import rights, together, view, words
from ui.forms import Form
from ui.guard import signed_in
from ui.relays import RELAYS
from ui.session import Pages, Visit
from ui.together import Part, Parts

pages = Pages("ui_sending", url_prefix="/settings/sending")
EMAIL = (
    "email.transport", "email.relay.host", "email.relay.port", "email.relay.tls", "email.relay.username",
    "email.relay.password", "email.allow_unverified_domains", "email.rate_per_hour",
)  # fmt: skip
SMS = (
    "sms.transport", "sms.twilio.account_sid", "sms.twilio.auth_token", "sms.twilio.from", "sms.http.url",
    "sms.http.secret",
)  # fmt: skip
PARTS = Parts(
    Part("How email leaves", ("email.transport",)), Part("Server", ("email.relay.host",)),
    Part("Port", ("email.relay.port",)), Part("Encryption", ("email.relay.tls",)),
    Part("Name to sign in with", ("email.relay.username",)), Part("Emails an hour", ("email.rate_per_hour",)),
    Part("How SMS leave", ("sms.transport",)), Part("Account SID", ("sms.twilio.account_sid",)),
    Part("Sender number or name", ("sms.twilio.from",)), Part("Address", ("sms.http.url",)),
)  # fmt: skip
_SECRETS = {name for name, info in config.leaves() if config.is_secret(info)}
_TRY_SECONDS = 20.0
# Settings are the whole installation's: the account that was there first keeps them.
_FIRST_ACCOUNT = 1
# The title of a failed test, by its cause
_TITLES: dict[str, str] = {
    **dict.fromkeys(
        ("refused", "timed_out", "unknown_name", "no_name_server", "no_route", "closed"), "{} cannot be reached"
    ),
    **dict.fromkeys(("certificate", "tls"), "No encrypted connection to {}"),
    "login": "{} rejected the login", "busy": "{} takes no connections at the moment",
    "rejected": "{} rejected the connection",
}  # fmt: skip
_WORDS = {
    "email.relay.host": "Write the name of the server, like smtp.example.com.",
    "email.relay.port": "A port is a number from 1 to 65535: 587 with STARTTLS, 465 with TLS.",
    "email.relay.password": "Write the password of this server: the one that is kept is for another.",
    "sms.twilio.account_sid": "Copy the account SID from the console; it begins with AC.",
    "sms.twilio.auth_token": "Copy the auth token from the console.",
    "sms.twilio.from": "Write a number like +15551234567, a short code, or a name of up to 11 letters.",
    "sms.http.url": "Write the address that takes each SMS; it begins with https://",
    "sms.http.secret": "Write the secret that signs what is posted.",
}


@pages.get("/", name="show", strict_slashes=False)
@signed_in
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """What is in force, where it was set, and the form for what may be changed here; a preset fills in its server."""
    form = together.opened(present(EMAIL + SMS), PARTS)
    fill_preset(form, request.args.get("preset") or "")
    return _page(request, visit, form, 200)


@pages.post("/", name="save", strict_slashes=False)
@signed_in
async def save(request: Request, visit: Visit) -> HTTPResponse:
    """Keep what was changed, all or nothing; senders take it over at once."""
    form = Form.of(request)
    names = SMS if form["part"] == "sms" else EMAIL
    together.meet(form, PARTS, present(EMAIL + SMS))
    if form.met:
        return _page(request, visit, form, 409)
    try:
        await keep(request, visit, form, names)
    except errors.Invalid as refused:
        return _page(request, visit, noted(form, refused), 422)
    view.say(request, "Saved. What is sent from now on goes this way.")
    return view.go(request, "/settings/sending")


@pages.post("/test", name="test")
@signed_in
async def test(request: Request, visit: Visit) -> HTTPResponse:
    """Ask the server that the form names, and show its own words; nothing is saved and nothing is sent."""
    form = Form.of(request)
    answer = await tried(visit, form)
    return _page(request, visit, form, 422 if form.errors else 200, answer=answer)


def present(names: tuple[str, ...]) -> Form:
    """Return a form with what is in force; secrets are never shown."""
    here = config.current()
    return Form({name: "" if name in _SECRETS else _written(config.value_of(here, name)) for name in names})


def _written(value: Any) -> str:
    """Return a setting as its field holds it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def fill_preset(form: Form, key: str) -> None:
    """Fill in the server of a well-known service."""
    if found := RELAYS.get(key):
        form.values |= {
            "email.transport": "relay", "email.relay.host": found.host, "email.relay.port": str(found.port),
            "email.relay.tls": found.tls, "email.relay.username": found.username,
        }  # fmt: skip


async def keep(request: Request, visit: Visit, form: Form, names: tuple[str, ...]) -> None:
    """Save what a form says of these settings, and let the senders take it over; raises Invalid, NotAllowed."""
    _must_be_first(visit)
    changed = _changed(form, names)

    def verb() -> Loaded:
        audit.note(visit.by, visit.account_id, "settings_update", None, {"changed": sorted(changed)})
        return settings.save(changed)

    loaded = await commit(verb)
    config.use(loaded.config, loaded)
    request.app.ctx.config = loaded.config
    if (works := request.app.ctx.works) is not None:  # or they begin with these a moment later
        works.renew()


def _must_be_first(visit: Visit) -> None:
    if visit.account_id != _FIRST_ACCOUNT:
        raise errors.NotAllowed("How messages leave is settled by the first account of this installation.")


def _changed(form: Form, names: tuple[str, ...]) -> dict[str, Any]:
    """Return what differs from what is in force; an empty secret stays as it is, an empty field is the default."""
    before = present(names)
    posted = [name for name in names if name in form.values and settings.may_set(name)]
    found: dict[str, Any] = {name: form.text(name) for name in posted if form[name] != before[name]}
    for name in found:
        if name in _SECRETS:
            found[name] = form.exact(name) or None
    return {name: value for name, value in found.items() if not (name in _SECRETS and value is None)}


async def tried(visit: Visit, form: Form) -> dict[str, Any] | None:
    """Return whether the relay of a form accepts us, in its own words; what cannot be asked is noted at its field.

    A password that is kept goes to the server alone that it was written for. Raises NotAllowed.
    """
    _must_be_first(visit)
    values = {name: form.exact(name) or None for name in EMAIL if name in form.values}
    values = {name: value for name, value in values.items() if value is not None}
    values["email.transport"] = "relay"
    try:
        email = (await call(settings.joined, values)).config.email
        async with asyncio.timeout(_TRY_SECONDS):
            await providers.greet(email)
    except errors.Invalid as refused:
        noted(form, refused)
        return None
    except errors.DeliveryError as error:
        title = _TITLES.get(error.cause, "{} cannot be used with these settings").format(_place(email, error.cause))
        said = [words.sentence(one) for one in (error.text, error.help) if one]
        return {"good": False, "title": title, "words": " ".join(said)}
    except TimeoutError:
        title = _TITLES["timed_out"].format(_place(email, "timed_out"))
        return {"good": False, "title": title, "words": f"No answer within {_TRY_SECONDS:g} seconds."}
    login = f" and accepts the login of {email.relay.username}" if email.relay.username else ""
    return {"good": True, "title": f"{email.relay.host} is ready", "words": f"It answers{login}."}


def _place(email: Email, cause: str) -> str:
    """Return the server as a title names it: with its port, where that is what cannot be reached."""
    is_reached = cause in ("login", "busy", "rejected", "")
    return email.relay.host if is_reached else f"{email.relay.host}:{email.relay.port}"


def noted(form: Form, refused: errors.Invalid) -> Form:
    """Note faults at their fields, in words for people."""
    for name, messages in refused.fields.items():
        field = name if name in form.values else "base"
        form.wrong(field, _WORDS.get(name) or f"{name}: {messages[0]}")
    return form


def _page(request: Request, visit: Visit, form: Form, status: int, answer: Any = None) -> HTTPResponse:
    here = config.current()
    locked = {name: config.layers().sources[name] for name in (*EMAIL, *SMS) if not settings.may_set(name)}
    stored = {name for name in _SECRETS if config.value_of(here, name)}
    elsewhere = visit.account_id != _FIRST_ACCOUNT
    may_change = not elsewhere and rights.may(visit.user.role, "POST", "/settings/sending")
    return view.page(
        request, "settings/sending.html", status, form=form, answer=answer, relays=RELAYS if may_change else {},
        locked=locked, stored=stored, config=here, may_change=may_change, elsewhere=elsewhere,
    )  # fmt: skip
