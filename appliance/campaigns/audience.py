"""Who a campaign is for: one statement that counts them, and the same one that their rows are written from."""

from collections.abc import Hashable
from typing import Any, NamedTuple

from msgspec import UNSET

from appliance.audience.segments import people as segments_people
from appliance.campaigns.recipients import RecipientQuery
from appliance.core.rested import Rested
from appliance.storage.models import Campaign, ContactList, Segment
from appliance.storage.open import rows, scalar

# As a limit
ALL = -1
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
    """Return whether a trigger's data asks for all contacts."""
    return data.get("audience_type") == "all_contacts"


def confirm_everyone(campaign: Campaign) -> None:
    """Take a send to everyone that was confirmed with the send itself, where no audience was ever chosen.

    A campaign whose list or segment was deleted had one: it does not become one for everybody (`needed.let_go`).
    """
    data = campaign.trigger.data
    if is_set(campaign) or data.get("audience_deleted"):
        return
    campaign.trigger.data = {**data, "audience_type": "all_contacts", "confirm_send_to_all": True}
    campaign.trigger.save()


def is_set(campaign: Campaign) -> bool:
    """Return whether a campaign names any audience."""
    trigger = campaign.trigger
    return bool(
        trigger.contact_list_id or trigger.segment_id or trigger.data.get("contact_list_ids")
        or is_everyone(trigger.data)
    )  # fmt: skip


def is_unbounded(campaign: Campaign) -> bool:
    """Return whether nothing narrows the audience: all contacts asked for, or only segments without filters."""
    trigger = campaign.trigger
    chosen = _lists(campaign)
    if trigger.segment_id and _filters(trigger.segment_id):
        return False
    if not chosen:
        return bool(trigger.segment_id) or is_everyone(trigger.data)
    return any(found is not None and found.segment_id and not _filters(found.segment_id) for found in chosen.values())


def _filters(segment_id: int) -> list[Any]:
    return list(Segment.get_by_id(segment_id).filters)


def excludes(campaign: Campaign) -> bool:
    """Return whether anybody is left out of a campaign on purpose."""
    data = campaign.trigger.data
    return bool(data.get("exclude_contact_list_ids") or data.get("exclude_segment_ids"))


def of(campaign: Campaign, whole: bool = False) -> Audience:
    """Return the people of a campaign: lists united, cut with the segment, less the excluded ones unless `whole`."""
    trigger, data = campaign.trigger, campaign.trigger.data
    account_id = campaign.account_id
    parameters: dict[str, Any] = {"account": account_id}
    clauses = [segments_people.source(":account")]
    lists = _lists(campaign)
    if lists:
        clauses.append(_any_list(account_id, lists, parameters, "l"))
    if trigger.segment_id:
        clauses.append(_segment(account_id, trigger.segment_id, parameters, "s"))
    if not lists and not trigger.segment_id and not is_everyone(data):
        clauses.append("0")
    excluded = {} if whole else _found(account_id, data.get("exclude_contact_list_ids") or [])
    if excluded:
        clauses.append(f"({_any_list(account_id, excluded, parameters, 'x')}) IS NOT TRUE")
    for index, number in enumerate([] if whole else data.get("exclude_segment_ids") or []):
        clauses.append(f"({_segment(account_id, int(number), parameters, f'y{index}_')}) IS NOT TRUE")
    double = any(found is not None and found.double_opt_in for found in lists.values())
    return Audience(f"SELECT c.id FROM {' AND '.join(clauses)}", parameters, double)


def parts(campaign: Campaign) -> tuple[list[tuple[str, int, str]], dict[str, Any]]:
    """Return what an audience is put together from: kind, id and condition of each part, and their parameters."""
    data, parameters = campaign.trigger.data, {"account": campaign.account_id}
    found: list[tuple[str, int, str]] = []
    for kind, prefix, lists in (
        ("list", "l", _lists(campaign)),
        ("excluded_list", "x", _found(campaign.account_id, data.get("exclude_contact_list_ids") or [])),
    ):
        for number, row in lists.items():
            found.append((kind, number, _any_list(campaign.account_id, {number: row}, parameters, prefix)))
    chosen = [("segment", "s", campaign.trigger.segment_id)] if campaign.trigger.segment_id else []
    chosen += [("excluded_segment", f"y{at}_", one) for at, one in enumerate(data.get("exclude_segment_ids") or [])]
    for kind, prefix, number in chosen:
        found.append((kind, int(number), _segment(campaign.account_id, int(number), parameters, prefix)))
    return found, parameters


def missing(campaign: Campaign) -> list[str]:
    """Return the keys of a trigger that name a list or segment that is gone; left out, an exclusion would be none."""
    data, account_id = campaign.trigger.data, campaign.account_id
    gone = []
    for key, table in (
        ("contact_list_ids", "contact_list"), ("exclude_contact_list_ids", "contact_list"),
        ("exclude_segment_ids", "segment"),
    ):  # fmt: skip
        numbers = list(dict.fromkeys(data.get(key) or []))
        have = (
            {row[0] for row in rows(f"SELECT id FROM {table} WHERE account_id = ?", (account_id,))} if numbers else ()
        )
        if any(number not in have for number in numbers):
            gone.append(key)
    return gone


def _lists(campaign: Campaign) -> dict[int, ContactList | None]:
    chosen = list(campaign.trigger.data.get("contact_list_ids") or [])
    if campaign.trigger.contact_list_id:
        chosen.append(campaign.trigger.contact_list_id)
    return _found(campaign.account_id, chosen)


def _found(account_id: int, numbers: list[int]) -> dict[int, ContactList | None]:
    return {
        number: ContactList.get_or_none(ContactList.account == account_id, ContactList.id == number)
        for number in numbers
    }


def _any_list(account_id: int, lists: dict[int, ContactList | None], parameters: dict[str, Any], prefix: str) -> str:
    """Return who is in one of some lists: members, and of mirrors whoever is in the segment at this moment."""
    # Checked to be whole numbers when they were written; said again so that nothing else can stand here
    static = ",".join(str(int(number)) for number, found in lists.items() if found is None or not found.segment_id)
    parts = [f"c.id IN (SELECT contact_id FROM membership WHERE contact_list_id IN ({static}))"] if static else []
    for number, found in lists.items():
        if found is not None and found.segment_id:
            inside = _segment(account_id, found.segment_id, parameters, f"{prefix}{number}_")
            parts.append(
                f"({inside} AND NOT EXISTS (SELECT 1 FROM list_refusal r WHERE r.contact_list_id = {int(number)} "
                "AND r.contact_id = c.id))"
            )
    return f"({' OR '.join(parts)})"


def _segment(account_id: int, segment_id: int, parameters: dict[str, Any], prefix: str) -> str:
    asked = segments_people.of_segment(account_id, segment_id, prefix)
    parameters.update(asked.parameters)
    return f"({asked.sql})"


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
    """Return some of the people who would get it, or `ALL` of them, by contact id."""
    people = of(campaign)
    found = rows(
        f"SELECT c.id FROM contact c {_CHANNEL} WHERE c.id IN ({people.sql}) AND ({_reason(people)}) IS NULL "
        "ORDER BY c.id LIMIT :limit",
        {**people.parameters, "kind": kind(campaign), "limit": limit},
    )
    return [row[0] for row in found]


def kind(campaign: Campaign) -> str:
    """Return the kind of address a campaign goes to."""
    return "phone" if campaign.channel == "sms" else "email"


def _reason(people: Audience) -> str:
    return _REASON.format(double=int(people.double_opt_in))


def members(people: Audience) -> str:
    """Return the people as SQL that may be narrowed: contact id, the channel they get it on, and why not if so."""
    return (
        f"SELECT c.id AS contact, h.id AS channel, {_reason(people)} AS why FROM contact c {_CHANNEL} "
        f"WHERE c.id IN ({people.sql})"
    )


def most(campaign: Campaign, limit: int) -> int:
    """Count the people of a campaign, up to a limit."""
    people = of(campaign)
    return int(scalar(f"SELECT count(*) FROM ({people.sql} LIMIT :limit)", {**people.parameters, "limit": limit}))


# An audience as of a moment ago: what pages of a draft ask with each change of it, and of very many takes long.
#
# Of few people it is always as now. What decides whom to write to asks `audience` itself.

# In seconds of the processor; an audience that is counted as fast is counted each time
_CHEAP = 0.03
_counted: Rested[Arithmetic] = Rested(cheap=_CHEAP)
_first: Rested[list[int]] = Rested(cheap=_CHEAP)
_mailed: Rested[tuple[int, int | None]] = Rested(cheap=_CHEAP)


def cached_arithmetic(campaign: Campaign) -> Arithmetic:
    """Count the audience."""
    return _counted.get(_key(campaign), lambda: arithmetic(campaign))


def first_person(campaign: Campaign) -> int | None:
    """Return somebody who would get it, who may be gone since; None if there is nobody."""
    found = _first.get(_key(campaign), lambda: sample(campaign, 1))
    return found[0] if found else None


def last_mailed(campaign: Campaign) -> tuple[int, int | None]:
    """Return when anybody of the audience got mail last (0 for never), and was added last (None for an empty one)."""

    def find() -> tuple[int, int | None]:
        people = of(campaign)
        [(sent, added)] = rows(
            f"SELECT max(coalesce(email_last_sent_at, 0)), max(created_at) FROM contact WHERE id IN ({people.sql})",
            people.parameters,
        )
        return sent or 0, added

    return _mailed.get(_key(campaign), find)


def _key(campaign: Campaign) -> Hashable:
    """Return what says who is meant, so that another audience is another one at once."""
    people = of(campaign)
    return people.sql, repr(sorted(people.parameters.items())), people.double_opt_in, kind(campaign)


# The people behind a number of a report as something that lasts: the filters of a segment that finds them.

Filters = list[dict[str, Any]]
# Filters of recipients that say something a segment cannot ask
_OUT = ("status", "domain", "country", "problem", "pending", "unsubscribed", "contact_id")


def filters(campaign_id: int, query: RecipientQuery) -> Filters | None:
    """Return the filters of a segment that finds who a query of recipients finds; None where there are none such."""
    if any(getattr(query, name) is not UNSET for name in _OUT) or query.accepted is False:
        return None
    asked = {"opened": query.opened, "clicked": query.clicked}
    if "machines" in asked.values() or all(one is UNSET for one in (query.accepted, query.link, *asked.values())):
        return None
    made: Filters = []
    if query.accepted is True or "nobody" in asked.values():
        made.append({"name": "campaign_sent", "predicate": "eq", "value": campaign_id})
    for name, by in asked.items():
        if isinstance(by, str):
            predicate = "eq" if by == "people" else "not_eq"
            made.append({"name": f"campaign_{name}", "predicate": predicate, "value": campaign_id})
    if isinstance(query.link, int):
        where = [{"name": f"event.{name}", "predicate": "eq", "value": value}
                 for name, value in (("campaign_id", campaign_id), ("link", query.link))]  # fmt: skip
        made.append({"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "where": where}})
    return made
