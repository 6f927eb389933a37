"""Endpoints of the account and its brand."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import astuple

from appliance import VERSION
from appliance.accounts import accounts, audit
from appliance.accounts.accounts import AccountWrite
from appliance.accounts.public_urls import base_url_of
from appliance.api import schemas
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.schemas import Json, Moment
from appliance.content import brand, media
from appliance.content.brand import BrandWrite
from appliance.core import data_dir
from appliance.core.clock import iso
from appliance.sending.messages import senders
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage.database import scalar
from appliance.storage.models import Account as AccountRow
from appliance.storage.models import Brand as BrandRow
from appliance.storage.transactions import commit, fetch, render


class BrandLink(Struct):
    """A link of the brand."""

    url: Annotated[str, Meta(description="URL of the link: http, https or mailto")]
    icon: Annotated[str, Meta(description="name of the icon")]
    title: Annotated[str, Meta(description="title of the link")]


class Brand(Struct):
    """The brand of an account: colours, fonts, logo, company and postal address."""

    id: int
    account_id: int
    brand_color: Annotated[str, Meta(description="colour of buttons and links, such as `#0a7d52`")] | None
    text_color: Annotated[str, Meta(description="text colour")] | None
    bg_color: Annotated[str, Meta(description="background colour")] | None
    font_heading: Annotated[str, Meta(description="font of headings")] | None
    font_body: Annotated[str, Meta(description="font of text")] | None
    style_notes: Annotated[str, Meta(description="description of the visual style")] | None
    tone: Annotated[str, Meta(description="tone of voice")] | None
    company_description: Annotated[str, Meta(description="description of the company")] | None
    industry: Annotated[str, Meta(description="industry of the company")] | None
    example_copy: Annotated[list[str], Meta(description="sample texts in the brand's tone")] | None
    default_header: Annotated[Json, Meta(description="default properties of headers")]
    default_footer: Annotated[Json, Meta(description="default properties of footers")]
    default_theme: Annotated[Json, Meta(description="default theme of designs")]
    physical_address: Annotated[str, Meta(description="postal address, included in every marketing email")] | None
    company_name: Annotated[str, Meta(description="name of the company")] | None
    source_url: Annotated[str, Meta(description="always null: no website is read")] | None
    last_scraped_at: Annotated[Moment, Meta(description="always null: no website is read")] | None
    links: Annotated[list[BrandLink], Meta(description="links to websites and social profiles")]
    logo: Annotated[str, Meta(description="URL of the logo")] | None
    complete: Annotated[bool, Meta(description="true if `brand_color` and `company_name` are set")]
    created_at: Moment
    updated_at: Moment


class Transports(Struct):
    """The transport of each channel, such as `capture` or `relay`."""

    email: Annotated[str, Meta(description="transport for email")]
    sms: Annotated[str, Meta(description="transport for SMS")]


class Capabilities(Struct):
    """What the installation can do with its current configuration."""

    email: Annotated[bool, Meta(description="whether email can be sent")]
    sms: Annotated[bool, Meta(description="whether SMS can be sent")]
    tracking: bool
    inbound: Annotated[
        bool,
        Meta(
            description="whether this installation receives bounces, spam complaints and unsubscribe requests by email"
        ),
    ]


class OnboardingSteps(Struct):
    """The onboarding steps, and whether each is done."""

    brand_setup: Annotated[bool, Meta(description="true if the brand has a colour")]
    domain_verified: Annotated[bool, Meta(description="true if a sending domain is verified")]
    first_contact: Annotated[bool, Meta(description="true if there is at least one contact")]
    first_draft: Annotated[bool, Meta(description="true if there is at least one campaign")]
    first_send: Annotated[bool, Meta(description="true if a campaign was sent")]


class OnboardingProgress(Struct):
    """The number of completed onboarding steps."""

    completed: Annotated[int, Meta(description="number of completed steps")]
    total: Annotated[int, Meta(description="total number of steps")]


class Onboarding(Struct):
    """The onboarding steps of an account, and how many of them are completed."""

    steps: Annotated[OnboardingSteps, Meta(description="onboarding steps")]
    progress: Annotated[OnboardingProgress, Meta(description="number of completed steps")]


class AccountUsage(Struct):
    """Messages sent in the last 30 days, without tests."""

    since: Moment
    email_sent: Annotated[int, Meta(description="number of emails sent")]
    sms_sent: Annotated[int, Meta(description="number of SMS sent")]
    sms_parts: Annotated[int, Meta(description="number of SMS parts sent")]


ROUTES = Routes()


class Blocker(Struct):
    """A problem that prevents sending (`severity` is `error`), or a warning."""

    code: Annotated[str, Meta(description="code for programs")]
    severity: Annotated[str, Meta(description="`error` blocks sending, `warning` does not")]
    message: str


class Account(Struct):
    """An account with its settings, capabilities and usage, and what blocks sending."""

    id: int
    base_url: Annotated[str, Meta(description="URL of the installation: of its interface and of the API")]
    public_url: Annotated[
        str,
        Meta(
            description="URL with which links in messages, forms and images begin: the address that the operator has "
            "set for this account, else `base_url`"
        ),
    ]
    version: Annotated[str, Meta(description="version of the service")]
    created_at: schemas.Moment
    updated_at: schemas.Moment
    name: Annotated[str, Meta(description="name of the account")]
    time_zone: Annotated[
        str, Meta(description="time zone for dates without a time and for times of day, such as `Europe/Berlin`")
    ]
    locale: Annotated[str, Meta(description="language of the pages for recipients, such as `en`")]
    country_code: (
        Annotated[
            str,
            Meta(
                description="two-letter country code that applies to phone numbers without a country code in "
                "imports, forms and pages"
            ),
        ]
        | None
    )
    email_from_name: Annotated[str, Meta(description="default sender name of emails")] | None
    email_from_email: Annotated[str, Meta(description="default sender address of emails")] | None
    email_reply_to: Annotated[str, Meta(description="default address for replies to emails")] | None
    sms_from: Annotated[str, Meta(description="sender number or name of SMS")] | None
    test_email_recipients: Annotated[
        list[str], Meta(description="recipients of test emails for which no address is given")
    ]
    can_send: Annotated[bool, Meta(description="true if nothing blocks sending")]
    blockers: Annotated[list[Blocker], Meta(description="problems that block sending or need attention")]
    using_sandbox: Annotated[bool, Meta(description="true if email is captured and does not leave the machine")]
    domain_verified: Annotated[bool, Meta(description="true if at least one sending domain is verified")]
    transport: Annotated[Transports, Meta(description="transports for `email` and `sms`")]
    capabilities: Annotated[
        Capabilities, Meta(description="features of this installation: `email`, `sms`, `tracking`, `inbound`")
    ]
    onboarding: Annotated[Onboarding, Meta(description="onboarding steps and progress")]
    approval_required: Annotated[
        bool, Meta(description="whether campaigns and flows need approval before they are sent")
    ]
    approval_by_another: Annotated[
        bool,
        Meta(description="whether a user other than author and requester must approve, if there is one"),
    ]
    block_on_missing_variable: Annotated[
        bool, Meta(description="whether a merge tag without a value blocks a campaign")
    ]
    transactional_allowed: Annotated[
        bool, Meta(description="whether messages that need no consent, such as receipts, may be sent")
    ]
    sending_stopped: Annotated[
        bool,
        Meta(
            description="whether a user, or the restore of a backup, has stopped all sending; new sends are accepted "
            "and wait"
        ),
    ]
    stop_reason: Annotated[str, Meta(description="reason; `restored` after a restore; null if none was given")] | None
    frequency_cap: (
        Annotated[
            accounts.FrequencyCap,
            Meta(description="maximum number of marketing messages per contact; null for no limit"),
        ]
        | None
    )
    control_share: (
        Annotated[float, Meta(description="share of contacts who get no campaigns, to be measured; null for none")]
        | None
    )
    attribution_days: Annotated[
        int,
        Meta(
            description="attribution window: for how many days after a click orders and other custom events count "
            "as its result; in a replay of a flow, after a message"
        ),
    ]
    utm: (
        Annotated[schemas.Utm, Meta(description="UTM parameters of the links in campaigns and flows; null for none")]
        | None
    )
    sms_quiet_hours: (
        Annotated[accounts.QuietHours, Meta(description="hours in which no marketing SMS is sent; null for none")]
        | None
    )
    marketing_calendar: (
        Annotated[accounts.MarketingCalendar, Meta(description="when marketing email may be sent; null for any time")]
        | None
    )
    sms_opt_out_hint: (
        Annotated[str, Meta(description="text appended to marketing SMS, such as `STOP to opt out`; null for none")]
        | None
    )
    sms_opt_out_hints: Annotated[
        dict[str, str], Meta(description="the same text in other languages, by language tag, for contacts with them")
    ]
    privacy_ip: Annotated[
        Literal["truncated", "full", "none"], Meta(description="how visitors' IP addresses are stored")
    ]
    counts: Annotated[dict[str, int], Meta(description="number of objects of each kind")]
    usage: Annotated[AccountUsage, Meta(description="recent sending volume")]
    brand: Annotated[Brand, Meta(description="brand of the account")]


@ROUTES.add("GET", "/account", scope="account:read", agent_scope="account:read", response_type=Account)
async def get_account(request: ApiRequest) -> ApiResponse:
    """Get the account with its settings, capabilities and blockers."""
    return ApiResponse(await fetch(lambda: _serialize_account(accounts.get(request.account_id))))


@ROUTES.add(
    "PATCH", "/account", scope="account:write", body_type=AccountWrite, response_type=Account,
    validate=validator(accounts.validate, run=render),
)  # fmt: skip
async def update_account(request: ApiRequest) -> ApiResponse:
    """Update the account."""
    account = await commit(
        audit.update_and_record,
        request.caller,
        "account_update",
        accounts.get,
        accounts.update,
        request.account_id,
        request.body,
    )
    return ApiResponse(await fetch(_serialize_account, account))


def _serialize_account(row: AccountRow) -> Account:
    configuration = config.current()
    is_sandbox = configuration.email.transport == "capture"
    is_verified = bool(
        scalar("SELECT 1 FROM sending_domain WHERE account_id = ? AND status = 'verified' LIMIT 1", (row.id,))
    )
    account_brand = brand.get(row.id)
    counts = accounts.count_objects(row.id)
    blockers = _find_blockers(row, is_sandbox, is_verified, bool(account_brand.physical_address))
    values: dict[str, Any] = {
        name: getattr(row, name)
        for name in Account.__struct_fields__
        if name in AccountRow._meta.fields and name not in ("utm", "public_url", "created_at", "updated_at")
    }
    return Account(
        **values, utm=schemas.serialize_utm(row.utm),
        base_url=config.base_url(configuration), public_url=base_url_of(row), version=VERSION,
        created_at=iso(row.created_at) or "", updated_at=iso(row.updated_at) or "",
        can_send=not any(blocker.severity == "error" for blocker in blockers), blockers=blockers,
        using_sandbox=is_sandbox, domain_verified=is_verified,
        transport=Transports(configuration.email.transport, configuration.sms.transport),
        capabilities=Capabilities(True, _can_send_sms(configuration), True, bool(configuration.inbound.listen)),
        onboarding=_build_onboarding(row, is_verified, account_brand.brand_color is not None, counts),
        counts=counts, usage=AccountUsage(**accounts.fetch_usage(row.id)), brand=serialize_brand(account_brand),
    )  # fmt: skip


def _can_send_sms(configuration: Config) -> bool:
    provider = PROVIDERS.get(configuration.sms.transport)
    return provider is not None and not provider.find_setting_faults()


def _find_blockers(row: AccountRow, is_sandbox: bool, is_verified: bool, has_address: bool) -> list[Blocker]:
    severity = "warning" if is_sandbox else "error"
    blockers = []
    if row.sending_stopped:
        message = f"Sending is stopped: {row.stop_reason}" if row.stop_reason else "Sending is stopped."
        if row.stop_reason == accounts.RESTORED:
            message = f"Sending is stopped: {accounts.describe_restore_stop()}."
        blockers.append(Blocker("sending_stopped", "error", message))
    if data_dir.has_stop_file(config.current().data_dir):
        message = "A file named STOP in the data directory stops all sending of this installation; remove it to resume."
        blockers.append(Blocker("stop_file", "error", message))
    if not is_verified:
        is_allowed = is_sandbox or config.current().email.allow_unverified_domains
        blockers.append(
            Blocker("domain_unverified", "warning" if is_allowed else "error", "No sending domain is verified.")
        )
    if not has_address:
        blockers.append(Blocker("postal_address_missing", severity, "The brand has no postal address."))
    for _, message in senders.find_sms_problems(row, config.current().sms.transport):
        blockers.append(Blocker("sms_sender_missing", "warning", message))
    return blockers


def _build_onboarding(row: AccountRow, is_verified: bool, has_brand: bool, counts: dict[str, int]) -> Onboarding:
    sent_campaign = scalar("SELECT 1 FROM campaign WHERE account_id = ? AND started_at IS NOT NULL LIMIT 1", (row.id,))
    steps = OnboardingSteps(
        has_brand, is_verified, counts["contacts"] > 0, counts["campaigns"] > 0, sent_campaign is not None
    )
    is_done = astuple(steps)
    return Onboarding(steps, OnboardingProgress(sum(is_done), len(is_done)))


def serialize_brand(row: BrandRow) -> Brand:
    """Return the API representation of a brand.

    `source_url` and `last_scraped_at` of the specification are always None, because no website is read.
    """
    return schemas.build_from_row(
        Brand, row, source_url=None, last_scraped_at=None, logo=media.resolve_url(row.logo),
        links=[BrandLink(**{"url": "", "icon": "", "title": "", **link}) for link in row.links or []],
        complete=bool(row.brand_color and row.company_name),
    )  # fmt: skip


@ROUTES.add("GET", "/brand", scope="account:read", agent_scope="account:read", response_type=Brand)
async def get_brand(request: ApiRequest) -> ApiResponse:
    """Get the brand."""
    return ApiResponse(serialize_brand(await fetch(brand.get, request.account_id)))


@ROUTES.add(
    "PUT",
    "/brand",
    scope="account:write",
    body_type=BrandWrite,
    validate=validator(brand.validate),
    response_type=Brand,
)
async def update_brand(request: ApiRequest) -> ApiResponse:
    """Update the brand; absent fields stay unchanged."""
    return ApiResponse(
        serialize_brand(
            await commit(
                audit.update_and_record,
                request.caller,
                "brand_update",
                brand.get,
                brand.update,
                request.account_id,
                request.body,
            )
        )
    )
