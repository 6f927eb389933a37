"""Forgets a person for good: what stays are counts, keyed hashes of opt-outs, and the suppression of the addresses."""

from appliance.audience.contacts import store, suppress, write
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.suppress import Case
from appliance.audience.contacts.write import overwriting
from appliance.core import clock, tokens, wake_ups
from appliance.core.addresses import Address
from appliance.storage import journal
from appliance.storage.models import Channel, Contact, Erasure
from appliance.storage.open import rows, run
from appliance.storage.work import after_commit, writing

# The messages of a person: theirs, those to their addresses that are nobody's any more, and tests with their values
_MESSAGES = (
    "SELECT id FROM message WHERE contact_id = :contact UNION SELECT id FROM message WHERE contact_id IS NULL "
    "AND account_id = :account AND recipient_key IN (SELECT key FROM channel WHERE contact_id = :contact) "
    "UNION SELECT message_id FROM message_content WHERE shown_as = :contact"
)
# Who got a test with somebody's values is another, and stays in it; of one in hand both go, so that no copy is kept
_ANOTHERS = (
    "contact_id IS NULL AND status <> 'sending' "
    "AND recipient_key NOT IN (SELECT key FROM channel WHERE contact_id = :contact)"
)
_OPEN = "status IN ('queued', 'held')"
# What a person wrote us, and what came from their number when it was nobody's
_HEARD = (
    "SELECT id FROM incoming WHERE contact_id = :contact UNION SELECT id FROM incoming WHERE contact_id IS NULL "
    "AND account_id = :account AND sender IN (SELECT key FROM channel WHERE contact_id = :contact)"
)
# Of an event about a message the bare fact is kept, so that a campaign's figures stay what they were
_FACTS = ("message_id", "campaign_id", "flow_id", "step_id", "verdict")
_PERSONAL = (
    "resource_url", "ip", "user_agent", "browser", "os", "device_type", "referrer", "utm_source", "utm_medium",
    "utm_term", "utm_content", "utm_campaign", "idempotency_key",
)  # fmt: skip


# Of evidence where they were, and what they wrote themselves; the words they agreed to are ours
_BARE = "ip = NULL, user_agent = NULL, text = CASE WHEN source = 'keyword' THEN NULL ELSE text END"

# Of addresses they had before, and nobody else has now, only the keyed hash is kept
_FORMER = (
    "UPDATE suppression SET address = NULL, diagnostic = NULL, note = NULL WHERE account_id = :account "
    "AND address IS NOT NULL AND (kind, address_hash) IN (SELECT kind, address_hash FROM consent "
    "WHERE contact_id = :contact) AND NOT EXISTS (SELECT 1 FROM channel c WHERE c.account_id = :account "
    "AND c.kind = suppression.kind AND c.key = lower(suppression.address) AND c.contact_id <> :contact)"
)


def erase(account_id: int, contact_id: int, evidence: Evidence) -> Contact:
    """Erase a contact and answer it as it was; its addresses are not written to again. Raises NotFound."""
    writing()
    contact = store.get(account_id, contact_id)
    overwriting()
    with_ids = {"account": account_id, "contact": contact_id, "now": clock.now_ms()}
    _messages(with_ids)
    _heard(with_ids)
    # Whoever was told of it may have said it back
    run(
        "UPDATE webhook_delivery SET response_text = NULL WHERE response_text IS NOT NULL "
        "AND event_id IN (SELECT id FROM event WHERE contact_id = :contact)",
        with_ids,
    )
    run(
        "DELETE FROM event WHERE contact_id = :contact AND (resource_uid IS NULL OR NOT resource_uid GLOB 'message:*')",
        with_ids,
    )
    # While it is still known whose it is, that about addresses they had before too
    run(f"UPDATE consent SET {_BARE} WHERE contact_id = :contact", with_ids)
    run(_FORMER, with_ids)
    # What was asked for in their name, by themselves or by others; the bare fact is kept for its link
    run(
        "UPDATE confirmation SET value = NULL, key = NULL, person = '{}', ip = NULL, user_agent = NULL "
        "WHERE account_id = :account AND (kind, key) IN (SELECT kind, key FROM channel WHERE contact_id = :contact)",
        with_ids,
    )
    write.delete(account_id, contact_id)
    journal.note(account_id, "erased", contact=contact_id)
    for channel in contact.channels:
        _address(channel, evidence)
    _traces(contact)
    return contact


def _traces(contact: Contact) -> None:
    """Leave word for those who keep more of people than the database: files of imports."""
    named = [(channel.kind, channel.key, channel.value) for channel in contact.channels]
    if named:
        Erasure.create(account=contact.account_id, contact_id=contact.id, addresses=named, created_at=clock.now_ms())
        after_commit(lambda: wake_ups.ring("erasures"))


def _messages(with_ids: dict[str, int]) -> None:
    """Take words and recipient out of every message of a person, end the open ones, and drop captured mail."""
    facts = "json_object(" + ", ".join(f"'{name}', data ->> '$.{name}'" for name in _FACTS) + ")"
    cleared = ", ".join(f"{name} = NULL" for name in _PERSONAL)
    run(
        "UPDATE message_content SET subject = NULL, body = NULL, text = NULL, preheader = NULL, from_name = NULL, "
        f"design = NULL, links = NULL, headers = '{{}}', data = '{{}}' WHERE message_id IN ({_MESSAGES})",
        with_ids,
    )
    run(f"DELETE FROM repeat WHERE message_id IN ({_MESSAGES})", with_ids)
    # What was asked for stays counted, and is nobody's
    run(
        "UPDATE hit SET message_id = NULL, event_id = NULL, ip = NULL, user_agent = NULL, referrer = NULL "
        f"WHERE message_id IN ({_MESSAGES})",
        with_ids,
    )
    run(f"DELETE FROM captured WHERE account_id = :account AND message_id IN ({_MESSAGES})", with_ids)
    run(f"DELETE FROM receipt WHERE message_id IN ({_MESSAGES})", with_ids)
    run(
        f"UPDATE event SET contact_id = NULL, data = {facts}, {cleared} "
        f"WHERE (contact_id = :contact AND resource_uid GLOB 'message:*') OR (account_id = :account "
        f"AND resource_uid IN (SELECT 'message:' || id FROM ({_MESSAGES})))",
        with_ids,
    )
    run(
        f"UPDATE message SET recipient = CASE WHEN {_ANOTHERS} THEN recipient END, "
        f"recipient_key = CASE WHEN {_ANOTHERS} THEN recipient_key END, subject = NULL, tags = NULL, "
        "error_text = NULL, "
        # What may have been taken before stays so, for that is what is known
        f"status = CASE WHEN {_OPEN} THEN CASE WHEN doubts > 0 THEN 'uncertain' ELSE 'skipped' END ELSE status END, "
        f"skip_reason = CASE WHEN {_OPEN} AND doubts = 0 THEN 'contact_deleted' ELSE skip_reason END, "
        f"error_code = CASE WHEN {_OPEN} AND doubts > 0 THEN 'in_doubt' ELSE error_code END, "
        f"due_at = NULL, updated_at = :now WHERE id IN ({_MESSAGES})",
        with_ids,
    )
    _tests_to_former_addresses(with_ids)
    # Last, for it is how they were found
    run("UPDATE message_content SET shown_as = NULL WHERE shown_as = :contact", with_ids)


def _heard(with_ids: dict[str, int]) -> None:
    """Take words and number out of all that a person wrote; that somebody wrote then, and what it was, stays."""
    run(
        "DELETE FROM event WHERE account_id = :account AND contact_id IS NULL "
        f"AND resource_uid IN (SELECT 'incoming:' || id FROM ({_HEARD}))",
        with_ids,
    )
    run(f"UPDATE incoming SET sender = NULL, body = NULL, keyword = NULL WHERE id IN ({_HEARD})", with_ids)


def _tests_to_former_addresses(with_ids: dict[str, int]) -> None:
    """Take out the recipient of tests that went to an address the person had before: their consent history knows."""
    found = rows(
        "SELECT id, channel, recipient_key FROM message WHERE recipient_key IS NOT NULL "
        "AND id IN (SELECT message_id FROM message_content WHERE shown_as = :contact)",
        with_ids,
    )
    for number, kind, key in found:
        run(
            "UPDATE message SET recipient = NULL, recipient_key = NULL WHERE id = ? AND EXISTS (SELECT 1 FROM consent "
            "WHERE account_id = ? AND address_hash = ? AND contact_id = ?)",
            (number, with_ids["account"], tokens.address_hash(kind, key), with_ids["contact"]),
        )


def _address(channel: Channel, evidence: Evidence) -> None:
    """Suppress an address as erased, known by its hash alone from now on."""
    hashed = tokens.address_hash(channel.kind, channel.key)
    address = Address(channel.kind, channel.value, channel.key)
    # Nobody knows yet which message it is about, and its words may name them
    run("UPDATE receipt SET text = NULL WHERE instr(text, ?)", (channel.key.lstrip("+"),))
    by_request = Evidence(evidence.source, evidence.actor, test=evidence.test)
    suppress.add(channel.account_id, address, Case("erased", evidence.source), by_request)
    where = (channel.account_id, channel.kind, hashed)
    run(
        "UPDATE suppression SET address = NULL, diagnostic = NULL, note = NULL "
        "WHERE account_id = ? AND kind = ? AND address_hash = ?",
        where,
    )
    run(
        f"UPDATE consent SET {_BARE} WHERE account_id = ? AND address_hash = ? AND contact_id IS NULL",
        (channel.account_id, hashed),
    )
