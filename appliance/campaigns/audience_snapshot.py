"""Fixes who gets a campaign: one row of the ledger for each person, from the contacts as they are at its moment.

Up to `MAX_AT_ONCE` people have their rows in the transaction of the send. More are written right after it in chunks
that keep nobody waiting: the send has committed the decision, with the audience as SQL; a list of the people is drawn
from the contacts of one moment (`drawn`), then stretches of it become rows, in the order of contact ids and under one
block of message ids. Sending begins with the first chunk, and nothing is completed before the last.

How far it is stands in the campaign. A process that dies goes on behind the last chunk; if it died before the list was
complete, or the list is gone (a restored backup has none), the list is drawn again, from the contacts of that later
moment, for those behind the last row. Later changes of lists and templates do not matter; opt-outs do, and are looked
at again before each message. Whoever is deleted while their row is still to be written has one that is skipped.
"""

import time
from typing import Any

from msgspec import UNSET, Struct, convert, to_builtins

from appliance.campaigns import audience
from appliance.campaigns.audience import Audience
from appliance.campaigns.audience_file import Send
from appliance.campaigns.checks import check_trigger
from appliance.campaigns.requests import TriggerWrite
from appliance.campaigns.store import MAX_AT_ONCE
from appliance.core import clock, wake_ups
from appliance.core.errors import Faults
from appliance.sending.messages.ledger import AT_ONCE
from appliance.storage import sql as storage_sql
from appliance.storage.models import Campaign
from appliance.storage.open import connection, fetch_one, scalar
from appliance.storage.work import after_commit, writing

# In an account of more than so many contacts, a question that takes longer than this is not asked on the writer
_MANY, _LONG_SECONDS = 50_000, 0.25
_KNOWN_SECONDS = 60.0
_ROWS = (
    "INSERT INTO message (id, account_id, contact_id, campaign_id, flow_id, template_id, channel, recipient, "
    "recipient_key, sender, reply_to, status, skip_reason, source_type, transactional, test, provider, attempts, "
    "doubts, due_at, created_at, updated_at) "
    "SELECT :id + pos, :account, contact, :campaign, :flow, :template, :channel, value, key, :sender, :reply_to, "
    "CASE WHEN why IS NULL THEN :open ELSE 'skipped' END, why, 'campaign', 0, :test, :provider, 0, 0, "
    "CASE WHEN why IS NULL THEN :due END, :moment, :now FROM ({people}) ORDER BY pos"
)
_NOW = (
    "SELECT row_number() OVER (ORDER BY p.contact) AS pos, p.contact, h.value, h.key, p.why FROM ({members}) p "
    "LEFT JOIN channel h ON h.id = p.channel"
)
# Who was deleted since the list was drawn, or gave the address away. Who took over another's row by a merge has one
_DRAWN = (
    "SELECT p.pos, CASE WHEN x.id IS NULL THEN c.id END AS contact, h.value, h.key, "
    "CASE WHEN c.id IS NULL OR x.id IS NOT NULL THEN 'contact_deleted' "
    "ELSE coalesce(p.why, CASE WHEN h.id IS NULL THEN 'no_channel' END) END AS why FROM drawn.person p "
    "LEFT JOIN contact c ON c.id = p.contact LEFT JOIN message x ON x.campaign_id = :campaign AND x.contact_id = c.id "
    "LEFT JOIN channel h ON h.id = p.channel AND h.contact_id = c.id AND x.id IS NULL "
    "WHERE p.pos > :after AND p.pos <= :last"
)
_SKIPPED = (
    "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, quiet, "
    "chain_depth, created_at, updated_at) SELECT account_id, contact_id, channel || '_skipped', "
    "json_object('message_id', id, 'campaign_id', campaign_id, 'reason', skip_reason), 'message:' || id, ?, test, "
    "1, 0, 0, created_at, created_at FROM message WHERE id > ? AND id <= ? AND campaign_id = ? AND status = 'skipped'"
)


class Freezing(Struct):
    """How far a campaign is whose rows are written in chunks."""

    sql: str
    parameters: dict[str, Any]
    double_opt_in: bool
    provider: str
    total: int | None = None  # None: the list is still to be drawn
    done: int = 0
    listed: int = 0  # how many rows stood before this list was drawn
    first_id: int = 0  # the id before the first of this list
    last: int = 0  # the contact of the last row

    @property
    def people(self) -> Audience:
        """Who it goes to."""
        return Audience(self.sql, self.parameters, self.double_opt_in)


_weighed: dict[int, tuple[Any, bool, float]] = {}


def weigh(campaign: Campaign, trigger: Any = None) -> None:
    """Find out, before the writer has to, whether a campaign is too large for the transaction of its send."""
    if isinstance(trigger, TriggerWrite):
        faults = Faults()
        check_trigger(campaign.account_id, trigger, faults)
        if faults.fields:
            return
        for name in ("contact_list_id", "segment_id", "data"):
            value = getattr(trigger, name)
            if value is not UNSET:
                setattr(campaign.trigger, name, value or ({} if name == "data" else None))
    if not audience.is_set(campaign):
        return
    begun = time.monotonic()
    large = audience.most(campaign, MAX_AT_ONCE + 1) > MAX_AT_ONCE
    now = time.monotonic()
    slow = now - begun > _LONG_SECONDS and fetch_one(
        "SELECT 1 FROM contact WHERE account_id = ? LIMIT 1 OFFSET ?", (campaign.account_id, _MANY)
    ) is not None  # fmt: skip
    for number in [number for number, known in list(_weighed.items()) if known[2] < now - _KNOWN_SECONDS]:
        _weighed.pop(number, None)
    _weighed[campaign.id] = (_who(campaign), large or slow, now)


def _who(campaign: Campaign) -> Any:
    trigger = campaign.trigger
    return trigger.contact_list_id, trigger.segment_id, trigger.data


def _is_large(campaign: Campaign) -> bool:
    """Return whether a campaign is frozen in chunks: as it was weighed, or counted now as far as needed."""
    who, large, when = _weighed.pop(campaign.id, (None, False, 0.0))
    if who == _who(campaign) and when > time.monotonic() - _KNOWN_SECONDS:
        return bool(large)
    return audience.most(campaign, MAX_AT_ONCE + 1) > MAX_AT_ONCE


def begin(campaign: Campaign, provider: str) -> None:
    """Write a row for each person of a campaign that goes live now, or commit to it; the caller saves the campaign."""
    writing()
    people = audience.of(campaign)
    if _is_large(campaign):
        state = Freezing(people.sql, people.parameters, people.double_opt_in, provider)
        campaign.freezing, campaign.audience_count = to_builtins(state), 0
        after_commit(lambda: wake_ups.ring("audiences"))
        return
    before = _reserved()
    values = _values(campaign, provider) | people.parameters | {"id": before}
    sql = _NOW.format(members=audience.members(people))
    connection().execute(_ROWS.format(people=sql), values)
    campaign.audience_count = int(connection().changes())
    connection().execute(_SKIPPED, (campaign.name, before, before + campaign.audience_count, campaign.id))


def _reserved(count: int = 0) -> int:
    """Reserve the next ids of messages for one campaign and answer the last before them."""
    return storage_sql.reserve_numbers("message", count)


def _values(campaign: Campaign, provider: str) -> dict[str, Any]:
    """Return what all rows of a campaign have in common."""
    now = clock.now_ms()
    held = campaign.hold_until is not None and campaign.hold_until > now
    return {
        "kind": audience.kind(campaign), "account": campaign.account_id, "campaign": campaign.id,
        "flow": campaign.flow_id, "template": campaign.template_id, "channel": campaign.channel,
        "sender": campaign.sender["email"] or campaign.sender.get("number"), "reply_to": campaign.sender["reply_to"],
        "open": "held" if held else "queued", "test": campaign.test, "provider": provider,
        "due": campaign.hold_until or AT_ONCE, "moment": campaign.started_at, "now": now,
    }  # fmt: skip


def state(campaign: Campaign) -> Freezing | None:
    """Return how far a campaign is, or None for one that is frozen, or not to be."""
    return None if campaign.freezing is None else convert(campaign.freezing, Freezing)


def listed(send: Send, count: int) -> None:
    """Take over a list that was drawn: reserve the ids of its rows; nothing, if that send was taken back meanwhile."""
    writing()
    campaign = Campaign.get_by_id(send.campaign_id)
    found = state(campaign)
    if found is None or campaign.started_at != send.moment:
        return
    found.total, found.listed, found.first_id = found.done + count, found.done, _reserved(count)
    _save(campaign, found)


def chunk(send: Send, size: int) -> int:
    """Write the rows of the next so many people of the attached list; returns how many are left."""
    writing()
    campaign = Campaign.get_by_id(send.campaign_id)
    found = state(campaign)
    if found is None or found.total is None or campaign.started_at != send.moment:
        return 0
    after = found.done - found.listed
    last = min(after + size, found.total - found.listed)
    values = _values(campaign, found.provider)
    values |= {"id": found.first_id, "after": after, "last": last}
    connection().execute(_ROWS.format(people=_DRAWN), values)
    connection().execute(_SKIPPED, (campaign.name, found.first_id + after, found.first_id + last, campaign.id))
    found.last = int(scalar("SELECT contact FROM drawn.person WHERE pos = ?", (last,)) or found.last)
    found.done = found.listed + last
    campaign.audience_count = found.done
    _save(campaign, found)
    return found.total - found.done


def _save(campaign: Campaign, found: Freezing) -> None:
    campaign.freezing = None if found.done == found.total else to_builtins(found)
    if campaign.freezing is None:
        after_commit(lambda: wake_ups.ring("campaigns"))
    campaign.save(only=["freezing", "audience_count"])
