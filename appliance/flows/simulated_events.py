"""What is assumed to happen while a rehearsal runs: read from a script, and done by what does it in reality."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience.contacts import consent, lists, write
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.requests import ContactPatch
from appliance.content.designs.readable import readable
from appliance.core import clock
from appliance.core.errors import Faults, Invalid
from appliance.core.fields import Data, EventName, Id, When, read
from appliance.events import kinds, log, submit
from appliance.events.log import Happened
from appliance.events.submit import EventWrite
from appliance.flows.timeline import Rendered
from appliance.flows.why import Reason, spoken
from appliance.inbound.conversations import receiving
from appliance.inbound.feedback import record
from appliance.inbound.feedback.record import Fact, Kind
from appliance.sending.messages.link_targets import Targets, Wanted
from appliance.sending.sms.codes import Incoming
from appliance.storage.models import Channel, Contact, ContactList
from appliance.storage.open import rows, scalar
from appliance.storage.work import writing
from appliance.tracking import bot_detection, counters, replies
from appliance.tracking.bot_detection import HUMAN, Seen, Verdict
from appliance.tracking.counters import Told

MAX_ASSUMPTIONS = 100
MAX_SECONDS = 3 * 366 * 86_400
# A reader's program, as in the answers of captured messages
_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_SOURCE = "rehearsal"
_FACTS: dict[str, tuple[Kind, int | None, str | None, str]] = {
    "email_delivered": ("delivered", None, None, "delivered"),
    "email_bounced": ("bounced", 550, "5.1.1", "550 5.1.1 there is no such recipient"),
    "email_soft_bounced": ("soft_bounced", 452, "4.2.2", "452 4.2.2 the mailbox is full"),
    "email_complained": ("complained", None, None, "complained"),
    "sms_delivered": ("delivered", None, None, "delivered"),
    "sms_failed": ("bounced", None, "5.1.1", "this number is not in service"),
}
OF_MESSAGES = frozenset({*_FACTS, "email_opened", "email_clicked", "email_replied", "sms_clicked"})
_OF_LISTS = frozenset({"list_add", "list_remove"})
_AS_THEY_ARE = frozenset({"form_submitted", "double_opt_in_confirmed", "tag_add", "tag_remove"})
KNOWN = OF_MESSAGES | _OF_LISTS | _AS_THEY_ARE | {"opt_out", "opt_in", "contact_update", "message", "keyword"}


class Assumed(Struct):
    """Something that is assumed to happen: at a moment, or so many seconds after the start.

    Of a message (`email_clicked` ...) it happens to what step `step` sent, or else to the last one that left; `after`
    counts from when that message leaves. `data` of `contact_update` are fields of a contact, that of `list_add` names
    the list, that of a click may name its `url`.
    """

    event: EventName
    after: Annotated[int, Meta(ge=0, le=MAX_SECONDS)] | UnsetType = UNSET
    at: When | UnsetType = UNSET
    step: Id | UnsetType = UNSET
    data: Data | UnsetType = UNSET
    amount: float | UnsetType = UNSET

    @property
    def given(self) -> dict[str, Any]:
        """Its data."""
        return self.data if isinstance(self.data, dict) else {}


class Cast(NamedTuple):
    """To whom things happen: the person, their run, and the account."""

    account_id: int
    contact_id: int
    run_id: int


class Impossible(Exception):
    """What is assumed cannot happen here; the text says why."""


def check(
    account_id: int, assumed: Sequence[Assumed], step_ids: set[int], faults: Faults, path: str = "events"
) -> None:
    """Note what of a script can never happen."""
    for index, one in enumerate(assumed):
        here = f"{path}[{index}]"
        if one.after is not UNSET and one.at is not UNSET:
            faults.add(f"{here}.at", "stands beside after: one of them")
        if not isinstance(one.event, str):
            continue  # what the rest may be depends on it
        reserved = kinds.fault(one.event) is not None and one.event not in KNOWN
        if reserved:
            faults.add(f"{here}.event", "cannot be assumed: it follows from what happens")
        if one.step is not UNSET and one.event not in OF_MESSAGES:
            faults.add(f"{here}.step", "is only for what happens to a message")
        elif one.step is not UNSET and one.step not in step_ids:
            faults.add(f"{here}.step", "must exist")
        number = one.given.get("contact_list_id")
        if one.event in _OF_LISTS and not (type(number) is int and _has_list(account_id, number)):
            faults.add(f"{here}.data.contact_list_id", "must exist")
        if one.event == "contact_update":
            try:
                read(ContactPatch, one.given, f"{here}.data")
            except Invalid as refused:
                faults.merge(refused.fields)


def _has_list(account_id: int, number: int) -> bool:
    return 0 < number < 2**63 and ContactList.select().where(
        ContactList.account == account_id, ContactList.id == number, ContactList.segment.is_null()
    ).exists()  # fmt: skip


def happen(one: Assumed, cast: Cast) -> str:
    """Let something happen now, with all that follows from it; returns it in words. Raises Impossible."""
    writing()
    if one.event in OF_MESSAGES:
        return _of_message(one, cast)
    act = _ACTS.get(one.event)
    if act is not None:
        return act(one, cast)
    if one.event in _AS_THEY_ARE:
        log.record(Happened(cast.account_id, one.event, cast.contact_id, one.given))
        return kinds.words(one.event)
    amount = one.amount if isinstance(one.amount, float) else UNSET
    sent = EventWrite(one.event, contact_id=cast.contact_id, data=one.given, amount=amount)
    submit.submit(cast.account_id, submit.prepare(sent))
    said = msgspec.json.encode(one.given).decode()
    return f"{one.event} happens" + (f", with {said[:300]}" if one.given else "")


def _of_message(one: Assumed, cast: Cast) -> str:
    """Let something happen to a message that has left: that of a step, or the last one."""
    step = one.step if isinstance(one.step, int) else None
    found = rows(
        "SELECT id, step_id, subject, recipient, sent_at FROM message WHERE run_id = ?1 AND sent_at IS NOT NULL "
        "AND channel = ?3 AND (?2 IS NULL OR step_id = ?2) ORDER BY sent_at DESC, id DESC LIMIT 1",
        (cast.run_id, step, one.event.partition("_")[0]),
    )
    sort = "SMS" if one.event.startswith("sms_") else "email"
    if not found:
        raise Impossible(
            f"no {sort} of this flow has left by then" if step is None else f"step {step} has sent no {sort}"
        )
    message_id, _, subject, recipient, sent_at = found[0]
    named = f"“{subject}”" if subject else f"the {sort}"
    if one.event == "email_replied":
        replies.record(message_id, _SOURCE)
        return f"they reply to {named}"
    if one.event in _FACTS:
        kind, smtp, enhanced, words = _FACTS[one.event]
        record.apply(Fact(message_id, kind, _SOURCE, words, smtp, enhanced, recipient))
        return {"delivered": f"{named} is delivered", "complained": f"they call {named} spam"}.get(
            kind, f"{named} comes back ({words})"
        )
    return _read(one, message_id, named, sent_at)


def _read(one: Assumed, message_id: int, named: str, sent_at: int) -> str:
    wanted = Wanted(message_id, None)
    found = Targets().find([wanted]).get(wanted)
    if found is None or found.tracking != "full":
        raise Impossible("this person has chosen not to be counted, so nobody would know")
    url = str(one.given.get("url") or "") or None
    # Sooner than this it would be taken for a machine's
    at = max(clock.now_ms(), sent_at + bot_detection.SOON_MS)
    clicked = one.event.endswith("_clicked")
    seen = Seen(at, "click" if clicked else "open", 1 if clicked else None, "GET", None, _AGENT)
    told = Told(found._replace(url=url), seen, None, Verdict(HUMAN, None))
    counters.tell_hits([told])
    counters.count([(told.found, seen, told.verdict)])
    return f"they click in {named}" + (f" on {url}" if url else "") if clicked else f"they open {named}"


def _consent(one: Assumed, cast: Cast) -> str:
    kind = "phone" if one.given.get("channel") == "sms" else "email"
    evidence = Evidence(_SOURCE, "recipient")
    channels = list(Channel.select().where(Channel.contact == cast.contact_id, Channel.kind == kind))
    if not channels:
        raise Impossible("they have no such address")
    for channel in channels:
        if one.event == "opt_out":
            consent.opt_out(channel, "recipient", evidence)
        else:
            consent.returned(channel, evidence)
    return f"they opt {'out of' if one.event == 'opt_out' else 'in to'} {'SMS' if kind == 'phone' else 'email'}"


def _list(one: Assumed, cast: Cast) -> str:
    number = int(one.given["contact_list_id"])
    name = ContactList.get_by_id(number).name
    if one.event == "list_add":
        lists.join(cast.account_id, number, [cast.contact_id])
        return f"they join {name}"
    lists.leave(cast.account_id, number, [cast.contact_id])
    return f"they leave {name}"


def _update(one: Assumed, cast: Cast) -> str:
    patch = read(ContactPatch, one.given)
    write.update(cast.account_id, cast.contact_id, patch, Evidence(_SOURCE, "operator"))
    return f"they change: {msgspec.json.encode(one.given).decode()[:300]}"


def _write(one: Assumed, cast: Cast) -> str:
    """Let them write an SMS: what they ask for by it is done, everything else is heard as the event it is called."""
    said = next((one.given[key] for key in ("body", "text", "keyword") if isinstance(one.given.get(key), str)), "")
    number = scalar("SELECT key FROM channel WHERE contact_id = ? AND kind = 'phone' ORDER BY id", (cast.contact_id,))
    if number is not None and receiving.is_acted_on(cast.account_id, number, said):
        receiving.receive(_SOURCE, Incoming(None, number, "", said), account_id=cast.account_id)
    else:
        log.record(Happened(cast.account_id, one.event, cast.contact_id, one.given))
    return f"they write “{said[:160]}”" if said else kinds.words(one.event)


_ACTS: dict[str, Callable[[Assumed, Cast], str]] = {
    "message": _write, "keyword": _write,
    "opt_out": _consent, "opt_in": _consent, "list_add": _list, "list_remove": _list, "contact_update": _update,
}  # fmt: skip


def person_name(contact: Contact, email: str | None) -> str:
    """Return who a person is: name and address, as far as there are any."""
    name = " ".join(filter(None, (contact.first_name, contact.last_name)))
    return f"{name} <{email}>" if name and email else name or email or f"contact {contact.id}"


# The words in which a rehearsal speaks.

_ENDS = {
    "completed": "the last step is done", "goal": "the goal is reached", "exit_step": "a step says so",
    "contact_deleted": "the contact is gone", "failed": "a step failed",
}  # fmt: skip
_SKIPPED = {
    "unsubscribed": "they have unsubscribed", "no_channel": "they have no such address",
    "no_consent": "they never opted in", "frequency_cap": "they have had as many as the account allows",
    "render_error": "it cannot be made", "invalid_address": "their address is none",
    "country_not_allowed": "SMS do not go to their country",
    "sender_not_allowed": "nobody who may write to their country sends it",
    "transactional_disabled": "service messages are switched off",
    "not_verified": "they have not confirmed their address", "quiet_hours_expired": "the quiet hours lasted too long",
}  # fmt: skip


def because(reasons: Sequence[Reason], yes: bool) -> str:
    """Return why a branch went as it did, by the filters that decided: what is asked, and what was found."""
    decisive = [one for one in reasons if one.decided]
    told = [f"somebody {_asked(one)} (found: {one.found})" for one in decisive[:3]]
    if len(decisive) > 3:
        told.append(f"{len(decisive) - 3} more")
    return f"because this is {' and '.join(told)}" if yes else f"because this is not {' nor '.join(told)}"


def _asked(one: Reason) -> str:
    """Return what a filter asks; a group without the brackets that it has within a sentence."""
    return one.sentence.removeprefix("(").removesuffix(")") if one.rows else one.sentence


def skipped(reason: str | None) -> str:
    """Return why a step was skipped, or a message did not leave."""
    reason = reason or "skipped"
    if reason.startswith("suppressed_"):
        return f"their address is suppressed ({reason.removeprefix('suppressed_').replace('_', ' ')})"
    return _SKIPPED.get(reason, reason.replace("_", " "))


def why_ended(status: str, reason: str | None) -> str:
    """Return why a run ended."""
    found = _ENDS.get(reason or status)
    return found or (reason or status).replace("_", " ")


def message(shown: Rendered, zone: str) -> str:
    """Return what became of a message."""
    name = _named(shown)
    if shown.status == "skipped":
        return f"{name} is skipped, {skipped(shown.skip_reason)}"
    if shown.status in ("queued", "held"):
        until = f" until {spoken(clock.parse(shown.leaves_at), zone)}" if shown.leaves_at else ""
        return f"{name} waits{until}"
    return f"{name} goes to {shown.to}"


def _named(shown: Rendered) -> str:
    if shown.channel == "email":
        return f"Email “{readable(shown.subject)}”" if shown.subject else "Email"
    return f"SMS of {shown.segments} parts" if (shown.segments or 0) > 1 else "SMS"
