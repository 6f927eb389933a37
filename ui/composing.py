"""What the pages of a draft show: its audience in numbers, its checklist, its message as somebody gets it."""

from datetime import datetime
from typing import Any

from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, groups, hold_reasons, preflight, preview, store
from appliance.content.designs import document as designs
from appliance.content.designs import readable
from appliance.core import clock
from appliance.sending.messages import senders
from ui import audiences, together, unfinished, words
from ui import rights as ui_rights
from ui.forms import Form
from ui.rights import may
from ui.session import Visit
from ui.together import Part, Parts

CARDS = ("to", "from", "content", "when")
# What two people at one draft may each change; what says one thing together is asked about as one
PARTS = {
    "to": audiences.Parts(
        Part("Who gets it", ("who", "list", "segment", "sure"), True), Part("Left out", ("without",), True)
    ),
    "from": Parts(
        Part("Subject", ("subject",)), Part("Preview line", ("preheader",)), Part("Name people see", ("from_name",)),
        Part("Address people see", ("from_email",)), Part("Answers go to", ("reply_to",)),
    ),
    "content": Parts(Part("Content", ("body",)), Part("Counting", ("tracking",), True)),
    "when": Parts(Part("When", ("when", "day", "hour"))),
    "name": Parts(Part("Name", ("name",))),
}  # fmt: skip
FROM = ("subject", "preheader", "from_name", "from_email", "reply_to")
# Told by the rehearsal itself, with the people whom it concerns
_REHEARSED = ("missing_value", "render_error")
# Where a finding of the checklist is mended: on a card, by the start of its field, or elsewhere, by its code
_CARDS = (
    ("trigger_attributes", "to"), ("confirm_send_to_all", "to"), ("template_attributes.body", "content"),
    ("template_attributes.design", "content"), ("template_attributes", "from"), ("scheduled_at", "when"),
)  # fmt: skip
# What a finding says, by its code; the rest in the words of the rule
_FINDINGS = {
    "audience_required": "Choose who gets it.",
    "confirmation_required": "Confirm that everyone gets it.",
    "preheader_missing": "Add a preview line: without it inboxes show the first words of the email.",
    "nobody": "Nobody in this audience may be written to.",
    "postal_address": "Add your postal address to the brand: mail that leaves this machine needs one.",
    "too_long": "The email is over 102 KB: Gmail will cut it off.",
    "opt_out_hint_missing": "It does not say how to leave: write it, or set words for every SMS in the settings.",
}
_ELSEWHERE = {
    "postal_address": "/brand", "not_tested": "/campaigns/{}/test", "parts_per_day": "/settings",
    "base_url_http": "/settings",
}  # fmt: skip


def facts(visit: Visit, campaign_id: int, exact: bool = True) -> dict[str, Any]:
    """Return everything the pages of a draft show; raises NotFound. Not `exact`, it follows each change at once, and
    people who come and go in a very large audience a few seconds later.
    """
    account_id, account = visit.account_id, visit.account
    campaign = store.get(account_id, campaign_id)
    flight = preflight.check(
        account_id, campaign_id, visit.by, audience.arithmetic if exact else audience.cached_arithmetic
    )
    found = audiences.choices(account_id)
    sums, sender = flight.facts, preflight.sender_of(campaign, account)
    shown = preview.render(account_id, campaign_id)
    sms = campaign.channel == "sms"
    sending = sums["sms"]["parts"] if sms and sums["sms"]["parts"] else sums["sendable"]
    later = campaign.scheduled_at is not None and campaign.scheduled_at > clock.now_ms()
    return {
        "campaign": campaign, "sms": sms, "template": campaign.template, "choices": found, "names": found.names,
        "audience": audiences.name(campaign, found.names), "has_audience": audience.is_set(campaign),
        "sums": sums, "without": groups.left_out(campaign),
        "less": [(why, words.reason(why, campaign.channel), count) for why, count in sums["skipped"].items()],
        "flight": flight, "findings": _findings(flight, campaign_id, visit.user.role),
        "unfinished": unfinished.among(flight.warnings),
        **rehearsed(sums), "sender": sender,
        "offered": [] if sms else senders.offered(account), "shown": shown,
        "sections": len(designs.sections(campaign.template.design)) if not sms else 0,
        "approval": ui_rights.approval_of(
            visit, campaign, f"/campaigns/{campaign_id}", [one.code for one in flight.blockers]
        ),
        "is_later": later, "speed": hold_reasons.forecast_of(campaign, sending, sender["email"]),
        **rights(visit, campaign),
    }  # fmt: skip


def rights(visit: Visit, campaign: Any) -> dict[str, bool]:
    """Return what somebody may do with a campaign, so that no button is shown that would be refused.

    What goes out by itself is looked at by who may not send.
    """
    here, role = f"/campaigns/{campaign.id}", visit.user.role
    may_send = may(role, "POST", f"{here}/send")
    return {"may_write": may(role, "POST", here) and (may_send or campaign.phase == "draft"), "may_send": may_send}


def forms(campaign: Any, visit: Visit) -> dict[str, Form]:
    """Return the forms of the four cards, and that of its name."""
    template = campaign.template
    when = {"when": "now"}
    if campaign.scheduled_at is not None:
        local = datetime.fromtimestamp(campaign.scheduled_at / 1000, visit.zone)
        when = {"when": "later", "day": local.strftime("%Y-%m-%d"), "hour": local.strftime("%H:%M")}
    made = {
        "to": audiences.form(campaign),
        "from": Form({name: getattr(template, name) or "" for name in FROM}),
        "content": Form({"body": template.body or "", "tracking": "yes" if campaign.tracking else ""}),
        "when": Form(when),
        "name": Form({"name": campaign.name}),
    }
    return {card: together.opened(form, PARTS[card]) for card, form in made.items()}


def done(found: dict[str, Any]) -> dict[str, bool]:
    """Return which of the cards have all they need."""
    template = found["template"]
    return {
        "to": found["has_audience"] and found["sums"]["sendable"] > 0,
        "from": bool(template.subject) or found["sms"],
        "content": bool((template.body or "").strip() or found["sections"]),
        "when": True,
    }


def rehearsal_of(account_id: int, campaign_id: int) -> dict[str, Any]:
    """Return how far the message is made for everybody, and of an SMS what that takes."""
    found = preflight.check(account_id, campaign_id, count=audience.cached_arithmetic).facts
    campaign = store.get(account_id, campaign_id)
    shown = preview.render(account_id, campaign_id) if campaign.channel == "sms" else None
    return {"campaign": campaign, "shown": shown, "people": found["sendable"], **rehearsed(found)}


def rehearsed(found: dict[str, Any]) -> dict[str, Any]:
    """Return what the rehearsal found in words, with the people whom it concerns."""
    told = found.get("rehearsal")
    if told is None:
        return {"rehearsal": None, "trouble": []}
    said = [(f"{readable.label(one['name'])} is empty for {words.people(one['count'])}", "", one["contact_ids"])
            for one in told["lacking"] if one["count"]]  # fmt: skip
    if told["failed"]:
        what = f"Cannot be made for {words.people(told['failed'])}, who would be skipped"
        said.insert(0, (what, told["failures"][0]["error"], [one["contact_id"] for one in told["failures"]]))
    ids = list(dict.fromkeys(number for _, _, people in said for number in people))
    named = {contact.id: words.name(contact) for contact in contacts.by_ids(ids)}
    trouble = [(what, why, [(one, named[one]) for one in people if one in named]) for what, why, people in said]
    return {"rehearsal": told, "trouble": trouble}


def _findings(flight: preflight.Preflight, campaign_id: int, role: str) -> list[tuple[str, str, str]]:
    """Return the checklist: its tone, its words, and where it is mended by who may."""
    found = [
        (tone, said(one), place(one, campaign_id))
        for tone, some in (("bad", flight.blockers), ("warn", flight.warnings))
        for one in some
        if one.code not in _REHEARSED
    ]
    return [(tone, text, href if may(role, "GET", href) else "") for tone, text, href in found]


def said(finding: Any) -> str:
    """Say a finding of the checklist."""
    if "campanero.invalid" in finding.message:
        return "Add your domain, or say from which address it is: mail that leaves this machine needs one."
    return _FINDINGS.get(finding.code) or words.sentence(finding.message)


def place(finding: Any, campaign_id: int) -> str:
    """Return where a finding is mended."""
    if "postal" in finding.message:
        return "/brand"
    if finding.code in _ELSEWHERE:
        return _ELSEWHERE[finding.code].format(campaign_id)
    if finding.code.startswith("domain_") or "not verified" in finding.message:
        return "/settings/domains"
    if finding.code == "sender_not_ready" and not finding.field.startswith("template"):
        return "/settings/sending"
    if ".design." in finding.field:
        return f"/campaigns/{campaign_id}/content?path={finding.field.partition('.design.')[2]}"
    found = next((card for start, card in _CARDS if finding.field.startswith(start)), None)
    return f"/campaigns/{campaign_id}?open={found}#card-{found}" if found else ""
