"""The proposal to send or schedule a campaign."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.agents.differences import (
    Difference,
    Values,
    compare,
    flatten_content,
    flatten_translations,
    label_field,
)
from appliance.agents.kinds import base
from appliance.agents.kinds.base import EmailChange, ProposalKind, Reach, References
from appliance.audience.segments import explain
from appliance.audience.segments.references import find_campaign_references
from appliance.campaigns import audience, preflight, send, store
from appliance.campaigns.preflight import PreparedSend
from appliance.campaigns.repeats import Repeat
from appliance.campaigns.store import SendRequest
from appliance.content.designs import utm
from appliance.content.templates.revisions import to_document
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.hidden_characters import show_hidden
from appliance.core.i18n import format_clock, format_full_date, format_list, gettext, gettext_noop
from appliance.core.validation import When
from appliance.storage.models import Campaign, Template

# How long an approved send can be undone before the first message leaves, as on the page that sends a campaign.
HOLD_SECONDS = 15
_FIRST_FIELDS = ("subject", "preheader", "from_name", "from_email", "reply_to", "body")
_EXPERIMENT_FIELDS = (
    "metric", "event", "by_amount", "test_share", "holdout", "uneven", "decide_after_minutes", "decided_by",
    "too_close",
)  # fmt: skip


class SendChanges(Struct):
    """When the campaign is sent: at a time in the future, or once the proposal is approved.

    A campaign that has a local time or repeats keeps its own times.
    """

    scheduled_at: Annotated[When, Meta(description="when to send; absent: once it is approved")] | UnsetType = UNSET


def describe_version(campaign: Campaign) -> str:
    """Return the version of a campaign with its content, audience and settings."""
    return base.hash_version([campaign.updated_at, campaign.phase, base.describe_version(campaign)])


def check(account_id: int, campaign_id: int, changes: SendChanges) -> None:
    """Raise Invalid if the campaign is not a draft, has blockers that no approval removes, or the time has passed."""
    campaign = store.get(account_id, campaign_id)
    if campaign.phase != "draft":
        raise Invalid({"subject_id": [gettext("must be a draft")]})
    if isinstance(changes.scheduled_at, int):
        if _has_own_times(campaign):
            raise Invalid({"changes.scheduled_at": [gettext("the campaign has times of its own")]})
        if changes.scheduled_at <= clock.now_ms():
            raise Invalid({"changes.scheduled_at": [gettext("must be in the future")]})
    prepared = preflight.prepare_send(account_id, campaign_id)
    findings = preflight.find_blockers(preflight.load_input(campaign, True, Actor(can_approve=True), prepared))
    send.raise_for_findings(findings)


def _has_own_times(campaign: Campaign) -> bool:
    return campaign.local_time is not None or campaign.repeat is not None


def prepare(account_id: int, campaign_id: int, changes: SendChanges) -> PreparedSend:
    """Return the compiled message and the measured audience."""
    return preflight.prepare_send(account_id, campaign_id)


def carry_out(account_id: int, campaign_id: int, changes: SendChanges, by: Actor, prepared: PreparedSend) -> None:
    """Send or schedule the campaign as a user does; raises what `send.go_live` raises."""
    campaign = store.get(account_id, campaign_id)
    if campaign.phase != "draft":
        raise Invalid({"base": [gettext("this campaign is no longer a draft")]})
    when = changes.scheduled_at if isinstance(changes.scheduled_at, int) else UNSET
    is_later = when is not UNSET and when > clock.now_ms()
    if when is not UNSET and not is_later:
        # The time passed while the proposal waited. Nothing is sent at a time that the page did not show.
        raise Invalid({"scheduled_at": [gettext("The proposed time has passed. Return the proposal.")]})
    has_times = _has_own_times(campaign)
    request = SendRequest(
        scheduled_at=UNSET if has_times else when if is_later else None,
        confirm_send_to_all=True if audience.is_unbounded(campaign) else UNSET,
        hold_seconds=0 if is_later or has_times else HOLD_SECONDS,
    )
    args = (account_id, campaign_id, request, by)
    audit.run_and_record(by, "campaign_send", lambda: send.go_live(*args, prepared=prepared))


def compare_campaign(account_id: int, campaign_id: int, changes: SendChanges) -> list[Difference]:
    """Return the change of the status and what is sent: to whom, with which content."""
    campaign = store.get(account_id, campaign_id)
    audience_rows = _describe_audience(account_id, campaign)
    differences = [
        Difference(label_field("status"), gettext("Draft"), gettext("Sent")),
        Difference(gettext("Time"), "", _describe_time(account_id, campaign, changes)),
        *(Difference(label, "", show_hidden(names)) for label, names in audience_rows if names),
    ]
    # Own UTM parameters without values mean that links get none, and not those of the account.
    own_utm = {name: campaign.utm.get(name) for name in utm.NAMES} if campaign.utm is not None else None
    values = flatten_content({"name": campaign.name, "data": campaign.data, "utm": own_utm})
    values.merge(flatten_content(_get_settings(campaign), False))
    values.merge(_flatten_message(campaign.template), ("message",))
    for variant in campaign.setup.variants[1:] if campaign.setup is not None else ():
        prefix = f"{variant.name or variant.number} · "
        values.merge(_flatten_message(variant.template), ("variants", variant.number), prefix)
    return [*differences, *compare(Values(), values)]


def _flatten_message(template: Template) -> Values:
    """Return all values of a template that a message is made of, and its translations after them."""
    document = to_document(template)
    content = {name: document[name] for name in (*_FIRST_FIELDS, "design")}
    return flatten_content(content, False).merge(flatten_translations(document, template.channel))


def _get_settings(campaign: Campaign) -> dict[str, Any]:
    """Return what is sent along with the content: tracking, repetition and the test."""
    setup = campaign.setup
    experiment = setup.experiment if setup is not None else None
    return {
        "tracking": gettext("Yes") if campaign.tracking else gettext("No"),
        "repeat": _describe_repetition(campaign.repeat) if campaign.repeat is not None else None,
        "best_hour_until": campaign.best_hour_until,
        "experiment": {name: getattr(experiment, name) for name in _EXPERIMENT_FIELDS} if experiment else None,
        "variants": [{"send_after_minutes": variant.send_after_minutes} for variant in setup.variants] if setup else [],
    }


def _describe_repetition(repeat: Repeat) -> dict[str, Any]:
    conditions = {"ends_at": clock.iso(repeat.ends_at), "only_if_changed": repeat.only_if_changed}
    return {**repeat.rule._asdict(), **conditions}


def _describe_time(account_id: int, campaign: Campaign, changes: SendChanges) -> str:
    """Return when the campaign is sent, in the time zone of the account."""
    if campaign.local_time is not None:
        text = gettext("%(time)s, by the clock of each recipient", time=campaign.local_time.replace("T", " "))
    else:
        when = changes.scheduled_at if isinstance(changes.scheduled_at, int) else None
        when = campaign.scheduled_at if _has_own_times(campaign) else when
        if when is None:
            return gettext("Once it is approved")
        zone = clock.find_time_zone(campaign.account.time_zone) or UTC
        moment = datetime.fromtimestamp(when / 1000, zone)
        text = f"{format_full_date(moment)}, {format_clock(moment)}"
    return gettext("%(time)s, and again after that", time=text) if campaign.repeat is not None else text


def _describe_audience(account_id: int, campaign: Campaign) -> list[tuple[str, str]]:
    """Return (label, names) of the lists or the segment that a campaign goes to, its segment, and what is left out."""
    trigger = campaign.trigger

    def name(kind: str, numbers: Iterable[int | None]) -> list[str]:
        return [explain.fetch_name(account_id, kind, number) for number in numbers if number is not None]

    excluded = name("list", trigger.data.get("exclude_contact_list_ids") or ())
    excluded += name("segment", trigger.data.get("exclude_segment_ids") or ())
    except_row = (gettext("Except"), format_list(excluded))
    if audience.is_unbounded(campaign):
        return [(gettext("To"), gettext("All contacts")), except_row]
    lists = name("list", dict.fromkeys((trigger.contact_list_id, *(trigger.data.get("contact_list_ids") or ()))))
    segment = format_list(name("segment", [trigger.segment_id]))
    if not lists:
        return [(gettext("To"), segment), except_row]
    return [(gettext("To"), format_list(lists)), (gettext("Narrow by segment"), segment), except_row]


def measure(account_id: int, campaign_id: int, changes: SendChanges) -> Reach:
    """Return the contacts who may receive the campaign, and the parts of an SMS once they are known."""
    campaign = store.get(account_id, campaign_id)
    counts = audience.count_audience(campaign) if audience.is_set(campaign) else None
    people = counts.sendable if counts is not None else 0
    if campaign.channel != "sms":
        return Reach(None, people)
    facts: dict[str, Any] = preflight.run_preflight(account_id, campaign_id, can_check_links=False).facts
    sms = facts.get("sms", {})
    return Reach(None, people, sms.get("parts"), bool(sms.get("is_exact")))


def list_emails(account_id: int, campaign_id: int, changes: SendChanges) -> list[EmailChange]:
    """Return the email of the campaign, or that of each variant; nothing for an SMS."""
    campaign = store.get(account_id, campaign_id)
    if campaign.channel != "email":
        return []
    variants = campaign.setup.variants if campaign.setup is not None else ()
    others = [EmailChange(str(row.name or row.number), None, to_document(row.template)) for row in variants[1:]]
    first = str(variants[0].name or variants[0].number) if variants else ""
    return [EmailChange(first, None, to_document(campaign.template)), *others]


def find_references(account_id: int, campaign_id: int, changes: SendChanges) -> References:
    """Return the segments and lists of the audience, and those that decide who sees sections."""
    return find_campaign_references(store.get(account_id, campaign_id))


SEND_CAMPAIGN = ProposalKind(
    "send_campaign",
    gettext_noop("Send campaign"),
    "campaign",
    ("campaigns:read",),
    (),
    SendChanges,
    store.get,
    describe_version,
    check,
    prepare,
    carry_out,
    compare_campaign,
    measure,
    list_emails,
    find_references,
    "/campaigns/{}",
)
