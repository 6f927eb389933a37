"""Puts the messages of a flow's step into the ledger: a row for each run, skipped ones with their reason.

Nothing is rendered here. What the step says stands with it, and is filled right before a message leaves.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.core import clock, wake_ups
from appliance.events import log
from appliance.events.log import Happened
from appliance.flows.steps.kind import ON, Going, Here, Move, Node, skipped
from appliance.sending.messages import quiet
from appliance.sending.messages.ledger import BY_FLOWS_AT_ONCE
from appliance.settings import config
from appliance.storage.open import fetch_one, rows
from appliance.storage.work import after_commit, writing

# Of a person's addresses the first that may be written to, else the first: its state says why not
_MARKETING = (
    "(x.subscribed = 1 AND x.suppression IS NULL)",
    "CASE WHEN h.id IS NULL THEN 'no_channel' "
    "WHEN h.suppression IS NOT NULL THEN 'suppressed_' || h.suppression "
    "WHEN h.subscribed = 0 AND h.opt_out_at IS NOT NULL THEN 'unsubscribed' "
    "WHEN h.subscribed = 0 THEN 'no_consent' "
    "WHEN h.verified_at IS NULL AND :double THEN 'not_verified' END",
)
# What somebody asked for needs no consent; who is subscribed is still rather written to
_TRANSACTIONAL = (
    "(x.suppression IS NULL) * 2 + x.subscribed",
    "CASE WHEN h.id IS NULL THEN 'no_channel' WHEN h.suppression IS NOT NULL THEN 'suppressed_' || h.suppression END",
)
_ROWS = (
    "INSERT INTO message (account_id, contact_id, flow_id, run_id, step_id, template_id, channel, recipient, "
    "recipient_key, sender, reply_to, status, skip_reason, source_type, transactional, test, provider, attempts, "
    "doubts, due_at, created_at, updated_at) "
    "SELECT :account, contact, :flow, run, :step, :template, :channel, value, key, :sender, :reply_to, "
    "CASE WHEN why IS NOT NULL THEN 'skipped' WHEN :quiet IS NOT NULL AND NOT test THEN 'held' ELSE 'queued' END, "
    "why, 'flow', :transactional, test, CASE WHEN test THEN 'capture' ELSE :provider END, 0, 0, "
    "CASE WHEN why IS NULL THEN CASE WHEN test THEN :due ELSE coalesce(:quiet, :due) END END, :now, :now "
    "FROM (SELECT r.id AS run, r.contact_id AS contact, r.test AS test, h.value, h.key, coalesce({reason}, "
    ":unavailable) AS why FROM run r LEFT JOIN channel h ON h.id = (SELECT x.id FROM channel x "
    "WHERE x.contact_id = r.contact_id AND x.kind = :kind ORDER BY {best} DESC, x.id LIMIT 1) "
    "WHERE r.id IN (SELECT value FROM json_each(:runs)) ORDER BY r.id) WHERE true "
    "ON CONFLICT (run_id, step_id) WHERE run_id IS NOT NULL DO NOTHING "
    "RETURNING run_id, id, contact_id, skip_reason, test"
)
_STEP = (
    "SELECT s.template_id, s.pinned, a.time_zone, a.transactional_allowed, json_extract(f.data, '$.quiet_hours') "
    "FROM step s JOIN flow f ON f.id = s.flow_id JOIN account a ON a.id = f.account_id "
    "WHERE s.flow_id = ? AND s.version = ? AND s.action_id = ?"
)


def put(channel: str, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
    """Write the message of a step for each run, once; whoever may not get it has a skipped one and goes on."""
    writing()
    wanted = _wanted(channel, node, here)
    best, reason = _TRANSACTIONAL if wanted["transactional"] else _MARKETING
    wanted["runs"] = json.dumps([going.id for going in goings])
    found = rows(_ROWS.format(best=best, reason=reason), wanted)
    not_sent = [row for row in found if row[3] is not None]
    log.record_many([_skipped(channel, row, node, here) for row in not_sent])
    if len(not_sent) < len(found):
        after_commit(lambda: wake_ups.ring("outbox"))
    reasons = {row[0]: row[3] for row in not_sent}
    return [skipped(reasons[going.id]) if going.id in reasons else ON for going in goings]


def _wanted(channel: str, node: Node, here: Here) -> dict[str, Any]:
    """Return what all messages of a step have in common."""
    found = fetch_one(_STEP, (here.flow_id, here.version, node.id))
    if found is None or found[1] is None:
        raise ValueError("the step says nothing")
    template_id, pinned, zone, allowed, hours = found
    said = msgspec.json.decode(pinned)
    now, transactional = clock.now_ms(), bool(said["transactional"])
    settings = config.current()
    return {
        "account": here.account_id, "flow": here.flow_id, "step": node.id, "template": template_id,
        "channel": channel, "kind": "phone" if channel == "sms" else "email", "transactional": transactional,
        # From which number an SMS is, its recipient's country decides, when it leaves
        "sender": None if channel == "sms" else said["sender"]["email"],
        "reply_to": None if channel == "sms" else said["sender"]["reply_to"],
        "double": said["double_opt_in"],
        "provider": settings.sms.transport if channel == "sms" else settings.email.transport,
        "quiet": quiet.until(msgspec.json.decode(hours), zone, now) if hours and not transactional else None,
        # That service messages are switched off holds for flows long live too
        "unavailable": "transactional_disabled" if transactional and not allowed else None,
        "due": BY_FLOWS_AT_ONCE, "now": now,
    }  # fmt: skip


def _skipped(channel: str, row: tuple[Any, ...], node: Node, here: Here) -> Happened:
    _, message_id, contact_id, reason, test = row
    return Happened(
        here.account_id, f"{channel}_skipped", contact_id,
        {"message_id": message_id, "campaign_id": None, "flow_id": here.flow_id, "step_id": node.id, "reason": reason},
        resource_uid=f"message:{message_id}", resource_name=here.flow_name, test=bool(test),
    )  # fmt: skip
