"""The ledger's hot path: what became of many messages and the marks of their followers, in one transaction.

Acceptances are written here alone, together, statement by statement; everything else goes one by one (`outcomes`).
A batch comes to the same as its parts one after the other (a test holds the two against each other).
"""

from collections import Counter
from typing import Any

from appliance.core import clock
from appliance.core.signals import Signal
from appliance.events import log
from appliance.events.log import Happened
from appliance.sending.delivery.groups import domain_of
from appliance.sending.delivery.routing import DIRECT
from appliance.sending.messages import ledger, message_counters, outcomes, queue, sms_days, sms_rules, warm_up
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome
from appliance.storage import disk_guard
from appliance.storage.open import connection, rows
from appliance.storage.work import writing

_ACCEPTED = (
    "UPDATE message SET status = 'sent', sent_at = ?, attempts = attempts + 1, due_at = NULL, claimed_by = NULL, "
    "subject = CASE WHEN recipient_key IS NULL THEN NULL ELSE ? END, sender = ?, internet_message_id = ?, "
    "provider_id = coalesce(?, provider_id), segments = coalesce(?, segments), error_code = NULL, "
    "error_smtp = NULL, error_enhanced = NULL, error_text = NULL, updated_at = ? WHERE id = ? AND status = 'sending' "
    "RETURNING id, contact_id"
)
_CONTACT = (
    "UPDATE contact SET email_sent_count = email_sent_count + ?, sms_sent_count = sms_sent_count + ?, "
    "email_last_sent_at = CASE WHEN ? THEN ? ELSE email_last_sent_at END WHERE id = ?"
)
_HINTED = "UPDATE channel SET hinted_at = ? WHERE account_id = ? AND kind = 'phone' AND key = ?"
# Sent in the transaction that marks SMS as accepted, with the outcomes that were not accepted before
sms_accepted = Signal[[list[Outcome]]]()
_CHANNEL = "UPDATE channel SET sent_count = sent_count + 1 WHERE account_id = ? AND kind = ? AND key = ?"
# A row may be marked if it is still open and due, its source is live, and it may still be written to (P4, P5); what is
# not marked here is looked at closely, so this may refuse too much and never too little
_MARK = (
    "UPDATE message SET status = 'sending', claimed_by = ?, dated_at = coalesce(dated_at, ?), digest = ?, "
    "updated_at = ? WHERE id = ? AND status IN ('queued', 'held') AND due_at <= ? AND transactional = 0 "
    "AND EXISTS (SELECT 1 FROM account a WHERE a.id = message.account_id "
    "AND a.sending_stopped = 0 AND a.frequency_cap IS NULL) AND CASE WHEN run_id IS NULL THEN EXISTS "
    "(SELECT 1 FROM campaign c WHERE c.id = message.campaign_id AND c.phase IN ('sending', 'holding')) "
    "ELSE EXISTS (SELECT 1 FROM flow f WHERE f.id = message.flow_id AND f.status = 'active' AND f.deleted_at IS NULL "
    "AND f.drop_before IS NULL AND json_extract(f.data, '$.quiet_hours') IS NULL) END "
    "AND EXISTS (SELECT 1 FROM channel h "
    "WHERE h.account_id = message.account_id AND h.kind = CASE WHEN message.channel = 'sms' THEN 'phone' "
    "ELSE 'email' END AND h.key = message.recipient_key AND h.contact_id = message.contact_id AND h.subscribed = 1 "
    "AND h.suppression IS NULL) AND (channel = 'email' OR NOT EXISTS (SELECT 1 FROM contact p "
    "WHERE p.id = message.contact_id AND json_extract(p.data, '$.time_zone') IS NOT NULL)) RETURNING id"
)


def step(found: list[Outcome], marks: list[Claim], process: str) -> set[int]:
    """Write what became of messages, mark the next, and answer the ids that were marked; the others do not go out now.

    What is known may be handed in twice: it is written once.
    """
    writing()
    plain = {one.claim.id: one for one in found if one.error is None and one.skip_reason is None}
    if plain:
        _accepted([*plain.values()])
    for one in found:
        if one.error is not None or one.skip_reason is not None:
            outcomes.finish(one)
    return _mark(marks, process) if marks and disk_guard.trouble() is None else set()


def _accepted(found: list[Outcome]) -> None:
    now, here = clock.now_ms(), connection()
    written: dict[int, int | None] = dict(
        here.executemany(
            _ACCEPTED,
            [
                (
                    now,
                    one.subject,
                    one.sender,
                    one.internet_message_id,
                    one.provider_id,
                    one.prepared.parts if one.prepared is not None else None,
                    now,
                    one.claim.id,
                )
                for one in found
            ],
        )
    )
    # While it was in hand its contact may have been merged into another, or deleted: the row knows
    done = [(one.claim, written[one.claim.id]) for one in found if one.claim.id in written]
    begun = Counter(domain_of(one.sender or "") for one in found if one.claim.provider == DIRECT
                    and one.claim.id in written and not one.claim.test)  # fmt: skip
    warm_up.accepted(begun)
    via = {one.claim.id: one.via for one in found if one.via}
    here.executemany("DELETE FROM repeat WHERE message_id = ?", [(row.id,) for row, _ in done if row.doubts])
    counted = [(row, contact_id) for row, contact_id in done if not row.test]
    message_counters.accepted(row for row, _ in done)
    campaigns = Counter(row.campaign_id for row, _ in counted if row.campaign_id is not None)
    here.executemany(
        "UPDATE campaign SET sent_count = sent_count + ? WHERE id = ?", [(n, one) for one, n in campaigns.items()]
    )
    here.executemany(_CONTACT, [_contact(row, contact_id, now) for row, contact_id in counted if contact_id])
    here.executemany(_CHANNEL, [(row.account_id, row.kind, row.recipient_key) for row, _ in counted])
    flows = Counter(row.flow_id for row, _ in counted if row.run_id is not None)
    here.executemany("UPDATE flow SET sent_count = sent_count + ? WHERE id = ?", [(n, one) for one, n in flows.items()])
    names: dict[tuple[int | None, int | None], str | None] = {}
    deep = ledger.depths(row for row, _ in done)
    log.record_many(
        [_happened(row, contact_id, names, via.get(row.id) or {}, deep.get(row.id, 0)) for row, contact_id in done]
    )
    sms = [one for one in found if one.claim.channel == "sms" and one.claim.id in written]
    if sms:
        _accepted_sms(sms, now)


def _accepted_sms(found: list[Outcome], now: int) -> None:
    connection().executemany(
        _HINTED,
        [(now, one.claim.account_id, one.claim.recipient_key) for one in found
         if one.prepared is not None and one.prepared.hinted and not one.claim.test],
    )  # fmt: skip
    sms_days.accepted(one for one in found if not one.claim.test)
    sms_accepted.send(found)


def _contact(row: Claim, contact_id: int, now: int) -> tuple[Any, ...]:
    email = row.channel == "email"
    return email, not email, email, now, contact_id


def _happened(
    row: Claim,
    contact_id: int | None,
    names: dict[tuple[int | None, int | None], str | None],
    via: dict[str, str],
    depth: int,
) -> Happened:
    source = (row.campaign_id, row.flow_id)
    if source not in names:
        names[source] = ledger.source_name(row)
    return Happened(
        row.account_id, f"{row.channel}_sent", contact_id, ledger.about(row) | via,
        resource_uid=f"message:{row.id}", resource_name=names[source], test=row.test, chain_depth=depth,
    )  # fmt: skip


def _mark(marks: list[Claim], process: str) -> set[int]:
    now = clock.now_ms()
    wanted = {row.id: row for row in marks}
    close = sms_rules.suspects(marks, now)
    asked = [(process, row.dated_at, row.digest, now, row.id, now) for row in marks if row.id not in close]
    marked = {found[0] for found in connection().executemany(_MARK, asked)}
    for number in wanted.keys() - marked:
        fresh = rows(f"SELECT {COLUMNS} FROM message WHERE id = ? AND status IN ('queued', 'held')", (number,))
        if fresh and queue.mark(Claim._make(fresh[0]), process, wanted[number], now):
            marked.add(number)
    return marked
