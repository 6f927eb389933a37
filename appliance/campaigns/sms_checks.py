"""What is looked at before the SMS of a campaign leave: what they say and take, to which countries, and when."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from appliance.campaigns.findings import Case, Finding, persons, transport
from appliance.campaigns.rehearsal import Rehearsal
from appliance.campaigns.rehearse import UNKNOWN, Texts
from appliance.content.designs import merge
from appliance.core import clock
from appliance.sending.messages import quiet, sms_days, sms_senders, texts
from appliance.sending.sms import gsm
from appliance.settings import config
from appliance.storage.models import Campaign

if TYPE_CHECKING:
    from appliance.content.designs.compiled import Compiled

_BODY, _BASE, _AUDIENCE = "template_attributes.body", "base", "trigger_attributes"
# Words of ours that tell how to leave, beside those of the settings
_STOP = ("stop", "unsubscribe", "opt out", "optout", "abmelden", "arret", "baja", "alto", "desuscribir", "stopp")
_WAYS_OUT = ("unsubscribe_url", "preferences_url")
_NAMES = ("brand.company_name", "account.name")
# Networks take messages with addresses that anybody can hide behind for fraud
_SHORTENERS = re.compile(
    r"//(?:www\.)?(?:bit\.ly|tinyurl\.com|goo\.gl|t\.co|ow\.ly|is\.gd|buff\.ly|rebrand\.ly|cutt\.ly|rb\.gy|t\.ly)\b",
    re.I,
)
_MAX_CHARACTERS_NAMED = 3


def compiled(campaign: Campaign) -> "Compiled | None":
    """Compile what a campaign's SMS say, or answer None if they say nothing yet; raises MergeError."""
    body = campaign.template.body
    if not (body or "").strip():
        return None
    return texts.compiled(body)


def too_long(case: Case) -> Iterator[Finding]:
    """Refuse a text that nobody would carry, whoever it is for; one that is too long for some skips them."""
    found = gsm.length_fault(case.campaign.template.body) if case.text is not None else None
    if found is not None:
        yield Finding("preflight_failed", found, _BODY)


def facts(case: Case) -> dict[str, Any]:
    """Return what is known at once: who it is from and how it tells people to leave; nothing of the parts yet."""
    sender = sms_senders.sender_to(case.account.sms_from, None, transport(case.campaign)) or None
    return {"from": sender, "opt_out_hint": case.account.sms_opt_out_hint, "parts": None, "is_exact": None}


def foreseen(rehearsed: Rehearsal) -> dict[str, Any]:
    """Return how many parts it will take as far as the rehearsal has come; null until it knows."""
    found = rehearsed.outcome.sms
    if rehearsed.status != "complete" or found is None:
        return {}
    return {"parts": found.parts, "is_exact": found.is_exact}


def hint(case: Case) -> Iterator[Finding]:
    """Want words that tell how to leave."""
    if case.text is None or case.account.sms_opt_out_hint:
        return
    said = " ".join((case.campaign.template.body or "").casefold().split())
    words = {*_STOP, *(one.casefold() for one in config.current().sms.stop_words)}
    ways = any(name in case.text.variables for name in _WAYS_OUT)
    if not ways and not any(re.search(rf"\b{re.escape(one)}\b", said) for one in words):
        words_out = "it does not say how to leave: set the opt-out hint of the account (sms_opt_out_hint), or write it"
        yield Finding("opt_out_hint_missing", words_out, _BODY)


def wording(case: Case) -> Iterator[Finding]:
    """Look for what nobody knows, for who does not say their name, and for addresses that networks block."""
    if case.text is None:
        return
    for name in merge.unknown(list(case.text.variables)):
        yield Finding("unknown_merge_tag", f"{name} is known to nobody and stays empty", _BODY)
    body, account = case.campaign.template.body or "", case.account
    sender = sms_senders.sender_to(account.sms_from, None, transport(case.campaign))
    mine = [one.casefold() for one in (case.brand.company_name, account.name) if one]
    named = any(one in body.casefold() for one in mine) or any(one in case.text.variables for one in _NAMES)
    if not named and not sms_senders.is_name(sender):
        yield Finding("sender_unnamed", "it does not say who writes: name the brand", _BODY)
    if found := _SHORTENERS.search(body):
        words = f"networks block {found.group()[2:]}: write the whole address, it is shortened to one of ours"
        yield Finding("public_shortener", words if case.campaign.tracking else words.partition(":")[0], _BODY)


def resting(case: Case) -> Iterator[Finding]:
    """Tell of a start inside the quiet hours, by the account's clocks; each person has their own."""
    hours = case.account.sms_quiet_hours
    start = max(case.campaign.scheduled_at or 0, clock.now_ms())
    end = quiet.until(hours, case.account.time_zone, start) if hours else None
    if case.real and end is not None:
        words = f"it starts in the quiet hours ({_between(hours)}): people get it when theirs end"
        yield Finding("quiet_hours", words, "scheduled_at")


def _between(hours: dict[str, str]) -> str:
    return f"{hours['from']} to {hours['to']}"


def rehearsed(case: Case, found: Rehearsal) -> Iterator[Finding]:
    """Return what the texts of everybody have shown."""
    sms = found.outcome.sms
    if sms is None or found.status != "complete":
        return
    yield from _alphabet(sms)
    if sms.refused:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in sms.refused.items())
        words = f"{persons(sum(sms.refused.values()))} will be skipped for their number or consent: {reasons}"
        yield Finding("numbers_refused", words, _AUDIENCE)
    if sms.resting:
        hours = _between(case.account.sms_quiet_hours or {"from": "", "to": ""})
        words = f"it is quiet for {persons(sms.resting)} when it starts ({hours}, their time): they get it afterwards"
        yield Finding("quiet_hours_of_people", words, "scheduled_at")
    yield from _day(case, sms)
    if sms.fixed_lines:
        yield Finding("fixed_line", f"{persons(sms.fixed_lines)} gave a fixed line, which may show no SMS", _AUDIENCE)
    countries = {one for one in sms.countries if one != UNKNOWN}
    account = case.account
    for code, words in sms_senders.advice(account, countries, account.sms_opt_out_hint, case.real):
        yield Finding(code, words, _BASE)


def _day(case: Case, sms: Texts) -> Iterator[Finding]:
    """Tell of a campaign that takes more parts than are left of the day, or than a day has."""
    most = config.current().sms.parts_per_day
    if not case.real or not most:
        return
    left = most - sms_days.used(case.account.id, case.account.time_zone, clock.now_ms())
    if sms.parts > left:
        days = 1 + -(-(sms.parts - max(left, 0)) // most)
        words = f"it takes {sms.parts:,} parts, and {most:,} leave a day (sms.parts_per_day): it is done in {days} days"
        yield Finding("parts_per_day", words, _BASE)


def _alphabet(sms: Texts) -> Iterator[Finding]:
    if not sms.ucs2:
        return
    named = [f"{one.character} ({gsm.named(one.character)})" for one in sms.forcing[:_MAX_CHARACTERS_NAMED]]
    more = " and others" if len(sms.forcing) > _MAX_CHARACTERS_NAMED else ""
    words = f"the short alphabet lacks {', '.join(named)}{more}: for {persons(sms.ucs2)} a part holds 70 signs, not 160"
    yield Finding("ucs2", words, _BODY)


LOOKS = (hint, wording, resting)
