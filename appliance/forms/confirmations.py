"""The confirmation links in emails, which confirm a sign-up or an erasure.

Opening a link only shows a page; the button on the page confirms.
"""

from typing import Any, Literal, NamedTuple

from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.brand import PageStyle
from appliance.core import addresses, clock, crypto
from appliance.core.errors import Invalid
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.forms import submissions
from appliance.forms.submissions import LINK_LIFETIME_MS, Submission
from appliance.sending.messages import links
from appliance.storage.database import rows, run
from appliance.storage.models import Channel, Confirmation, Form
from appliance.storage.transactions import require_write_transaction
from appliance.tracking import unsubscribes

State = Literal["open", "done", "expired"]


class ConfirmationPage(NamedTuple):
    """The content of the confirmation page.

    `masked_address` is None after the address was deleted. `lists` are the names of the public lists that the contact
    joins; for a form without public lists, its title or name is among them. `message_id` is the id of the email with
    the link.
    """

    purpose: Literal["opt_in", "erase"]
    state: State
    style: PageStyle
    masked_address: str | None
    lists: list[str]
    message_id: int | None


def find_confirmation(token: str) -> Confirmation | None:
    """Return the row that a token refers to, or None if the token is invalid or the row was deleted."""
    confirmation_id = crypto.read_token(links.CONFIRM, token)
    return Confirmation.get_or_none(Confirmation.id == confirmation_id) if confirmation_id is not None else None


def load_page(token: str) -> ConfirmationPage | None:
    """Return the content of the page for a token, or None if the token is invalid or the row was deleted."""
    confirmation = find_confirmation(token)
    if confirmation is None:
        return None
    purpose: Any = confirmation.purpose
    return ConfirmationPage(
        purpose, _get_state(confirmation),
        brands.get_page_style(confirmation.account_id, _find_language(confirmation)),
        addresses.mask_address(confirmation.value) if confirmation.value else None,
        _name_lists(confirmation), confirmation.message_id,
    )  # fmt: skip


def _name_lists(confirmation: Confirmation) -> list[str]:
    """Return the names by which the page shows what the contact joins, the same as in the email with the link.

    Only public lists are shown by name; the names of others are for the team. A form without public lists is shown by
    its title, or by its name if it has no title, as on its own page.
    """
    pending = {row.id: row for row in (*_list_pending(confirmation), confirmation)}.values()
    names = rows(
        "SELECT id, name FROM contact_list WHERE account_id = ? AND public ORDER BY name_order(name), id",
        (confirmation.account_id,),
    )
    public_ids, list_ids = {row[0] for row in names}, {number for row in pending for number in row.list_ids}
    form_ids = {row.form_id for row in pending if row.list_ids and public_ids.isdisjoint(row.list_ids)}
    forms = Form.select(Form.name, Form.title).where(Form.id.in_(form_ids)).order_by(Form.id)
    return [name for number, name in names if number in list_ids] + [form.title or form.name for form in forms]


def _find_language(confirmation: Confirmation) -> str | None:
    """Return the submitted language, else that of the contact with the address, else the browser's, or None."""
    person: dict[str, Any] = confirmation.person
    if own_language := person.get("names", {}).get("language"):
        return str(own_language)
    channel = submissions.find_channel(confirmation.account_id, confirmation.kind, confirmation.key or "")
    return contacts.fetch_language(channel.contact_id if channel else None) or person.get("browser_language")


def _get_state(confirmation: Confirmation) -> State:
    if confirmation.confirmed_at is not None:
        return "done"
    is_old = confirmation.created_at <= clock.now_ms() - LINK_LIFETIME_MS
    return "expired" if is_old or confirmation.key is None else "open"


def _list_pending(confirmation: Confirmation) -> list[Confirmation]:
    """Return all confirmations that the link of a confirmation confirms, oldest first.

    A link for an opt-in also confirms the other open opt-ins of the same address, because an address gets only one link
    a day, however many forms were submitted. A link for an erasure confirms only the erasure.
    """
    if confirmation.purpose != "opt_in" or confirmation.key is None:
        return [confirmation]
    return list(
        Confirmation.select()
        .where(
            Confirmation.account == confirmation.account_id, Confirmation.purpose == "opt_in",
            Confirmation.kind == confirmation.kind, Confirmation.key == confirmation.key,
            Confirmation.confirmed_at.is_null(), Confirmation.created_at > clock.now_ms() - LINK_LIFETIME_MS,
        )
        .order_by(Confirmation.id)
    )  # fmt: skip


def confirm(token: str, ip: str | None, user_agent: str | None, text: str | None) -> State | None:
    """Confirm the sign-up or erasure of a token, and return the resulting state; a repetition changes nothing.

    `text` is the text of the confirmation page, stored as evidence. The state is `done`, or `expired` if the link is
    too old; None if the token is invalid or the row was deleted. Raises Invalid as `save_contact` does.
    """
    require_write_transaction()
    confirmation = find_confirmation(token)
    if confirmation is None:
        return None
    state = _get_state(confirmation)
    if state != "open":
        return state
    evidence = Evidence("double_opt_in", "recipient", ip, user_agent, text, confirmation.message_id)
    if confirmation.purpose == "erase":
        unsubscribes.confirm_erasure(confirmation, evidence)
    else:
        _opt_in(confirmation, evidence)
    return "done"


def _opt_in(mailed: Confirmation, evidence: Evidence) -> None:
    """Opt the address in for all confirmations that the link of `mailed` confirms.

    Values from submissions that the person who confirms did not make (`_find_own`) only fill empty fields, because
    anybody can submit the address of another person.
    """
    pending = _list_pending(mailed)
    own_ids = _find_own(mailed, pending, evidence)
    confirmations = sorted(pending, key=lambda confirmation: confirmation.id not in own_ids)
    for confirmation in confirmations:
        channel = _save_contact(confirmation, evidence, is_theirs=confirmation.id in own_ids)
    # The opt-in is recorded once for all confirmations; the last channel has the final state.
    consent.confirm_opt_in(channel, evidence)
    consent.touch_last_interaction(channel.contact_id)
    now = clock.now_ms()
    for confirmation in confirmations:
        joined_ids = [list_id for list_id in confirmation.list_ids if consent.join_list(channel, list_id, evidence)]
        _record_confirmation(confirmation, channel, joined_ids)
        run(
            "UPDATE confirmation SET confirmed_at = ?, person = '{}', ip = NULL, user_agent = NULL WHERE id = ?",
            (now, confirmation.id),
        )
        run("UPDATE form SET confirmed_count = confirmed_count + 1 WHERE id = ?", (confirmation.form_id,))


def _save_contact(confirmation: Confirmation, evidence: Evidence, is_theirs: bool) -> Channel:
    """Save the contact of a confirmation; without its custom data if this data is invalid, for example too long.

    The person who confirms cannot shorten the data, and wants to be subscribed.
    """
    submission = _load_submission(confirmation)
    try:
        return submissions.save_contact(confirmation.account_id, submission, evidence, is_theirs)
    except Invalid:
        submission = submission._replace(data={})
        return submissions.save_contact(confirmation.account_id, submission, evidence, is_theirs)


def _find_own(mailed: Confirmation, pending: list[Confirmation], evidence: Evidence) -> set[int]:
    """Return the ids of the pending submissions that the person who confirms has made.

    A client is an IP address and a user agent. The submissions are those of the client that confirms now. If it made
    none, because the email is read on another device, they are those of the client that submitted `mailed`.
    """
    ip = addresses.anonymize_ip(evidence.ip, mailed.account.privacy_ip)
    clients = [(ip, (evidence.user_agent or "")[:400] or None), (mailed.ip, mailed.user_agent)]
    for client in clients:
        own_ids = {row.id for row in pending if row.ip is not None and (row.ip, row.user_agent) == client}
        if own_ids:
            return own_ids
    return {mailed.id}


def _load_submission(confirmation: Confirmation) -> Submission:
    person: dict[str, Any] = confirmation.person
    phone = person.get("phone")
    assert confirmation.value is not None and confirmation.key is not None, "what was erased is never confirmed"
    return Submission(
        addresses.Address(confirmation.kind, confirmation.value, confirmation.key),
        addresses.parse_phone(phone) if phone else None, person.get("names", {}), person.get("data", {}),
        person.get("browser_language"),
    )  # fmt: skip


def _record_confirmation(confirmation: Confirmation, channel: Channel, list_ids: list[int]) -> None:
    form = Form.get_or_none(Form.id == confirmation.form_id) if confirmation.form_id is not None else None
    data = {
        "form_id": confirmation.form_id, "form_name": form.name if form else None, "list_ids": list_ids,
        "message_id": confirmation.message_id,
    }  # fmt: skip
    log.record(NewEvent(
        confirmation.account_id, "double_opt_in_confirmed", channel.contact_id, data,
        f"form:{confirmation.form_id}" if form else None, form.name if form else None,
    ))  # fmt: skip
