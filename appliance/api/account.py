"""The account over the API."""

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import astuple

from appliance import VERSION
from appliance.accounts import accounts, audit
from appliance.accounts.accounts import AccountWrite
from appliance.api import brand_shapes, shapes, shaping
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.shapes import Moment
from appliance.content import brand
from appliance.content.brand import BrandWrite
from appliance.core import data_dir
from appliance.core.clock import iso
from appliance.sending.messages import sms_senders
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage.models import Account as AccountRow
from appliance.storage.open import scalar
from appliance.storage.work import call, commit

# Shapes within an account: what carries its messages, what it can do, how far it is, how much it sent.


class Transports(Struct):
    """What carries messages, by channel."""

    email: str
    sms: str


class Capabilities(Struct):
    """What an installation can do."""

    email: bool
    sms: bool
    tracking: bool
    inbound: bool


class FirstSteps(Struct):
    """The first steps of an account, each with whether it is done."""

    brand_setup: bool
    domain_verified: bool
    first_contact: bool
    first_draft: bool
    first_send: bool


class Progress(Struct):
    """How many of the first steps are done."""

    completed: int
    total: int


class Onboarding(Struct):
    """How far an account is."""

    steps: FirstSteps
    progress: Progress


class Usage(Struct):
    """What was handed over in the last 30 days, without tests."""

    since: Moment
    email_sent: int
    sms_sent: int
    sms_parts: int


ROUTES = Routes()


class Blocker(Struct):
    """What keeps an account from sending, or should be looked at."""

    code: str
    severity: str
    message: str


class Account(Struct):
    """An account and what it can do."""

    id: int
    base_url: str
    version: str
    created_at: shapes.Moment
    updated_at: shapes.Moment
    name: str
    time_zone: str
    locale: str
    country_code: str | None
    email_from_name: str | None
    email_from_email: str | None
    email_reply_to: str | None
    sms_from: str | None
    test_email_recipients: list[str]
    can_send: bool
    blockers: list[Blocker]
    using_sandbox: bool
    domain_verified: bool
    transport: Transports
    capabilities: Capabilities
    onboarding: Onboarding
    approval_required: bool
    approval_by_another: bool
    block_on_missing_variable: bool
    transactional_allowed: bool
    sending_stopped: bool
    stop_reason: str | None
    frequency_cap: accounts.FrequencyCap | None
    sms_quiet_hours: accounts.QuietHours | None
    sms_opt_out_hint: str | None
    privacy_ip: Literal["truncated", "full", "none"]
    counts: dict[str, int]
    usage: Usage
    brand: brand_shapes.Brand


@ROUTES.add("GET", "/account", scope="account:read", returns=Account)
async def show(request: Call) -> Answer:
    """Get the account: what it is called, what it can do, what stands in its way."""
    return Answer(await call(lambda: _shaped(accounts.get(request.account_id))))


@ROUTES.add(
    "PATCH", "/account", scope="account:write", reads=AccountWrite, inside=checked(accounts.check, parses=True),
    returns=Account,
)  # fmt: skip
async def update(request: Call) -> Answer:
    """Update names, senders and the time zone of the account."""
    told = audit.changed(request.body)
    changed = await commit(
        audit.noting, request.by, "account_update", accounts.update, request.account_id, request.body, data=told
    )
    return Answer(await call(_shaped, changed))


def _shaped(row: AccountRow) -> Account:
    here = config.current()
    sandbox = here.email.transport == "capture"
    verified = bool(
        scalar("SELECT 1 FROM sending_domain WHERE account_id = ? AND status = 'verified' LIMIT 1", (row.id,))
    )
    identity = brand.get(row.id)
    counts = accounts.counts(row.id)
    blockers = _blockers(row, sandbox, verified, bool(identity.physical_address))
    values: dict[str, Any] = {
        name: getattr(row, name)
        for name in Account.__struct_fields__
        if name in AccountRow._meta.fields and name not in ("created_at", "updated_at")
    }
    return Account(
        **values,
        base_url=config.base_url(here), version=VERSION, created_at=iso(row.created_at) or "",
        updated_at=iso(row.updated_at) or "", can_send=not any(one.severity == "error" for one in blockers),
        blockers=blockers, using_sandbox=sandbox, domain_verified=verified,
        transport=Transports(here.email.transport, here.sms.transport),
        capabilities=Capabilities(True, _carries_sms(here), True, bool(here.inbound.listen)),
        onboarding=_onboarding(row, verified, identity.brand_color is not None, counts),
        counts=counts, usage=Usage(**accounts.usage(row.id)), brand=shaping.brand(identity),
    )  # fmt: skip


def _carries_sms(here: Config) -> bool:
    provider = PROVIDERS.get(here.sms.transport)
    return provider is not None and not provider.lacks()


def _blockers(row: AccountRow, sandbox: bool, verified: bool, address: bool) -> list[Blocker]:
    severity = "warning" if sandbox else "error"
    found = []
    if row.sending_stopped:
        words = f"sending is stopped: {row.stop_reason}" if row.stop_reason else "sending is stopped by a person"
        found.append(Blocker("sending_stopped", "error", words))
    if data_dir.is_stopped(config.current().data_dir):
        words = "a file STOP in the data directory stops all sending of this installation; remove it to go on"
        found.append(Blocker("stop_file", "error", words))
    if not verified:
        lenient = sandbox or config.current().email.allow_unverified_domains
        found.append(Blocker("domain_unverified", "warning" if lenient else "error", "no sending domain is verified"))
    if not address:
        found.append(Blocker("postal_address_missing", severity, "the brand has no postal address"))
    for _, words in sms_senders.problems(row, config.current().sms.transport):
        found.append(Blocker("sms_sender_missing", "warning", words))
    return found


def _onboarding(row: AccountRow, verified: bool, branded: bool, counts: dict[str, int]) -> Onboarding:
    sent = scalar("SELECT 1 FROM campaign WHERE account_id = ? AND started_at IS NOT NULL LIMIT 1", (row.id,))
    steps = FirstSteps(branded, verified, counts["contacts"] > 0, counts["campaigns"] > 0, sent is not None)
    done = astuple(steps)
    return Onboarding(steps, Progress(sum(done), len(done)))


# The brand over the API.


@ROUTES.add("GET", "/brand", scope="account:read", returns=brand_shapes.Brand)
async def show_brand(request: Call) -> Answer:
    """Get the brand identity."""
    return Answer(shaping.brand(await call(brand.get, request.account_id)))


@ROUTES.add(
    "PUT", "/brand", scope="account:write", reads=BrandWrite, inside=checked(brand.check), returns=brand_shapes.Brand
)
async def update_brand(request: Call) -> Answer:
    """Update the brand identity; absent fields stay."""
    return Answer(
        shaping.brand(
            await commit(audit.noting, request.by, "brand_update", brand.update, request.account_id, request.body)
        )
    )
