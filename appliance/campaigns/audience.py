"""The audience of a campaign: its members as SQL, its size, and pages of its members.

A member is any contact that lists, segment and exclusions select. A recipient is a member without a skip reason. The
same SQL counts the audience and selects the contacts that get a message.
"""

import json
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from appliance.audience.contacts import search
from appliance.audience.contacts import store as contacts
from appliance.audience.segments import members as segments_people
from appliance.audience.segments.store import AUDIENCE_DELETED
from appliance.audience.time_zones import ZONE_SQL, get_account_zone
from appliance.campaigns import best_hours, store
from appliance.campaigns.recipients import RecipientQuery
from appliance.core.cache import CostAwareCache
from appliance.core.validation import PageQuery, Short
from appliance.experiments import assignment
from appliance.storage.database import Page, fetch_one, rows, scalar
from appliance.storage.models import Campaign, ContactList, Segment

# The `limit` of `sample_recipients` for all recipients; SQLite reads `LIMIT -1` as no limit.
ALL = -1
# Joins one address per contact: the first sendable one, else the first one, whose state then gives the skip reason.
_CHANNEL = (
    "LEFT JOIN channel h ON h.id = (SELECT x.id FROM channel x WHERE x.contact_id = c.id AND x.kind = :kind "
    "ORDER BY (x.subscribed = 1 AND x.suppression IS NULL) DESC, x.id LIMIT 1)"
)
_SKIP_REASON = (
    "CASE WHEN h.id IS NULL THEN 'no_channel' "
    "WHEN h.suppression IS NOT NULL THEN 'suppressed_' || h.suppression "
    "WHEN h.subscribed = 0 AND h.opt_out_at IS NOT NULL THEN 'unsubscribed' "
    "WHEN h.subscribed = 0 THEN 'no_consent' "
    "WHEN h.verified_at IS NULL AND {double} THEN 'not_verified' {control}END"
)


class Audience(NamedTuple):
    """An audience as SQL: a query of contact ids, its parameters, and whether each address must be verified.

    `control` is the SQL of the group of contact `c` in the account's control group, empty if there is none. `zone` is
    the SQL of the contact's time zone, empty unless the campaign is sent at a local time; `zone_join` is a join for it.
    """

    sql: str
    parameters: dict[str, Any]
    double_opt_in: bool
    control: str = ""
    zone: str = ""
    zone_join: str = ""


class AudienceCounts(NamedTuple):
    """The size of an audience: `members` is `sendable` plus the sum of `reasons`, the counts by skip reason."""

    members: int
    sendable: int
    reasons: dict[str, int]


def is_everyone(data: dict[str, Any]) -> bool:
    """Return whether the data of a trigger (`Trigger.data`) selects all contacts."""
    return data.get("audience_type") == "all_contacts"


def confirm_everyone(campaign: Campaign) -> None:
    """Set the audience to all contacts, as a user has confirmed; does nothing if an audience was chosen before.

    A campaign whose list or segment was deleted had an audience, so it is never widened to all contacts.
    """
    data = campaign.trigger.data
    if is_set(campaign) or data.get(AUDIENCE_DELETED):
        return
    campaign.trigger.data = {**data, "audience_type": "all_contacts", "confirm_send_to_all": True}
    campaign.trigger.save()


def is_set(campaign: Campaign) -> bool:
    """Return whether the campaign names a list, a segment, or all contacts as its audience."""
    trigger = campaign.trigger
    return bool(
        trigger.contact_list_id or trigger.segment_id or trigger.data.get("contact_list_ids")
        or is_everyone(trigger.data)
    )  # fmt: skip


def is_unbounded(campaign: Campaign) -> bool:
    """Return whether the audience, before exclusions, contains every contact of the account.

    The audience does so if the campaign selects all contacts, a segment without filters, or a list that mirrors such a
    segment.
    """
    trigger = campaign.trigger
    lists = _load_lists(campaign)
    if trigger.segment_id and _load_segment_filters(trigger.segment_id):
        return False
    if not lists:
        return bool(trigger.segment_id) or is_everyone(trigger.data)
    return any(
        contact_list is not None and contact_list.segment_id and not _load_segment_filters(contact_list.segment_id)
        for contact_list in lists.values()
    )


def _load_segment_filters(segment_id: int) -> list[Any]:
    return list(Segment.get_by_id(segment_id).filters)


def has_exclusions(campaign: Campaign) -> bool:
    """Return whether the campaign excludes any list or segment."""
    data = campaign.trigger.data
    return bool(data.get("exclude_contact_list_ids") or data.get("exclude_segment_ids"))


def build_audience(campaign: Campaign, ignore_exclusions: bool = False) -> Audience:
    """Return the audience of a campaign: the union of its lists, intersected with its segment, minus its exclusions.

    With `ignore_exclusions` nothing is subtracted. With neither lists nor a segment, the audience is empty unless the
    campaign selects all contacts. Addresses must be verified if any of the lists requires double opt-in.
    """
    trigger, data = campaign.trigger, campaign.trigger.data
    account_id = campaign.account_id
    parameters: dict[str, Any] = {"account": account_id}
    clauses = [segments_people.contacts_source(":account")]
    lists = _load_lists(campaign)
    if lists:
        clauses.append(_in_any_list(account_id, lists, parameters, "l"))
    if trigger.segment_id:
        clauses.append(_in_segment(account_id, trigger.segment_id, parameters, "s"))
    if not lists and not trigger.segment_id and not is_everyone(data):
        clauses.append("0")
    excluded = {} if ignore_exclusions else _find_lists(account_id, data.get("exclude_contact_list_ids") or [])
    if excluded:
        clauses.append(f"({_in_any_list(account_id, excluded, parameters, 'x')}) IS NOT TRUE")
    for index, excluded_id in enumerate([] if ignore_exclusions else data.get("exclude_segment_ids") or []):
        clauses.append(f"({_in_segment(account_id, int(excluded_id), parameters, f'y{index}_')}) IS NOT TRUE")
    double_opt_in = any(contact_list is not None and contact_list.double_opt_in for contact_list in lists.values())
    sql = f"SELECT c.id FROM {' AND '.join(clauses)}"
    zone = ""
    if campaign.local_time is not None:
        zone, parameters["account_zone"] = ZONE_SQL, get_account_zone(account_id).zone.key
    return Audience(sql, parameters, double_opt_in, _build_control_group(account_id), zone)


def _build_control_group(account_id: int) -> str:
    """Return the SQL of the group of contact `c` in the account's control group, or an empty text if it has none."""
    row = fetch_one("SELECT control_share, control_seed FROM account WHERE id = ?", (account_id,))
    if row is None or not row[0] or row[1] is None:
        return ""
    return assignment.build_group_sql(assignment.start_assignment(row[1], row[0]), "c.id")


def build_parts(campaign: Campaign) -> tuple[list[tuple[str, int, str]], dict[str, Any]]:
    """Return the lists and segments of the audience, and the parameters of their SQL.

    Each list or segment is (kind, id, SQL condition on contact `c`), with a kind of `AudiencePart`.
    """
    data, parameters = campaign.trigger.data, {"account": campaign.account_id}
    parts: list[tuple[str, int, str]] = []
    for kind, prefix, lists in (
        ("list", "l", _load_lists(campaign)),
        ("excluded_list", "x", _find_lists(campaign.account_id, data.get("exclude_contact_list_ids") or [])),
    ):
        for part_id, row in lists.items():
            parts.append((kind, part_id, _in_any_list(campaign.account_id, {part_id: row}, parameters, prefix)))
    references = [("segment", "s", campaign.trigger.segment_id)] if campaign.trigger.segment_id else []
    references += [
        ("excluded_segment", f"y{index}_", excluded_id)
        for index, excluded_id in enumerate(data.get("exclude_segment_ids") or [])
    ]
    for kind, prefix, part_id in references:
        parts.append((kind, int(part_id), _in_segment(campaign.account_id, int(part_id), parameters, prefix)))
    return parts, parameters


def find_missing_references(campaign: Campaign) -> list[str]:
    """Return the keys of the trigger's data that name a deleted list or segment.

    The deletion of an excluded list or segment must not be ignored: the campaign would reach the contacts in it.
    """
    data, account_id = campaign.trigger.data, campaign.account_id
    missing_keys = []
    for key, table in (
        ("contact_list_ids", "contact_list"), ("exclude_contact_list_ids", "contact_list"),
        ("exclude_segment_ids", "segment"),
    ):  # fmt: skip
        ids = list(dict.fromkeys(data.get(key) or []))
        existing_ids = (
            {row[0] for row in rows(f"SELECT id FROM {table} WHERE account_id = ?", (account_id,))} if ids else ()
        )
        if any(item_id not in existing_ids for item_id in ids):
            missing_keys.append(key)
    return missing_keys


def _load_lists(campaign: Campaign) -> dict[int, ContactList | None]:
    list_ids = list(campaign.trigger.data.get("contact_list_ids") or [])
    if campaign.trigger.contact_list_id:
        list_ids.append(campaign.trigger.contact_list_id)
    return _find_lists(campaign.account_id, list_ids)


def _find_lists(account_id: int, list_ids: list[int]) -> dict[int, ContactList | None]:
    return {
        list_id: ContactList.get_or_none(ContactList.account == account_id, ContactList.id == list_id)
        for list_id in list_ids
    }


def _in_any_list(account_id: int, lists: dict[int, ContactList | None], parameters: dict[str, Any], prefix: str) -> str:
    """Return the SQL condition for members of at least one of the lists, and add its values to `parameters`.

    A mirror has the members of its segment at the time of the query, without contacts who opted out of the list.
    """
    # The ids were validated as integers when they were stored; int() here keeps anything else out of the SQL.
    static_ids = ",".join(
        str(int(list_id))
        for list_id, contact_list in lists.items()
        if contact_list is None or not contact_list.segment_id
    )
    parts = (
        [f"c.id IN (SELECT contact_id FROM membership WHERE contact_list_id IN ({static_ids}))"] if static_ids else []
    )
    for list_id, contact_list in lists.items():
        if contact_list is not None and contact_list.segment_id:
            inside = _in_segment(account_id, contact_list.segment_id, parameters, f"{prefix}{list_id}_")
            parts.append(
                f"({inside} AND NOT EXISTS (SELECT 1 FROM list_opt_out r WHERE r.contact_list_id = {int(list_id)} "
                "AND r.contact_id = c.id))"
            )
    return f"({' OR '.join(parts)})"


def _in_segment(account_id: int, segment_id: int, parameters: dict[str, Any], prefix: str) -> str:
    condition = segments_people.compile_segment(account_id, segment_id, prefix)
    parameters.update(condition.parameters)
    return f"({condition.sql})"


def count_audience(campaign: Campaign) -> AudienceCounts:
    """Return the current number of members, recipients, and skipped members by reason."""
    audience = build_audience(campaign)
    counts: dict[str | None, int] = dict(
        rows(
            f"SELECT {_select_skip_reason(audience)}, count(*) FROM contact c {_CHANNEL} "
            f"WHERE c.id IN ({audience.sql}) GROUP BY 1",
            {**audience.parameters, "kind": get_channel_kind(campaign)},
        )
    )
    sendable = counts.pop(None, 0)
    return AudienceCounts(sendable + sum(counts.values()), sendable, {str(key): count for key, count in counts.items()})


def count_by(
    campaign: Campaign, expression: str, is_exact: bool = True, limit: int = ALL, join: str = "", **parameters: Any
) -> dict[Any, int]:
    """Return the current numbers of recipients by an SQL expression of contact `c`, the largest first.

    `join` is a join for the expression, and `parameters` are those of both. Only the `limit` most frequent values are
    counted. Without `is_exact`, the counts are cached if counting is slow.
    """

    def count() -> dict[Any, int]:
        audience = build_audience(campaign)
        return dict(
            rows(
                f"SELECT {expression}, count(*) FROM contact c {_CHANNEL} {join} WHERE c.id IN ({audience.sql}) "
                f"AND ({_select_skip_reason(audience)}) IS NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT :limit",
                audience.parameters | {"kind": get_channel_kind(campaign), "limit": limit} | parameters,
            )
        )

    return count() if is_exact else _groups_cache.get((_cache_key(campaign), expression, limit), count)


def weigh_hours(campaign: Campaign, first: int, until: int, is_exact: bool = True) -> best_hours.HourWeights:
    """Return the weights of the hours from `first` to before `until`, by the clicks of a draft's audience.

    Without `is_exact`, a cached result may be returned.
    """

    def weigh() -> best_hours.HourWeights:
        members = build_audience(campaign)
        return best_hours.estimate_of(members.sql, members.parameters, first, until)

    return weigh() if is_exact else _weights_cache.get((_cache_key(campaign), first, until), weigh)


def sample_recipients(campaign: Campaign, limit: int = 5) -> list[int]:
    """Return the contact ids of the first `limit` recipients (`ALL`: all of them), in ascending order."""
    audience = build_audience(campaign)
    contact_ids = rows(
        f"SELECT c.id FROM contact c {_CHANNEL} WHERE c.id IN ({audience.sql}) "
        f"AND ({_select_skip_reason(audience)}) IS NULL "
        "ORDER BY c.id LIMIT :limit",
        {**audience.parameters, "kind": get_channel_kind(campaign), "limit": limit},
    )
    return [row[0] for row in contact_ids]


def get_channel_kind(campaign: Campaign) -> str:
    """Return the kind of channel that the campaign is sent to: `phone` for SMS, else `email`."""
    return "phone" if campaign.channel == "sms" else "email"


def _select_skip_reason(audience: Audience) -> str:
    # Contacts who could not get the campaign anyway are not in the control group, so that it can be compared with the
    # recipients.
    control = f"WHEN {audience.control} = {assignment.HELD_OUT} THEN 'control_group' " if audience.control else ""
    return _SKIP_REASON.format(double=int(audience.double_opt_in), control=control)


def select_members(audience: Audience) -> str:
    """Return SQL that selects all members, with the columns `contact` and `channel` (ids), `why` and `zone`.

    `why` is the skip reason, null for recipients, and `zone` the time zone, null without a local time. The SQL needs
    the parameters of the audience and `kind`, a kind of channel. The caller may append conditions with AND.
    """
    return (
        f"SELECT c.id AS contact, h.id AS channel, {_select_skip_reason(audience)} AS why, "
        f"{audience.zone or 'NULL'} AS zone FROM contact c {_CHANNEL} {audience.zone_join} "
        f"WHERE c.id IN ({audience.sql})"
    )


def estimate_size(campaign: Campaign, limit: int) -> int:
    """Return the number of members of a campaign's audience, or `limit` if there are more."""
    audience = build_audience(campaign)
    return int(scalar(f"SELECT count(*) FROM ({audience.sql} LIMIT :limit)", {**audience.parameters, "limit": limit}))


# The functions below cache values of an audience for pages that need them after each edit of a draft, because a large
# audience is slow to count.
#
# Values that are fast to compute are not cached. Code that decides who gets a message calls the uncached functions.

# A value that takes fewer processor seconds than this is computed each time.
_MIN_CACHED_SECONDS = 0.03
_counts_cache: CostAwareCache[AudienceCounts] = CostAwareCache(min_cost_seconds=_MIN_CACHED_SECONDS)
_groups_cache: CostAwareCache[dict[str | None, int]] = CostAwareCache(min_cost_seconds=_MIN_CACHED_SECONDS)
_weights_cache: CostAwareCache[best_hours.HourWeights] = CostAwareCache(min_cost_seconds=_MIN_CACHED_SECONDS)
_first_recipient_cache: CostAwareCache[list[int]] = CostAwareCache(min_cost_seconds=_MIN_CACHED_SECONDS)
_last_email_cache: CostAwareCache[tuple[int, int | None]] = CostAwareCache(min_cost_seconds=_MIN_CACHED_SECONDS)


def get_cached_counts(campaign: Campaign) -> AudienceCounts:
    """Return the result of `count_audience`, from the cache if counting is slow."""
    return _counts_cache.get(_cache_key(campaign), lambda: count_audience(campaign))


def find_first_recipient(campaign: Campaign) -> int | None:
    """Return the id of the first recipient, which may have been deleted since, or None if there are none."""
    contact_ids = _first_recipient_cache.get(_cache_key(campaign), lambda: sample_recipients(campaign, 1))
    return contact_ids[0] if contact_ids else None


def find_last_sent_and_added(campaign: Campaign) -> tuple[int, int | None]:
    """Return (time of the last email to a member, time when the newest member was added), in Unix milliseconds.

    The first is 0 if no member ever got an email, the second None if there are no members. Both may be cached.
    """

    def find() -> tuple[int, int | None]:
        audience = build_audience(campaign)
        [(last_sent_at, last_added_at)] = rows(
            f"SELECT max(coalesce(email_last_sent_at, 0)), max(created_at) FROM contact WHERE id IN ({audience.sql})",
            audience.parameters,
        )
        return last_sent_at or 0, last_added_at

    return _last_email_cache.get(_cache_key(campaign), find)


def _cache_key(campaign: Campaign) -> Hashable:
    """Return a cache key that differs for each audience, so that an edit takes effect at once."""
    audience = build_audience(campaign)
    parameters, kind = repr(sorted(audience.parameters.items())), get_channel_kind(campaign)
    return audience.sql, parameters, audience.double_opt_in, audience.control, kind


# Segment filters for a recipient query, so that the recipients behind a figure of the report can become a segment.

Filters = list[dict[str, Any]]
# The filters of a `RecipientQuery` that a segment cannot express.
_UNSUPPORTED_FILTERS = (
    "status",
    "domain",
    "country",
    "problem",
    "pending",
    "unsubscribed",
    "replied",
    "contact_id",
    "variant",
)


def build_recipient_filters(campaign_id: int, query: RecipientQuery) -> Filters | None:
    """Return segment filters that select the same contacts as a recipient query, or None if no filters can."""
    if any(getattr(query, name) is not UNSET for name in _UNSUPPORTED_FILTERS) or query.accepted is False:
        return None
    engagement = {"opened": query.opened, "clicked": query.clicked}
    if "machines" in engagement.values() or all(
        value is UNSET for value in (query.accepted, query.link, *engagement.values())
    ):
        return None
    filters: Filters = []
    if query.accepted is True or "never" in engagement.values():
        filters.append({"name": "campaign_sent", "predicate": "eq", "value": campaign_id})
    for name, engaged_by in engagement.items():
        if isinstance(engaged_by, str):
            predicate = "eq" if engaged_by == "people" else "not_eq"
            filters.append({"name": f"campaign_{name}", "predicate": predicate, "value": campaign_id})
    if isinstance(query.link, int):
        where = [{"name": f"event.{name}", "predicate": "eq", "value": value}
                 for name, value in (("campaign_id", campaign_id), ("link", query.link))]  # fmt: skip
        filters.append({"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "where": where}})
    return filters


# Pages of a draft's recipients, of its skipped members, and of excluded contacts, for review before sending.

LEFT_OUT = "left_out"
_MAX_ID = 2**53


class GroupQuery(PageQuery):
    """Filters for the audience of a draft.

    `why` is a skip reason, which selects the members with this reason, or `left_out`, which selects the contacts that
    the exclusions remove. Without `why`, the recipients are selected. `nameless` keeps only contacts without a first
    name.
    """

    why: Short | UnsetType = UNSET
    search: Short | UnsetType = UNSET
    nameless: bool | UnsetType = UNSET


class Neighbours(NamedTuple):
    """A contact's position among the recipients, ordered by id.

    `total` is the number of recipients, and `position` starts at 1. `before` and `after` are the ids of the adjacent
    recipients, or None at the ends.
    """

    total: int
    position: int
    before: int | None
    after: int | None


def list_group(account_id: int, campaign_id: int, query: GroupQuery, languages: Sequence[str] | None = None) -> Page:
    """Return a page of the contacts that the query selects, ordered by id; raises NotFound for an unknown campaign.

    With `languages` (tags), only contacts with one of these languages are returned.
    """
    campaign = store.get(account_id, campaign_id)
    reason = query.why if isinstance(query.why, str) else None
    sql, parameters = _filter_excluded(campaign) if reason == LEFT_OUT else _filter_by_reason(campaign, reason)
    if isinstance(query.search, str) and query.search.strip():
        search_query = search.build_query(query.search)
        sql += f" AND contact {search.MATCH_CONDITION}" if search_query else ""
        parameters["words"] = search_query
    if query.nameless is True:
        sql += " AND contact IN (SELECT id FROM contact WHERE account_id = :account AND coalesce(first_name, '') = '')"
    if languages is not None:
        sql += (
            " AND contact IN (SELECT id FROM contact WHERE account_id = :account "
            "AND language IN (SELECT value FROM json_each(:languages)))"
        )
        parameters["languages"] = json.dumps(languages)
    limit = query.size()
    offset = min((query.page - 1) * limit, _MAX_ID)
    total = int(scalar(f"SELECT count(*) FROM ({sql})", parameters))
    matches = rows(f"{sql} ORDER BY contact LIMIT :limit OFFSET :skip", {**parameters, "limit": limit, "skip": offset})
    return Page(contacts.fetch_by_ids([row[0] for row in matches]), total, query.page, limit)


def find_neighbours(campaign: Campaign, contact_id: int) -> Neighbours:
    """Return the position of a contact among the recipients of a campaign, and the recipients next to it.

    If the contact is not a recipient, `position` is the number of recipients with a lower id.
    """
    sql, parameters = _filter_by_reason(campaign, None)
    values = {**parameters, "at": contact_id}
    total, position, before, after = rows(
        "SELECT count(*), count(*) FILTER (WHERE contact <= :at), max(CASE WHEN contact < :at THEN contact END), "
        f"min(CASE WHEN contact > :at THEN contact END) FROM ({sql})",
        values,
    )[0]
    return Neighbours(total, position, before, after)


def count_excluded(campaign: Campaign) -> int:
    """Count the contacts that the exclusions remove from the audience."""
    sql, parameters = _filter_excluded(campaign)
    return int(scalar(f"SELECT count(*) FROM ({sql})", parameters)) if has_exclusions(campaign) else 0


def _filter_by_reason(campaign: Campaign, reason: str | None) -> tuple[str, dict[str, Any]]:
    audience = build_audience(campaign)
    parameters = {**audience.parameters, "kind": get_channel_kind(campaign)}
    if reason:
        parameters["why"] = reason
    condition = "= :why" if reason else "IS NULL"
    return f"SELECT contact FROM ({select_members(audience)}) WHERE why {condition}", parameters


def _filter_excluded(campaign: Campaign) -> tuple[str, dict[str, Any]]:
    all_members, remaining = build_audience(campaign, ignore_exclusions=True), build_audience(campaign)
    return (
        f"SELECT id AS contact FROM ({all_members.sql}) WHERE id NOT IN ({remaining.sql})",
        {**all_members.parameters, **remaining.parameters},
    )
