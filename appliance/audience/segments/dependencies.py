"""Which flows need a list or a segment: by what starts them, and by the steps of the plans that people are in."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from appliance.accounts import approving
from appliance.accounts.acting import By
from appliance.audience.filters import read
from appliance.audience.filters.read import Group, Leaf, Node
from appliance.audience.filters.scope import Place
from appliance.audience.segments import people
from appliance.core import clock, wake_ups
from appliance.core.errors import Invalid
from appliance.storage.models import Account, Campaign, Flow, Segment, Trigger
from appliance.storage.open import rows, run, scalar
from appliance.storage.work import after_commit, writing

Kind = Literal["list", "segment"]

_COLUMN = {"list": "contact_list_id", "segment": "segment_id"}
_LIVE = "f.account_id = ? AND f.hidden = 0 AND f.status IN ('active', 'paused') AND f.deleted_at IS NULL"
# Of a flow's older versions those that somebody is still in
_STEPS = (
    f"SELECT f.id, f.name, s.data FROM flow f JOIN step s ON s.flow_id = f.id WHERE {_LIVE} "
    "AND s.kind IN ('split', 'list_add', 'list_remove') AND (s.version = f.version OR EXISTS (SELECT 1 FROM run r "
    "WHERE r.flow_id = f.id AND r.status = 'live' AND r.version = s.version))"
)


def flows(account_id: int, kind: Kind, number: int) -> list[dict[str, Any]]:
    """Return the live flows that need a list or a segment, as `used_by` says it."""
    found: dict[int, str] = {}
    column = _COLUMN[kind]
    for flow_id, name, own, data in rows(
        f"SELECT f.id, f.name, t.{column}, t.data FROM flow f JOIN trigger t ON t.flow_id = f.id WHERE {_LIVE}",
        (account_id,),
    ):
        if own == number or _names(account_id, msgspec.json.decode(data).get("where"), kind, number):
            found[flow_id] = name
    for flow_id, name, data in rows(_STEPS, (account_id,)):
        props = msgspec.json.decode(data)
        listed = kind == "list" and props.get("contact_list_id") == number
        if flow_id not in found and (listed or _names(account_id, props.get("filters"), kind, number)):
            found[flow_id] = name
    return [{"flow_id": flow_id, "name": name} for flow_id, name in sorted(found.items())]


def of_flow(flow: Flow) -> set[tuple[str, int | None]]:
    """Return the segments and lists that say who enters a flow, and which way they go there.

    That is asked of it as it is edited, and of older versions that somebody is still in.
    """
    started = Trigger.get(Trigger.flow == flow.id)
    found: set[tuple[str, int | None]] = {("segment", started.segment_id), ("list", started.contact_list_id)}
    asked = [started.data.get("where"), *_splits(flow.steps)]
    plans = "SELECT data FROM step WHERE flow_id = ? AND kind = 'split'"
    asked += [msgspec.json.decode(data).get("filters") for (data,) in rows(plans, (flow.id,))]
    kinds: tuple[Kind, ...] = ("segment", "list")
    for filters in asked:
        found |= {(kind, number) for kind in kinds for number in _named(flow.account_id, filters, kind)}
    return found


def _splits(steps: Any) -> Iterator[Any]:
    """Return the filters of splits, branches within branches too."""
    for step in steps:
        yield step.get("filters")
        for branch in ("yes", "no"):
            yield from _splits(step.get(branch) or [])


def segments_in_use(account_id: int) -> set[int]:
    """Return the segments that something needs: what `used_by` names for each, found in one go."""
    listed = "SELECT segment_id FROM contact_list WHERE account_id = ? AND segment_id IS NOT NULL"
    found = {number for (number,) in rows(listed, (account_id,))}
    for own, data in rows(
        "SELECT t.segment_id, t.data FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE c.account_id = ? "
        "AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL",
        (account_id,),
    ):
        found |= {own, *(msgspec.json.decode(data).get("exclude_segment_ids") or [])}
    for own, data in rows(
        f"SELECT t.segment_id, t.data FROM flow f JOIN trigger t ON t.flow_id = f.id WHERE {_LIVE}", (account_id,)
    ):
        found |= {own, *_named(account_id, msgspec.json.decode(data).get("where"), "segment")}
    for _, _, data in rows(_STEPS, (account_id,)):
        found |= _named(account_id, msgspec.json.decode(data).get("filters"), "segment")
    for number, data in rows("SELECT id, filters FROM segment WHERE account_id = ?", (account_id,)):
        found |= _named(account_id, msgspec.json.decode(data), "segment") - {number}
    return found - {None}


def let_go(kind: Kind, number: int) -> None:
    """Take a list or a segment out of what starts flows and campaigns.

    A flow that was for its people begins by hand until somebody chooses again, and a campaign remembers that it had
    an audience: neither must become for everybody.
    """
    writing()
    column = _COLUMN[kind]
    campaigns = "(SELECT hidden FROM flow WHERE id = trigger.flow_id)"
    marked = f"CASE WHEN {campaigns} THEN json_set(data, '$.audience_deleted', json('true')) ELSE data END"
    run(
        f"UPDATE trigger SET {column} = NULL, "
        f"data = json_remove({marked}, '$.audience_type', '$.confirm_send_to_all'), "
        f"event = CASE WHEN {campaigns} THEN event ELSE 'manual' END "
        f"WHERE {column} = ?",
        (number,),
    )


def _names(account_id: int, filters: Any, kind: Kind, number: int) -> bool:
    """Return whether stored filters name a list or a segment."""
    return number in _named(account_id, filters, kind)


def _named(account_id: int, filters: Any, kind: Kind) -> set[int]:
    """Return the lists or segments that stored filters name; what cannot be read any more needs nothing."""
    if not filters:
        return set()
    here = people.scope(account_id)._replace(place=Place.SPLIT)
    try:
        nodes = read.filters(filters, here)
    except Invalid:
        return set()
    return {named for of, named, _ in named_in(nodes) if of == kind}


def named_in(nodes: list[Node], path: str = "filters") -> Iterator[tuple[str, int, str]]:
    """Return the lists and segments that filters point to: kind, id, and the path of the value."""
    for index, node in enumerate(nodes):
        where = f"{path}[{index}].value"
        if isinstance(node, Group):
            yield from named_in(node.parts, where)
        elif isinstance(node, Leaf) and node.field.of in ("segment", "list") and node.test.key != "present":
            many = isinstance(node.value, list)
            for place, number in enumerate(node.value if many else [node.value]):
                yield node.field.of, number, f"{where}[{place}]" if many else where


def reached(account_id: int, kind: str, number: int) -> set[tuple[str, int]]:
    """Return the segments and lists that a segment or list leads to, itself included."""
    seen: set[tuple[str, int]] = set()
    waiting = [(kind, number)]
    while waiting:
        kind, number = waiting.pop()
        if (kind, number) in seen:
            continue
        seen.add((kind, number))
        if kind == "list":
            mirrored = scalar("SELECT segment_id FROM contact_list WHERE id = ?", (number,))
            waiting += [("segment", mirrored)] if mirrored else []
        else:
            found = Segment.get_or_none(Segment.account == account_id, Segment.id == number)
            waiting += [one[:2] for one in named_in(people.nodes(account_id, found.filters))] if found else []
    return seen


# Campaigns and flows that were approved for the people whom a segment found: if it changes they wait for another
# look.
#
# An edit of the audience has to be approved anew (docs/decisions.md#6), by whatever door: somebody who may change
# segments and not approve would write to other people than those that were looked at.


def ask_again(account_id: int, kind: Kind, number: int, by: By) -> None:
    """Take back the approval of what a segment, or a list that shows one, has a say in; `by` is who changes it.

    Armed campaigns are disarmed. A live flow is paused, unless who changes it may approve of it, as with any other
    change of a live flow.
    """
    writing()
    _campaigns(account_id, kind, number, by)
    _flows(account_id, kind, number, by)


def _campaigns(account_id: int, kind: Kind, number: int, by: By) -> None:
    waiting = Campaign.select(Campaign).join(Account).where(
        Campaign.account == account_id, Account.approval_required, Campaign.approval_state == "approved",
        Campaign.phase.in_(("draft", "scheduled")), Campaign.started_at.is_null(), Campaign.deleted_at.is_null(),
    )  # fmt: skip
    for campaign in list(waiting):
        if _has_a_say(account_id, kind, number, _chosen(campaign.trigger)):
            approving.touched(campaign, by.user_id)
            campaign.status = campaign.phase = "draft"
            campaign.updated_at = max(clock.now_ms(), campaign.updated_at + 1)
            campaign.save()


def _flows(account_id: int, kind: Kind, number: int, by: By) -> None:
    found = Flow.select(Flow).join(Account).where(
        Flow.account == account_id, Account.approval_required, Flow.approval_state == "approved",
        ~Flow.hidden, Flow.deleted_at.is_null(),
    )  # fmt: skip
    for flow in list(found):
        is_live = flow.status == "active"
        if (is_live and approving.allows(flow, by)) or not _has_a_say(account_id, kind, number, of_flow(flow)):
            continue
        approving.touched(flow, by.user_id)
        if is_live:
            flow.status, flow.paused_at = "paused", clock.now_ms()
        flow.updated_at = max(clock.now_ms(), flow.updated_at + 1)
        flow.save(only=[Flow.approval_state, Flow.edited_by, Flow.status, Flow.paused_at, Flow.updated_at])
        after_commit(lambda: wake_ups.ring("flows"))


def _chosen(trigger: Any) -> set[tuple[str, int | None]]:
    lists, segments = ("contact_list_ids", "exclude_contact_list_ids"), ("exclude_segment_ids",)
    chosen: set[tuple[str, int | None]] = {("segment", trigger.segment_id), ("list", trigger.contact_list_id)}
    for of, names in (("list", lists), ("segment", segments)):
        chosen |= {(of, number) for name in names for number in trigger.data.get(name) or []}
    return chosen


def _has_a_say(account_id: int, kind: Kind, number: int, chosen: set[tuple[str, int | None]]) -> bool:
    return any((kind, number) in reached(account_id, of, one) for of, one in chosen if one)
