"""Delete contacts, merge two contacts into one, and erase all data of a person (GDPR, article 17).

After an erasure, the following remains: counts, anonymized events and evidence, and the suppression and opt-out of each
address, stored under a keyed hash.
"""

from typing import Any

from appliance.audience import consent, lists, suppressions
from appliance.audience.consent import Evidence
from appliance.audience.contacts import search, store, write
from appliance.audience.suppressions import SuppressionCause
from appliance.core import clock, crypto, signals
from appliance.core.addresses import MAX_ADDRESSES, Address
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.core.signals import Signal
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage import database, journal
from appliance.storage.database import connection, fold_case, rows, run
from appliance.storage.models import Channel, Contact, Erasure
from appliance.storage.models.account import CONTACTS
from appliance.storage.transactions import after_commit, require_write_transaction

# Sent with the ids of contacts in the transaction that deletes them, before their rows are deleted.
contacts_deleting = Signal[[list[int]]]()
# Sent in the transaction that merges two contacts: the id that stays, the id that is merged into it, and the time in
# milliseconds.
contact_merging = Signal[[int, int, int]]()

_MESSAGES_TO_CONTACT = (
    "SELECT id FROM message WHERE contact_id = :contact UNION SELECT id FROM message WHERE contact_id IS NULL "
    "AND account_id = :account AND recipient_key IN (SELECT key FROM channel WHERE contact_id = :contact)"
)
# The messages of a contact: those sent to the contact, those without a contact to the contact's addresses, copies of
# both to `cc` and `bcc`, and test messages that were rendered with the contact's values. The copies of an email that
# was submitted by SMTP are those of their own recipients, to whom it is still sent.
_MESSAGES_OF_CONTACT = (
    f"{_MESSAGES_TO_CONTACT} UNION SELECT message_id FROM message_content WHERE shown_as = :contact "
    f"UNION SELECT message_id FROM message_content WHERE first_message_id IN ({_MESSAGES_TO_CONTACT}) "
    "AND raw_message_id IS NULL"
)
# A test message or a copy that was rendered with the values of the contact was sent to another person. Its recipient
# stays, unless it is being sent.
_SENT_TO_SOMEONE_ELSE = (
    "contact_id IS NOT :contact AND status <> 'sending' "
    "AND recipient_key NOT IN (SELECT key FROM channel WHERE contact_id = :contact)"
)
# The rows of all recipients of a message that the contact got too. Their headers have shown the contact's address; it
# is left out from now on, because headers are made from the recipients of the rows.
_WITH_CONTACT_IN_HEADERS = (
    "SELECT message_id FROM message_content WHERE first_message_id IN (SELECT first_message_id FROM message_content "
    f"WHERE message_id IN ({_MESSAGES_OF_CONTACT}))"
)
_OPEN = "status IN ('queued', 'held')"
# The incoming messages of a contact, and those from the contact's number that belong to no contact.
_INCOMING_OF_CONTACT = (
    "SELECT id FROM incoming WHERE contact_id = :contact UNION SELECT id FROM incoming WHERE contact_id IS NULL "
    "AND account_id = :account AND sender IN (SELECT key FROM channel WHERE contact_id = :contact)"
)
# These keys in the data of events about messages stay, so that the numbers in reports of campaigns do not change.
_KEPT_EVENT_DATA = ("message_id", "campaign_id", "flow_id", "step_id", "verdict")
_PERSONAL_EVENT_COLUMNS = (
    "resource_url", "ip", "user_agent", "browser", "os", "device_type", "referrer", "utm_source", "utm_medium",
    "utm_term", "utm_content", "utm_campaign", "idempotency_key",
)  # fmt: skip


# Evidence loses the IP address, the user agent and the text of keywords. A consent text was written by the account, not
# by the person, so it stays.
_ANONYMIZE_EVIDENCE = "ip = NULL, user_agent = NULL, text = CASE WHEN source = 'keyword' THEN NULL ELSE text END"

# Former addresses of the contact that no other contact has are kept only as keyed hashes.
_ANONYMIZE_FORMER_ADDRESSES = (
    "UPDATE suppression SET address = NULL, diagnostic = NULL, note = NULL WHERE account_id = :account "
    "AND address IS NOT NULL AND (kind, address_hash) IN (SELECT kind, address_hash FROM consent "
    "WHERE contact_id = :contact) AND NOT EXISTS (SELECT 1 FROM channel c WHERE c.account_id = :account "
    "AND c.kind = suppression.kind AND c.key = lower(suppression.address) AND c.contact_id <> :contact)"
)


def erase(account_id: int, contact_id: int, evidence: Evidence) -> Contact:
    """Erase all personal data of a contact, suppress the contact's addresses, and return the contact. Raises NotFound.

    Data in files of imports is erased later by a background job.
    """
    require_write_transaction()
    contact = store.get(account_id, contact_id)
    overwrite_deleted_data()
    with_ids = {"account": account_id, "contact": contact_id, "now": clock.now_ms()}
    _erase_messages(with_ids)
    _erase_incoming(with_ids)
    # Receivers of webhooks may have repeated personal data in their responses.
    run(
        "UPDATE webhook_delivery SET response_text = NULL WHERE response_text IS NOT NULL "
        "AND event_id IN (SELECT id FROM event WHERE contact_id = :contact)",
        with_ids,
    )
    run(
        "DELETE FROM event WHERE contact_id = :contact AND (resource_uid IS NULL OR NOT resource_uid GLOB 'message:*')",
        with_ids,
    )
    # Evidence is anonymized, including that about former addresses, while its rows still refer to the contact.
    run(f"UPDATE consent SET {_ANONYMIZE_EVIDENCE} WHERE contact_id = :contact", with_ids)
    run(_ANONYMIZE_FORMER_ADDRESSES, with_ids)
    # Confirmations for the contact's addresses lose all values. The rows stay, because links in emails refer to them.
    run(
        "UPDATE confirmation SET value = NULL, key = NULL, person = '{}', ip = NULL, user_agent = NULL "
        "WHERE account_id = :account AND (kind, key) IN (SELECT kind, key FROM channel WHERE contact_id = :contact)",
        with_ids,
    )
    delete(account_id, contact_id)
    journal.append(account_id, "erased", contact=contact_id)
    for channel in contact.channels:
        _suppress_erased(channel, evidence)
    _queue_file_erasure(contact)
    return contact


def _queue_file_erasure(contact: Contact) -> None:
    """Queue the erasure of the contact's addresses from files of imports, which the job `cleanup` does."""
    erased_addresses = [(channel.kind, channel.key, channel.value) for channel in contact.channels]
    if erased_addresses:
        Erasure.create(
            account=contact.account_id, contact_id=contact.id, addresses=erased_addresses, created_at=clock.now_ms()
        )
        after_commit(lambda: signals.wake("cleanup"))


def _erase_messages(with_ids: dict[str, int]) -> None:
    """Clear content and recipient of each message of a contact, end unsent messages, and delete captured emails."""
    facts = "json_object(" + ", ".join(f"'{name}', data ->> '$.{name}'" for name in _KEPT_EVENT_DATA) + ")"
    cleared = ", ".join(f"{name} = NULL" for name in _PERSONAL_EVENT_COLUMNS)
    bulk_ids = rows(
        "SELECT DISTINCT bulk_id FROM message_content WHERE bulk_id NOT NULL "
        f"AND message_id IN ({_MESSAGES_OF_CONTACT})",
        with_ids,
    )
    run(
        "UPDATE message_content SET subject = NULL, body = NULL, text = NULL, preheader = NULL, from_name = NULL, "
        "design = NULL, links = NULL, headers = '{}', data = '{}', has_attachments = 0, bulk_id = NULL "
        f"WHERE message_id IN ({_MESSAGES_OF_CONTACT})",
        with_ids,
    )
    # Content that only this contact got may name the contact.
    for (bulk_id,) in bulk_ids:
        run(
            "DELETE FROM bulk_content WHERE id = ? AND NOT EXISTS (SELECT 1 FROM message_content WHERE bulk_id = ?)",
            (bulk_id, bulk_id),
        )
    _erase_submitted_emails(with_ids)
    for copies in (_MESSAGES_OF_CONTACT, _WITH_CONTACT_IN_HEADERS):
        run(f"DELETE FROM retry_payload WHERE message_id IN ({copies})", with_ids)
        run(f"DELETE FROM captured_message WHERE account_id = :account AND message_id IN ({copies})", with_ids)
    # The job `cleanup` deletes the files that no other message needs.
    if run(f"DELETE FROM attachment WHERE message_id IN ({_MESSAGES_OF_CONTACT})", with_ids):
        after_commit(lambda: signals.wake("cleanup"))
    # Hits are still counted, but no longer refer to a message.
    run(
        "UPDATE hit SET message_id = NULL, event_id = NULL, ip = NULL, user_agent = NULL, referrer = NULL "
        f"WHERE message_id IN ({_MESSAGES_OF_CONTACT})",
        with_ids,
    )
    run(f"DELETE FROM receipt WHERE message_id IN ({_MESSAGES_OF_CONTACT})", with_ids)
    run(
        f"UPDATE event SET contact_id = NULL, data = {facts}, {cleared} "
        f"WHERE (contact_id = :contact AND resource_uid GLOB 'message:*') OR (account_id = :account "
        f"AND resource_uid IN (SELECT 'message:' || id FROM ({_MESSAGES_OF_CONTACT})))",
        with_ids,
    )
    run(
        f"UPDATE message SET recipient = CASE WHEN {_SENT_TO_SOMEONE_ELSE} THEN recipient END, "
        f"recipient_key = CASE WHEN {_SENT_TO_SOMEONE_ELSE} THEN recipient_key END, subject = NULL, tags = NULL, "
        "error_text = NULL, "
        # A message that may have been accepted by a server stays uncertain.
        f"status = CASE WHEN {_OPEN} THEN CASE WHEN uncertain_count > 0 THEN 'uncertain' ELSE 'skipped' END ELSE "
        "status END, "
        f"skip_reason = CASE WHEN {_OPEN} AND uncertain_count = 0 THEN 'contact_deleted' ELSE skip_reason END, "
        f"error_code = CASE WHEN {_OPEN} AND uncertain_count > 0 THEN 'in_doubt' ELSE error_code END, "
        f"due_at = NULL, updated_at = :now WHERE id IN ({_MESSAGES_OF_CONTACT})",
        with_ids,
    )
    _erase_tests_to_former_addresses(with_ids)
    # This column is cleared last, because the statements above find the messages by it.
    run("UPDATE message_content SET shown_as = NULL WHERE shown_as = :contact", with_ids)


def _erase_submitted_emails(with_ids: dict[str, int]) -> None:
    """Delete emails submitted by SMTP that the contact got, because their headers contain the contact's address.

    An email that is still to be sent to other recipients is deleted after that (`submitted.list_expired`). The
    contact's own messages no longer refer to the email in any case.
    """
    raw_ids = rows(
        "SELECT DISTINCT raw_message_id FROM message_content WHERE raw_message_id IS NOT NULL AND message_id IN "
        f"({_MESSAGES_OF_CONTACT} UNION {_WITH_CONTACT_IN_HEADERS})",
        with_ids,
    )
    if not raw_ids:
        return
    run(f"UPDATE message_content SET raw_message_id = NULL WHERE message_id IN ({_MESSAGES_OF_CONTACT})", with_ids)
    run(
        f"DELETE FROM raw_message WHERE id IN ({','.join(str(raw_id) for (raw_id,) in raw_ids)}) AND NOT EXISTS "
        "(SELECT 1 FROM message_content c JOIN message m ON m.id = c.message_id WHERE "
        "c.raw_message_id = raw_message.id AND m.status IN ('queued', 'held', 'sending'))"
    )
    after_commit(lambda: signals.wake("cleanup"))


def _erase_incoming(with_ids: dict[str, int]) -> None:
    """Clear text and number of all incoming messages of a contact; their time and kind stay."""
    run(
        "DELETE FROM event WHERE account_id = :account AND contact_id IS NULL "
        f"AND resource_uid IN (SELECT 'incoming:' || id FROM ({_INCOMING_OF_CONTACT}))",
        with_ids,
    )
    run(
        f"UPDATE incoming SET sender = NULL, body = NULL, keyword = NULL WHERE id IN ({_INCOMING_OF_CONTACT})", with_ids
    )


def _erase_tests_to_former_addresses(with_ids: dict[str, int]) -> None:
    """Clear the recipient of test messages to former addresses of the contact, which are known from the evidence."""
    tests = rows(
        "SELECT id, channel, recipient_key FROM message WHERE recipient_key IS NOT NULL "
        "AND id IN (SELECT message_id FROM message_content WHERE shown_as = :contact)",
        with_ids,
    )
    for number, kind, key in tests:
        run(
            "UPDATE message SET recipient = NULL, recipient_key = NULL WHERE id = ? AND EXISTS (SELECT 1 FROM consent "
            "WHERE account_id = ? AND address_hash = ? AND contact_id = ?)",
            (number, with_ids["account"], crypto.hash_address(kind, key), with_ids["contact"]),
        )


def _suppress_erased(channel: Channel, evidence: Evidence) -> None:
    """Suppress an address of an erased contact, store it only as a hash, and anonymize the evidence about it."""
    hashed = crypto.hash_address(channel.kind, channel.key)
    address = Address(channel.kind, channel.value, channel.key)
    # A receipt that is not matched to a message yet may contain the address in its text.
    run("UPDATE receipt SET text = NULL WHERE instr(text, ?)", (channel.key.lstrip("+"),))
    by_request = Evidence(evidence.source, evidence.actor, test=evidence.test)
    suppressions.suppress(channel.account_id, address, SuppressionCause("erased", evidence.source), by_request)
    parameters = (channel.account_id, channel.kind, hashed)
    run(
        "UPDATE suppression SET address = NULL, diagnostic = NULL, note = NULL "
        "WHERE account_id = ? AND kind = ? AND address_hash = ?",
        parameters,
    )
    run(
        f"UPDATE consent SET {_ANONYMIZE_EVIDENCE} WHERE account_id = ? AND address_hash = ? AND contact_id IS NULL",
        (channel.account_id, hashed),
    )


# A merge loses no data, and the stricter consent of the two contacts applies.

_FIRST_WINS = ("first_name", "last_name", "source", "country_code", "language")
_SUMMED = ("email_sent_count", "email_open_count", "email_click_count", "email_soft_bounce_count", "sms_sent_count")
_LATEST = ("email_last_sent_at", "email_last_opened_at", "email_last_clicked_at", "last_interacted_at")
_TRACKING = ("full", "aggregate", "none")


def find_merge_pair(account_id: int, contact_id: int, other_id: int) -> tuple[Contact, Contact]:
    """Return the contact that stays and the contact that is merged into it.

    Raises NotFound if `contact_id` does not exist, and Invalid if `other_id` does not exist or is the same contact, or
    if both have more than `MAX_ADDRESSES` addresses together.
    """
    contact = store.get(account_id, contact_id)
    if other_id == contact_id:
        raise Invalid({"contact_id": [gettext("is invalid")]})
    other_contacts = store.fetch_by_ids([other_id])
    if not other_contacts or other_contacts[0].account_id != account_id:
        raise Invalid({"contact_id": [gettext("must exist")]})
    if len(contact.channels) + len(other_contacts[0].channels) > MAX_ADDRESSES:
        text = gettext("has too many addresses for a merge (maximum is %(limit)s together)", limit=MAX_ADDRESSES)
        raise Invalid({"contact_id": [text]})
    return contact, other_contacts[0]


def merge(account_id: int, contact_id: int, other_id: int, evidence: Evidence) -> Contact:
    """Merge the contact `other_id` into `contact_id`, delete the other, and return the contact that stays.

    Raises NotFound for an unknown `contact_id`. Raises Invalid as `find_merge_pair` does, or if the merged custom
    data would be invalid.
    """
    require_write_transaction()
    contact, other = find_merge_pair(account_id, contact_id, other_id)
    data, faults = _merge_data(contact, other), Faults()
    data = write.check_data(data, "data", faults)
    faults.check()
    old_tags = write.tags_of(contact.data)
    opt_outs = {kind: _find_opt_out(contact, kind) or _find_opt_out(other, kind) for kind in ("email", "phone")}
    _merge_fields(contact, other, data)
    _move_rows(contact.id, other.id)
    _merge_lists(contact.id, other.id)
    search.remove_from_index(other.id)
    Contact.delete().where(Contact.id == other.id).execute()
    CONTACTS.save(contact)
    store.load_relations([contact])
    _apply_strictest_consent(contact, opt_outs, evidence)
    write.record_tag_changes(contact, old_tags)
    event_data = {"merged_contact_id": other.id, "merged_uuid": other.uuid, "source": evidence.source}
    log.record(NewEvent(account_id, "contact_merge", contact.id, event_data))
    search.index_contact(contact, contact.channels)
    return contact


def _merge_data(contact: Contact, other: Contact) -> dict[str, Any]:
    """Return the custom data of both contacts together.

    For a key that both have, the value of the contact that stays is used. Tags of both are kept, once regardless of
    case.
    """
    data = {**other.data, **contact.data}
    tags = {fold_case(tag): tag for tag in write.tags_of(other.data) + write.tags_of(contact.data)}
    return {**data, "tags": list(tags.values())} if tags else data


def _merge_fields(contact: Contact, other: Contact, data: dict[str, Any]) -> None:
    contact.data = data
    for name in _FIRST_WINS:
        setattr(contact, name, getattr(contact, name) or getattr(other, name))
    for name in _SUMMED:
        setattr(contact, name, getattr(contact, name) + getattr(other, name))
    for name in _LATEST:
        setattr(contact, name, max(getattr(source_contact, name) or 0 for source_contact in (contact, other)) or None)
    contact.tracking = max(contact.tracking, other.tracking, key=_TRACKING.index)
    contact.created_at = min(contact.created_at, other.created_at)
    contact.updated_at = clock.now_ms()


def _find_opt_out(contact: Contact, kind: str) -> consent.By | None:
    """Return who opted out a contact's addresses of a kind; `recipient` if both recipient and operator did.

    Returns None if one of the addresses is subscribed, or if none is opted out.
    """
    channels_of_kind = [channel for channel in contact.channels if channel.kind == kind]
    if any(channel.subscribed for channel in channels_of_kind):
        return None
    by = {channel.opted_out_by or "recipient" for channel in channels_of_kind if channel.opt_out_at is not None}
    return ("recipient" if "recipient" in by else "operator") if by else None


def _apply_strictest_consent(contact: Contact, opt_outs: dict[str, consent.By | None], evidence: Evidence) -> None:
    """Opt out all addresses of each kind that `opt_outs` names; `opt_outs` maps a kind to who opted out, or to None."""
    merge_evidence = Evidence(
        "merge", evidence.actor, evidence.ip, evidence.user_agent,
        text="one of the two merged contacts had opted out", test=evidence.test,
    )  # fmt: skip
    for channel in contact.channels:
        by = opt_outs[channel.kind]
        if by is not None and channel.subscribed:
            consent.opt_out(channel, by, merge_evidence)
        elif by is not None:
            consent.repeat_opt_out(channel, by, merge_evidence)


def _move_rows(contact_id: int, other_id: int) -> None:
    """Move channels, messages, events, evidence and other rows of the other contact to the contact that stays.

    If both contacts have a message of the same campaign, one of the two messages loses its contact instead. It is the
    message of the contact that stays if only this message is skipped or cancelled, else the message of the other
    contact.
    """
    ids = {"contact": contact_id, "other": other_id, "now": clock.now_ms()}
    shared_campaigns = (
        "SELECT mine.id AS mine, theirs.id AS theirs, mine.status IN ('skipped', 'cancelled') "
        "AND theirs.status NOT IN ('skipped', 'cancelled') AS weaker FROM message mine JOIN message theirs "
        "ON theirs.campaign_id = mine.campaign_id WHERE mine.contact_id = :contact AND theirs.contact_id = :other "
        "AND mine.campaign_id IS NOT NULL"
    )
    run(
        "INSERT INTO click_hour (contact_id, hour, clicks) SELECT :contact, hour, clicks FROM click_hour "
        "WHERE contact_id = :other ON CONFLICT (contact_id, hour) DO UPDATE SET clicks = clicks + excluded.clicks",
        ids,
    )
    # The sender skips unsent messages without a contact, so that the contact does not receive the campaign twice.
    for own_message, other_message, is_weaker in rows(shared_campaigns, ids):
        run("UPDATE message SET contact_id = NULL WHERE id = ?", (own_message if is_weaker else other_message,))
    contact_merging.send(contact_id, other_id, ids["now"])
    run("UPDATE message_content SET shown_as = :contact WHERE shown_as = :other", ids)
    # Memberships in watched segments are combined, so that the merge itself is not recorded as entering a segment, and
    # leaving one later is still noticed.
    run(
        "INSERT INTO segment_member (segment_id, contact_id) SELECT segment_id, :contact FROM segment_member "
        "WHERE contact_id = :other ON CONFLICT DO NOTHING",
        ids,
    )
    for table in ("channel", "message", "incoming", "event", "consent", "run"):
        run(f"UPDATE {table} SET contact_id = :contact WHERE contact_id = :other", ids)


def _merge_lists(contact_id: int, other_id: int) -> None:
    """Make the contact a member of the lists of both contacts, except lists that either of them has left."""
    ids = {"contact": contact_id, "other": other_id}
    count_sql = "SELECT contact_list_id, count(*) FROM membership WHERE contact_id IN (:contact, :other) GROUP BY 1"
    counts_before = dict(rows(count_sql, ids))
    for table in ("membership", "list_opt_out"):
        run(
            f"INSERT INTO {table} (contact_list_id, contact_id, created_at) SELECT contact_list_id, :contact, "
            f"created_at FROM {table} WHERE contact_id = :other ON CONFLICT DO NOTHING",
            ids,
        )
        run(f"DELETE FROM {table} WHERE contact_id = :other", ids)
    run(
        "DELETE FROM membership WHERE contact_id = :contact AND contact_list_id IN "
        "(SELECT contact_list_id FROM list_opt_out WHERE contact_id = :contact)",
        ids,
    )
    counts_after = dict(rows(count_sql, ids))
    for list_id, number in counts_before.items():
        lost = number - counts_after.get(list_id, 0)
        if lost:
            run("UPDATE contact_list SET contacts_count = contacts_count - ? WHERE id = ?", (lost, list_id))


def delete(account_id: int, contact_id: int) -> Contact:
    """Delete a contact and return it; the opt-outs of its addresses are kept as hashes. Raises NotFound."""
    require_write_transaction()
    contact = store.get(account_id, contact_id)
    for channel in contact.channels:
        consent.remember_opt_out(channel)
    for list_id in contact.list_ids:
        lists.remove_members(account_id, list_id, [contact.id])
    search.remove_from_index(contact.id)
    contacts_deleting.send([contact.id])
    log.record(NewEvent(account_id, "contact_delete", None, {"contact_id": contact.id}))
    Contact.delete().where(Contact.id == contact.id).execute()
    return contact


def overwrite_deleted_data() -> None:
    """Make SQLite overwrite deleted data with zeros until the current transaction is committed.

    Otherwise deleted bytes stay in the file until their space is used again.
    """
    require_write_transaction()
    database.set_secure_delete(is_complete=True)
    after_commit(_stop_overwriting)


def _stop_overwriting() -> None:
    database.set_secure_delete(is_complete=False)


def purge_search_index(pages: int = 250) -> bool:
    """Remove words of deleted contacts from up to `pages` pages of the search index; return whether more may remain.

    The index keeps the words of a deleted contact until FTS5 merges the pages that contain them, which may otherwise
    never happen.
    """
    overwrite_deleted_data()
    changes_before = connection().total_changes()
    search.merge_index_pages(pages)
    return bool(connection().total_changes() - changes_before > 1)
