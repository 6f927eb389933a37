"""What becomes of a submitted form: a sign-up, or a question to the owner of the address.

Nobody learns from the answer whether an address is known. What was typed is kept apart from the contacts until it is
confirmed, and the mail that asks for that holds none of it.
"""

from typing import NamedTuple

from msgspec import to_builtins

from appliance.audience.contacts import consent, lists
from appliance.audience.contacts.consent import Evidence
from appliance.core import client_ip, clock, tokens
from appliance.events import agents, log
from appliance.events.log import Happened
from appliance.forms import people, store
from appliance.forms.reading import Submitted
from appliance.sending.messages import links, system
from appliance.sending.messages.system import Letter
from appliance.storage.models import Account, Channel, Confirmation, Form, Message
from appliance.storage.open import fetch_one, rows, run
from appliance.storage.work import writing
from appliance.tracking import words

DAY_MS = 86_400_000
# How long a link of a confirmation mail works, and how long what was typed is kept
LIVES_MS, KEPT_MS = 7 * DAY_MS, 30 * DAY_MS
MAILS_PER_CLIENT = 3
# Reasons that a confirmation does not lift: no mail goes there at all
_UNREACHABLE = ("hard_bounce", "soft_bounce", "manual", "stop_keyword")


class _Wanted(NamedTuple):
    """One submission, with what it meets."""

    account: Account
    form: Form
    said: Submitted
    lists: dict[int, str]
    channel: Channel | None
    evidence: Evidence


def accept(form: Form, said: Submitted, ip: str, user_agent: str | None) -> None:
    """Do what a submitted form asks for, as far as a stranger may ask for it."""
    writing()
    if not Form.select().where(Form.id == form.id).exists():
        return  # deleted while this was on its way
    account = Account.get_by_id(form.account_id)
    evidence = Evidence(people.SOURCE, f"form:{form.id}", ip, user_agent, form.consent_text)
    channel = people.find(account.id, said.address.kind, said.address.key)
    wanted = _Wanted(account, form, said, _lists(form), channel, evidence)
    run("UPDATE form SET submissions_count = submissions_count + 1 WHERE id = ?", (form.id,))
    asks = _needs_confirmation(wanted)
    if not asks:
        channel = _sign_up(wanted)
    elif said.address.kind == "phone":
        # Nothing can be asked there yet, so nothing may be sent either
        channel = people.put(account.id, said, evidence, is_theirs=False)
    data = {"form_id": form.id, "form_name": form.name, "list_ids": list(wanted.lists)}
    happened = Happened(account.id, "form_submitted", None, data, f"form:{form.id}", form.name)
    if channel is None:
        # Nobody yet, so that nobody could ask for what is kept of them here to be erased
        log.record(happened)
    else:
        happened.contact_id = channel.contact_id
        log.record_seen(happened, ip, agents.told(user_agent))
    if asks and said.address.kind == "email":
        _ask(wanted)


def _lists(form: Form) -> dict[int, str]:
    chosen = set(form.list_ids)
    found = rows("SELECT id, name FROM contact_list WHERE account_id = ? ORDER BY id", (form.account_id,))
    return {row[0]: row[1] for row in found if row[0] in chosen}


def _needs_confirmation(wanted: _Wanted) -> bool:
    """Return whether only the owner of the address can do this: so says the form or a list, or they have opted out."""
    channel = wanted.channel
    if wanted.form.double_opt_in:
        return True
    if (channel is None or channel.verified_at is None) and _wants_verified(list(wanted.lists)):
        return True
    if channel is not None:
        out = not channel.subscribed and channel.opt_out_at is not None
        return (
            out
            or channel.suppression in consent.KEEPS_OUT
            or consent.is_refused(channel.contact_id, list(wanted.lists))
        )
    kind, hashed = wanted.said.address.kind, tokens.address_hash(wanted.said.address.kind, wanted.said.address.key)
    kept = consent.remembered(wanted.account.id, kind, hashed)
    return kept is not None or consent.suppression(wanted.account.id, kind, hashed) in consent.KEEPS_OUT


def _wants_verified(list_ids: list[int]) -> bool:
    marks = ",".join("?" * len(list_ids))
    return fetch_one(f"SELECT 1 FROM contact_list WHERE double_opt_in = 1 AND id IN ({marks})", list_ids) is not None


def _sign_up(wanted: _Wanted) -> Channel:
    """Sign up somebody who never said no, by their own word."""
    channel = people.put(wanted.account.id, wanted.said, wanted.evidence, is_theirs=False)
    if not channel.subscribed:
        consent.opt_in(channel, "recipient", wanted.evidence)
    for list_id in wanted.lists:
        lists.join(wanted.account.id, list_id, [channel.contact_id])
    consent.note_own_act(channel.contact_id)
    return channel


def _ask(wanted: _Wanted) -> None:
    """Keep what was typed and ask the owner of the address, at most once a day and never where mail does not arrive."""
    account, form, said = wanted.account, wanted.form, wanted.said
    now, contact_id = clock.now_ms(), wanted.channel.contact_id if wanted.channel else None
    person = {"names": said.names, "data": said.data, "phone": said.phone.value if said.phone else None}
    asked = _unasked(wanted, now) or Confirmation(
        account=account, form=form.id, purpose="opt_in", kind=said.address.kind, key=said.address.key
    )
    asked.value, asked.person, asked.list_ids = said.address.value, to_builtins(person), list(wanted.lists)
    asked.ip, asked.text = client_ip.kept(wanted.evidence.ip, account.privacy_ip), form.consent_text
    asked.user_agent, asked.created_at = (wanted.evidence.user_agent or "")[:400] or None, now
    asked.save()
    consent.record(
        account.id, (said.address.kind, said.address.key), "requested", "recipient", wanted.evidence, contact_id,
        {"form_id": form.id, "list_ids": list(wanted.lists)},
    )  # fmt: skip
    data = {"form_id": form.id, "form_name": form.name}
    log.record(Happened(account.id, "double_opt_in_requested", contact_id, data, f"form:{form.id}", form.name))
    if _may_be_mailed(wanted, now):
        mail = _mail(wanted, asked.id)
        asked.message_id = mail.id
        # One that may not leave is no question: who comes again once it may is asked then
        asked.mailed_at = now if mail.status == "queued" else None
        asked.save()


def _unasked(wanted: _Wanted, now: int) -> Confirmation | None:
    """Return what was typed into this form before and is in no mail: what is typed now takes its place.

    So who submits a form for a week leaves little to be done when the question is answered.
    """
    found: Confirmation | None = Confirmation.get_or_none(
        Confirmation.account == wanted.account.id, Confirmation.form == wanted.form.id,
        Confirmation.purpose == "opt_in", Confirmation.kind == wanted.said.address.kind,
        Confirmation.key == wanted.said.address.key, Confirmation.mailed_at.is_null(),
        Confirmation.confirmed_at.is_null(), Confirmation.created_at > now - LIVES_MS,
    )  # fmt: skip
    return found


def _may_be_mailed(wanted: _Wanted, now: int) -> bool:
    kind, key = wanted.said.address.kind, wanted.said.address.key
    lately = fetch_one(
        "SELECT 1 FROM confirmation WHERE account_id = ? AND kind = ? AND key = ? AND purpose = 'opt_in' "
        "AND mailed_at > ?",
        (wanted.account.id, kind, key, now - DAY_MS),
    )
    if lately is not None:
        return False
    hashed = tokens.address_hash(kind, key)
    reason = consent.suppression(wanted.account.id, kind, hashed, but=consent.KEEPS_OUT)
    if reason in _UNREACHABLE:
        return False
    household = client_ip.household(wanted.evidence.ip or "")
    return not store.count_submission(f"mail:{household}", MAILS_PER_CLIENT, store.HOUR_MS)


def _mail(wanted: _Wanted, number: int) -> Message:
    said = words.of(words.language(wanted.account.locale))
    text = said["mail_confirm_text"] + (f" {said['mail_confirm_lists']}" if wanted.lists else "")
    letter = Letter(
        said["mail_confirm_subject"], said["mail_confirm_heading"], text, said["mail_confirm_button"],
        links.confirm(number), said["mail_confirm_note"],
    )  # fmt: skip
    contact_id = wanted.channel.contact_id if wanted.channel else None
    data = {"lists": ", ".join(wanted.lists.values())}
    return system.put(wanted.account, wanted.said.address, contact_id, letter, data)


def expired(most: int) -> list[int]:
    """Return some sign-ups whose link has expired and that still hold what was typed."""
    return _ids("created_at < ? AND confirmed_at IS NULL AND key IS NOT NULL", LIVES_MS, most)


def blank(some: list[int]) -> int:
    """Forget what was typed; that there was something is kept for a while."""
    writing()
    return run(
        "UPDATE confirmation SET value = NULL, key = NULL, person = '{}', ip = NULL, user_agent = NULL "
        f"WHERE id IN ({','.join(map(str, some))}) AND confirmed_at IS NULL"
    )


def old(most: int) -> list[int]:
    """Return some sign-ups that were 30 days ago."""
    return _ids("created_at < ?", KEPT_MS, most)


def forget(some: list[int]) -> int:
    """Forget that there was something."""
    writing()
    return run(f"DELETE FROM confirmation WHERE id IN ({','.join(map(str, some))})")


def _ids(which: str, age_ms: int, most: int) -> list[int]:
    found = rows(f"SELECT id FROM confirmation WHERE {which} LIMIT ?", (clock.now_ms() - age_ms, most))
    return [row[0] for row in found]
