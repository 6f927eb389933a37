"""Who a campaign is for: one statement that counts them, and the same one that writes their rows."""

from typing import Any, NamedTuple

from appliance import clock
from appliance.db.open import connection, rows, scalar
from appliance.db.work import writing
from appliance.tables import Campaign

# Of a person's addresses the first that may be written to, else the first: its state says why not
_CHANNEL = (
    "LEFT JOIN channel h ON h.id = (SELECT x.id FROM channel x WHERE x.contact_id = c.id AND x.kind = :kind "
    "ORDER BY (x.subscribed = 1 AND x.suppression IS NULL) DESC, x.id LIMIT 1)"
)
_REASON = (
    "CASE WHEN h.id IS NULL THEN 'no_channel' "
    "WHEN h.suppression IS NOT NULL THEN 'suppressed_' || h.suppression "
    "WHEN h.subscribed = 0 AND h.opt_out_at IS NOT NULL THEN 'unsubscribed' "
    "WHEN h.subscribed = 0 THEN 'no_consent' "
    "WHEN h.verified_at IS NULL AND {double} THEN 'not_verified' END"
)


class Audience(NamedTuple):
    """The people of a campaign as SQL: a query of contact ids, its parameters, and whether each must be verified."""

    sql: str
    parameters: dict[str, Any]
    double_opt_in: bool


class Arithmetic(NamedTuple):
    """How many a campaign would reach, and why not the others; the first is the sum of the rest."""

    members: int
    sendable: int
    reasons: dict[str, int]


def is_everyone(data: dict[str, Any]) -> bool:
    """Say whether a trigger's data asks for all contacts."""
    return data.get("audience_type") == "all_contacts"


def is_set(campaign: Campaign) -> bool:
    """Say whether a campaign names any audience."""
    trigger = campaign.trigger
    return bool(
        trigger.contact_list_id or trigger.segment_id or trigger.data.get("contact_list_ids")
        or is_everyone(trigger.data)
    )  # fmt: skip


def of(campaign: Campaign) -> Audience:
    """Answer the people of a campaign: lists united, cut with the segment, less the excluded ones."""
    trigger, data = campaign.trigger, campaign.trigger.data
    lists = list(data.get("contact_list_ids") or [])
    if trigger.contact_list_id:
        lists.append(trigger.contact_list_id)
    parameters: dict[str, Any] = {"account": campaign.account_id}
    clauses = ["m.account_id = :account"]
    if lists:
        clauses.append(f"m.id IN (SELECT contact_id FROM membership WHERE contact_list_id IN ({_ids(lists)}))")
    elif not is_everyone(data):
        clauses.append("0")
    excluded = data.get("exclude_contact_list_ids") or []
    if excluded:
        clauses.append(f"m.id NOT IN (SELECT contact_id FROM membership WHERE contact_list_id IN ({_ids(excluded)}))")
    double = bool(lists) and bool(
        scalar(f"SELECT count(*) FROM contact_list WHERE double_opt_in = 1 AND id IN ({_ids(lists)})")
    )
    return Audience(f"SELECT m.id FROM contact m WHERE {' AND '.join(clauses)}", parameters, double)


def _ids(numbers: list[int]) -> str:
    # Checked to be whole numbers when they were written; said again so that nothing else can stand here
    return ",".join(str(int(number)) for number in numbers)


def arithmetic(campaign: Campaign) -> Arithmetic:
    """Count the audience as it is now."""
    people = of(campaign)
    counted: dict[str | None, int] = dict(
        rows(
            f"SELECT {_reason(people)}, count(*) FROM contact c {_CHANNEL} WHERE c.id IN ({people.sql}) GROUP BY 1",
            {**people.parameters, "kind": kind(campaign)},
        )
    )
    sendable = counted.pop(None, 0)
    return Arithmetic(sendable + sum(counted.values()), sendable, {str(key): n for key, n in counted.items()})


def sample(campaign: Campaign, limit: int = 5) -> list[int]:
    """Answer some of the people who would get it, by contact id."""
    people = of(campaign)
    found = rows(
        f"SELECT c.id FROM contact c {_CHANNEL} WHERE c.id IN ({people.sql}) AND ({_reason(people)}) IS NULL "
        "ORDER BY c.id LIMIT :limit",
        {**people.parameters, "kind": kind(campaign), "limit": limit},
    )
    return [row[0] for row in found]


def kind(campaign: Campaign) -> str:
    """Answer the kind of address a campaign goes to."""
    return "phone" if campaign.channel == "sms" else "email"


def _reason(people: Audience) -> str:
    return _REASON.format(double=int(people.double_opt_in))


def freeze(campaign: Campaign, provider: str, hold_until: int | None) -> int:
    """Write one row for each person, in the running transaction, and answer how many.

    Later changes of lists or templates do not matter; opt-outs do, and are looked at again before each message.
    """
    writing()
    people = of(campaign)
    now = clock.now_ms()
    reason = _reason(people)
    here = connection()
    here.execute(
        "INSERT INTO message (account_id, contact_id, campaign_id, flow_id, template_id, channel, recipient, "
        "recipient_key, sender, reply_to, status, skip_reason, source_type, transactional, test, provider, attempts, "
        "doubts, due_at, created_at, updated_at) "
        "SELECT account_id, id, :campaign, :flow, :template, :channel, value, key, :sender, :reply_to, "
        "CASE WHEN reason IS NULL THEN :open ELSE 'skipped' END, reason, 'campaign', 0, :test, :provider, 0, 0, "
        "CASE WHEN reason IS NULL THEN :due END, :now, :now "
        f"FROM (SELECT c.account_id, c.id, h.value, h.key, {reason} AS reason FROM contact c {_CHANNEL} "
        f"WHERE c.id IN ({people.sql}) ORDER BY c.id)",
        {
            **people.parameters, "kind": kind(campaign), "campaign": campaign.id, "flow": campaign.flow_id,
            "template": campaign.template_id, "channel": campaign.channel, "sender": campaign.sender["email"],
            "reply_to": campaign.sender["reply_to"], "open": "held" if hold_until else "queued",
            "test": campaign.test, "provider": provider, "due": hold_until or now, "now": now,
        },
    )  # fmt: skip
    count = int(here.changes())
    here.execute(
        "INSERT INTO event (account_id, contact_id, event, data, resource_uid, resource_name, test, generated, "
        "chain_depth, created_at, updated_at) SELECT account_id, contact_id, channel || '_skipped', "
        "json_object('message_id', id, 'campaign_id', campaign_id, 'reason', skip_reason), 'message:' || id, ?, test, "
        "1, 0, created_at, created_at FROM message WHERE campaign_id = ? AND status = 'skipped'",
        (campaign.name, campaign.id),
    )
    return count
