"""Segments: list, create, change and delete them, find what uses them or depends on them, and offer ready-made ones."""

import hashlib
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from peewee import fn

from appliance.accounts import agents, approvals
from appliance.accounts.audit import Actor
from appliance.audience.filters import compiler
from appliance.audience.filters.compiler import MAX_FILTERS, Node
from appliance.audience.segments import members
from appliance.audience.segments.references import (
    find_campaign_references,
    find_flow_references,
    find_references,
    find_section_references,
    find_standalone_templates,
    iter_references,
)
from appliance.core import clock, signals
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import ContactId, Name, PageQuery, Short, read
from appliance.storage.database import Page, contains_words, paginate, rows, run, scalar
from appliance.storage.models import Account, Campaign, Flow, Segment
from appliance.storage.transactions import after_commit, require_write_transaction

Kind = Literal["list", "segment"]

# The key in a trigger's data that marks a campaign whose list or segment was deleted, until a user selects an audience.
AUDIENCE_DELETED = "audience_deleted"
_COLUMN = {"list": "contact_list_id", "segment": "segment_id"}
_LIVE = "f.account_id = ? AND f.hidden = 0 AND f.status IN ('active', 'paused') AND f.deleted_at IS NULL"
# Steps of an older version of a flow are included while a contact is in that version.
_STEPS = (
    f"SELECT f.id, f.name, s.data FROM flow f JOIN step s ON s.flow_id = f.id WHERE {_LIVE} "
    "AND s.kind IN ('split', 'wait_until', 'list_add', 'list_remove') AND (s.version = f.version "
    "OR EXISTS (SELECT 1 FROM run r WHERE r.flow_id = f.id AND r.status = 'live' AND r.version = s.version))"
)


def find_flows_using(account_id: int, kind: Kind, number: int) -> list[dict[str, Any]]:
    """Return the active and paused flows that use a list or a segment, as `flow_id` and `name`, sorted by id."""
    flows: dict[int, str] = {}
    column = _COLUMN[kind]
    for flow_id, name, target_id, data in rows(
        f"SELECT f.id, f.name, t.{column}, t.data FROM flow f JOIN trigger t ON t.flow_id = f.id WHERE {_LIVE}",
        (account_id,),
    ):
        named = find_references(account_id, msgspec.json.decode(data).get("where"))
        if target_id == number or (kind, number) in named | find_section_references(account_id, flow_id):
            flows[flow_id] = name
    for flow_id, name, data in rows(_STEPS, (account_id,)):
        props = msgspec.json.decode(data)
        listed = kind == "list" and props.get("contact_list_id") == number
        if flow_id not in flows and (listed or (kind, number) in find_references(account_id, props.get("filters"))):
            flows[flow_id] = name
    return [{"flow_id": flow_id, "name": name} for flow_id, name in sorted(flows.items())]


def find_segments_in_use(account_id: int) -> set[int]:
    """Return the ids of all segments of an account that are in use, as `find_usage` defines it, with fewer queries."""
    listed = "SELECT segment_id FROM contact_list WHERE account_id = ? AND segment_id IS NOT NULL"
    segment_ids = {number for (number,) in rows(listed, (account_id,))}
    named: set[tuple[str, int]] = set()
    for flow_id, segment_id, data in rows(
        "SELECT c.flow_id, t.segment_id, t.data FROM campaign c JOIN trigger t ON t.id = c.trigger_id "
        "WHERE c.account_id = ? AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL",
        (account_id,),
    ):
        segment_ids |= {segment_id, *(msgspec.json.decode(data).get("exclude_segment_ids") or [])}
        named |= find_section_references(account_id, flow_id)
    for flow_id, segment_id, data in rows(
        f"SELECT f.id, t.segment_id, t.data FROM flow f JOIN trigger t ON t.flow_id = f.id WHERE {_LIVE}", (account_id,)
    ):
        segment_ids.add(segment_id)
        named |= find_references(account_id, msgspec.json.decode(data).get("where"))
        named |= find_section_references(account_id, flow_id)
    for _, _, data in rows(_STEPS, (account_id,)):
        named |= find_references(account_id, msgspec.json.decode(data).get("filters"))
    for number, data in rows("SELECT id, filters FROM segment WHERE account_id = ?", (account_id,)):
        named |= find_references(account_id, msgspec.json.decode(data)) - {("segment", number)}
    return {number for number in segment_ids if number} | {number for kind, number in named if kind == "segment"}


def detach(kind: Kind, number: int) -> None:
    """Remove a list or a segment, which is about to be deleted, from the triggers of flows and campaigns.

    A flow gets a manual trigger until a user chooses another one. A campaign is marked with `AUDIENCE_DELETED`. Without
    this, the flow or campaign would be for all contacts, or for a list without the segment that limited it. Ids in the
    data of triggers (more lists, exclusions, filters) stay.
    """
    require_write_transaction()
    column = _COLUMN[kind]
    campaigns = "(SELECT hidden FROM flow WHERE id = trigger.flow_id)"
    marked = f"CASE WHEN {campaigns} THEN json_set(data, '$.{AUDIENCE_DELETED}', json('true')) ELSE data END"
    run(
        f"UPDATE trigger SET {column} = NULL, "
        f"data = json_remove({marked}, '$.audience_type', '$.confirm_send_to_all'), "
        f"event = CASE WHEN {campaigns} THEN event ELSE 'manual' END "
        f"WHERE {column} = ?",
        (number,),
    )


def find_reachable(account_id: int, kind: str, number: int) -> set[tuple[str, int]]:
    """Return (kind, id) of all segments and lists that a segment or list refers to, directly or indirectly.

    The segment or list itself is included.
    """
    reachable: set[tuple[str, int]] = set()
    pending = [(kind, number)]
    while pending:
        kind, number = pending.pop()
        if (kind, number) in reachable:
            continue
        reachable.add((kind, number))
        if kind == "list":
            mirrored = scalar("SELECT segment_id FROM contact_list WHERE id = ?", (number,))
            pending += [("segment", mirrored)] if mirrored else []
        else:
            segment = Segment.get_or_none(Segment.account == account_id, Segment.id == number)
            pending += (
                [reference[:2] for reference in iter_references(members.parse_filters(account_id, segment.filters))]
                if segment
                else []
            )
    return reachable


# Every edit of an audience needs a new approval (docs/decisions.md#6). Otherwise a user who may edit segments, but not
# approve, could have approved messages sent to other contacts.


def revoke_approvals(account_id: int, kind: Kind, number: int, by: Actor) -> None:
    """Revoke the approval of campaigns and flows whose audience depends on a segment or list that `by` is changing.

    This applies to accounts that require approval. Scheduled campaigns become drafts. Active flows are paused, unless
    `by` may approve them, as with any other change of an active flow. A request for approval stays open, but counts as
    changed by `by`: a user who has read it must read it again, and `by` may need another user to approve it.
    """
    require_write_transaction()
    _revoke_campaign_approvals(account_id, kind, number, by)
    _revoke_flow_approvals(account_id, kind, number, by)


def _revoke_campaign_approvals(account_id: int, kind: Kind, number: int, by: Actor) -> None:
    campaigns = Campaign.select(Campaign).join(Account).where(
        Campaign.account == account_id, Account.approval_required, _is_decided_or_asked(Campaign),
        Campaign.phase.in_(("draft", "scheduled")), Campaign.started_at.is_null(), Campaign.deleted_at.is_null(),
    )  # fmt: skip
    for campaign in list(campaigns):
        if _is_affected(account_id, kind, number, find_campaign_references(campaign)):
            approvals.mark_changed(campaign, by.person_id)
            campaign.status = campaign.phase = "draft"
            campaign.updated_at = max(clock.now_ms(), campaign.updated_at + 1)
            campaign.save()


def _revoke_flow_approvals(account_id: int, kind: Kind, number: int, by: Actor) -> None:
    flows = Flow.select(Flow).join(Account).where(
        Flow.account == account_id, Account.approval_required, _is_decided_or_asked(Flow),
        ~Flow.hidden, Flow.deleted_at.is_null(),
    )  # fmt: skip
    for flow in list(flows):
        is_live = flow.status == "active" and flow.approval_state == "approved"
        if (is_live and approvals.can_approve(flow, by)) or not _is_affected(
            account_id, kind, number, find_flow_references(flow)
        ):
            continue
        approvals.mark_changed(flow, by.person_id)
        if is_live:
            flow.status, flow.paused_at = "paused", clock.now_ms()
        flow.updated_at = max(clock.now_ms(), flow.updated_at + 1)
        flow.save(only=[Flow.approval_state, Flow.edited_by, Flow.status, Flow.paused_at, Flow.updated_at])
        after_commit(lambda: signals.wake("flows"))


def _is_decided_or_asked(model: type[Campaign | Flow]) -> Any:
    is_asked = (model.approval_state == "pending_review") & model.asked_at.is_null(False)
    return (model.approval_state == "approved") | is_asked


def describe_audience(account_id: int, chosen: Iterable[tuple[str, int | None]]) -> list[tuple[str, int, Any]]:
    """Return (kind, id, filters) of all segments and lists that decide an audience, in a fixed order.

    `chosen` are those that a campaign or flow names. The filters of a list are None.
    """
    reached: set[tuple[str, int]] = set()
    for kind, number in chosen:
        reached |= find_reachable(account_id, kind, number) if number else set()
    ids = [number for kind, number in reached if kind == "segment"]
    segments = Segment.select().where(Segment.account == account_id, Segment.id.in_(ids))
    filters = {segment.id: segment.filters for segment in segments}
    return [(kind, number, filters.get(number) if kind == "segment" else None) for kind, number in sorted(reached)]


def _is_affected(account_id: int, kind: Kind, number: int, chosen: set[tuple[str, int | None]]) -> bool:
    return any(
        (kind, number) in find_reachable(account_id, chosen_kind, chosen_id)
        for chosen_kind, chosen_id in chosen
        if chosen_id
    )


_FILTER = {"$ref": "#/components/schemas/Filter"}
# The type is not checked here, because the parser of filters reports each error with its path.
Filters = Annotated[Any, Meta(extra_json_schema={"type": "array", "maxItems": MAX_FILTERS, "items": _FILTER})]


class SegmentCreate(Struct):
    """The fields of a new segment; without filters, the segment contains all contacts."""

    name: Name
    filters: (
        Annotated[
            Filters,
            Meta(description="filters, all of which must match; without filters, the segment holds all contacts"),
        ]
        | UnsetType
    ) = UNSET
    starter: (
        Annotated[Short, Meta(description="key of the ready-made segment whose filters to use; `filters` overrides it")]
        | UnsetType
    ) = UNSET


class SegmentPatch(Struct):
    """The changes to a segment; fields that are not given stay unchanged, and `filters` replaces all filters."""

    name: Name | UnsetType = UNSET
    filters: (
        Annotated[
            Filters,
            Meta(description="filters, all of which must match; without filters, the segment holds all contacts"),
        ]
        | UnsetType
    ) = UNSET


class SegmentQuery(PageQuery):
    """Filters and pagination of a list of segments."""

    search: Annotated[Short, Meta(description="search words for the name")] | UnsetType = UNSET


class CountWrite(Struct):
    """The request body for counting the contacts that match filters, without storing a segment."""

    filters: Annotated[
        Filters, Meta(description="filters, all of which must match; without filters, the segment holds all contacts")
    ]


class ExplainQuery(Struct):
    """The contact whose membership in a segment is to be explained."""

    contact_id: Annotated[ContactId, Meta(description="id of the contact to explain; required")]


# The columns by which segments can be ordered; a minus before the name sorts in descending order.
ORDERS = {"name": fn.name_order(Segment.name), "updated": Segment.updated_at, "created": Segment.created_at}


def fetch_page(
    account_id: int, query: SegmentQuery, order: str = "-created", ids: Collection[int] | None = None
) -> Page:
    """Return a page of the segments that match the query, in an order of `ORDERS`; with `ids`, only those segments."""
    query_set = select_matching(account_id, query, ids)
    column = ORDERS[order.removeprefix("-")]
    ordering = [column.desc(), Segment.id.desc()] if order.startswith("-") else [column.asc(), Segment.id.asc()]
    return paginate(query_set.order_by(*ordering), query.page, query.size())


def select_matching(account_id: int, query: SegmentQuery, ids: Collection[int] | None = None) -> Any:
    """Return an unordered Peewee query of the segments that match; with `ids`, only those segments."""
    query_set = Segment.select().where(Segment.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        query_set = query_set.where(contains_words(query.search, Segment.name))
    return query_set if ids is None else query_set.where(Segment.id.in_(ids))


def fetch_ids(account_id: int) -> set[int]:
    """Return the ids of all segments of an account."""
    return {number for (number,) in rows("SELECT id FROM segment WHERE account_id = ?", (account_id,))}


def get(account_id: int, segment_id: int) -> Segment:
    """Return a segment of an account; raises NotFound."""
    segment = Segment.get_or_none(Segment.account == account_id, Segment.id == segment_id)
    if segment is None:
        raise NotFound
    return segment


def create(account_id: int, request: SegmentCreate) -> Segment:
    """Create a segment; raises Invalid with all errors of its filters."""
    require_write_transaction()
    filters = [] if request.filters is UNSET else request.filters
    check(account_id, None, filters)
    now = clock.now_ms()
    segment = Segment.create(
        account=account_id, name=request.name.strip(), filters=filters, created_at=now, updated_at=now
    )  # fmt: skip
    after_commit(lambda: signals.wake("segments"))
    return get(account_id, segment.id)


def update(account_id: int, segment_id: int, request: SegmentPatch, by: Actor = Actor()) -> Segment:
    """Change a segment; raises NotFound, and Invalid with all errors of its filters.

    If the filters change, the approval of campaigns and flows that depend on the segment is revoked. Raises NotAllowed
    for an agent if a change of the segment would take effect (`list_effects`).
    """
    require_write_transaction()
    segment = get(account_id, segment_id)
    if by.is_agent and list_effects(account_id, segment_id):
        raise agents.refuse_change()
    if request.filters is not UNSET:
        check(account_id, segment_id, request.filters)
        if segment.filters != request.filters:
            revoke_approvals(account_id, "segment", segment_id, by)
        segment.filters = request.filters
    if isinstance(request.name, str):
        segment.name = request.name.strip()
    segment.updated_at = max(clock.now_ms(), segment.updated_at + 1)
    segment.save()
    # Segments may refer to other segments, so the members of any mirror of the account may change.
    run("UPDATE contact_list SET stale = 1 WHERE account_id = ? AND segment_id IS NOT NULL", (account_id,))
    after_commit(lambda: signals.wake("segments"))
    return get(account_id, segment_id)


def delete(account_id: int, segment_id: int) -> Segment:
    """Delete a segment and return it; raises NotFound, or Invalid with `used_by` if the segment is in use."""
    require_write_transaction()
    segment = get(account_id, segment_id)
    usage = find_usage(account_id, segment_id)
    if usage:
        raise Invalid({"base": [gettext("is in use")]}, reason="in_use", used_by=usage)
    detach("segment", segment_id)
    Segment.delete().where(Segment.id == segment_id).execute()
    after_commit(lambda: signals.wake("segments"))
    return segment


def list_effects(account_id: int, segment_id: int) -> list[dict[str, Any]]:
    """Return what a change of a segment would affect, also through other segments, in the form of `find_usage`.

    These are lists that mirror the segment; campaigns and flows that are active, paused, approved or to be approved;
    flows that were active before; and stand-alone templates that programs may send, as `template_id`.
    """

    def is_reached(references: Iterable[tuple[str, int | None]]) -> bool:
        return _is_affected(account_id, "segment", segment_id, {reference for reference in references if reference[1]})

    mirrors = rows(
        "SELECT id, name, segment_id FROM contact_list WHERE account_id = ? AND segment_id IS NOT NULL", (account_id,)
    )
    effects: list[dict[str, Any]] = [
        {"list_id": number, "name": name}
        for number, name, mirrored in mirrors
        if mirrored == segment_id or is_reached([("segment", mirrored)])
    ]
    campaigns = Campaign.select().where(
        Campaign.account == account_id, Campaign.deleted_at.is_null(),
        Campaign.status.in_(("active", "paused")) | ((Campaign.status == "draft") & _is_decided_or_asked(Campaign)),
    )  # fmt: skip
    effects += [
        {"campaign_id": campaign.id, "name": campaign.name}
        for campaign in campaigns
        if is_reached(find_campaign_references(campaign))
    ]
    flows = Flow.select().where(
        Flow.account == account_id, ~Flow.hidden, Flow.deleted_at.is_null(),
        Flow.status.in_(("active", "paused")) | (Flow.version > 0) | _is_decided_or_asked(Flow),
    )  # fmt: skip
    effects += [{"flow_id": flow.id, "name": flow.name} for flow in flows if is_reached(find_flow_references(flow))]
    effects += [
        {"template_id": number, "name": name or ""}
        for number, name, named in find_standalone_templates(account_id)
        if is_reached(named)
    ]
    return effects


def find_usage(account_id: int, segment_id: int) -> list[dict[str, Any]]:
    """Return what uses a segment, each with its name and `campaign_id`, `flow_id`, `list_id` or `segment_id`.

    Active and paused campaigns and flows, lists that mirror the segment, and other segments count.
    """
    usage: list[dict[str, Any]] = [
        {"campaign_id": number, "name": name}
        for number, name, flow_id, is_audience in rows(
            "SELECT c.id, c.name, c.flow_id, "
            "t.segment_id IS ?2 OR ?2 IN (SELECT value FROM json_each(t.data, '$.exclude_segment_ids')) "
            "FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE c.account_id = ?1 "
            "AND c.status IN ('active', 'paused') AND c.deleted_at IS NULL",
            (account_id, segment_id),
        )
        if is_audience or ("segment", segment_id) in find_section_references(account_id, flow_id)
    ]
    usage += find_flows_using(account_id, "segment", segment_id)
    usage += [
        {"list_id": number, "name": name}
        for number, name in rows("SELECT id, name FROM contact_list WHERE segment_id = ?", (segment_id,))
    ]
    return usage + find_segments_using(account_id, "segment", segment_id)


def find_segments_using(account_id: int, kind: Kind, number: int) -> list[dict[str, Any]]:
    """Return the segments whose filters refer to a list or to another segment, as `segment_id` and `name`."""
    return [
        {"segment_id": segment.id, "name": segment.name}
        for segment in Segment.select().where(Segment.account == account_id).order_by(Segment.id)
        if any(
            (kind, number) == reference[:2]
            for reference in iter_references(members.parse_filters(account_id, segment.filters))
        )
    ]


def find_drafts_using(account_id: int, segment_id: int) -> list[dict[str, Any]]:
    """Return `campaign_id` and `name` of the draft campaigns that use a segment.

    These campaigns would need another audience if the segment were deleted.
    """
    campaigns = rows(
        "SELECT c.id, c.name FROM campaign c JOIN trigger t ON t.id = c.trigger_id WHERE c.account_id = ? "
        "AND (t.segment_id = ? OR ? IN (SELECT value FROM json_each(t.data, '$.exclude_segment_ids'))) "
        "AND c.status = 'draft' AND c.deleted_at IS NULL",
        (account_id, segment_id, segment_id),
    )
    return [{"campaign_id": number, "name": name} for number, name in campaigns]


def check(account_id: int, segment_id: int | None, filters: Any) -> list[Node]:
    """Validate the filters of a segment and return their nodes; `segment_id` is None for a new segment.

    Raises Invalid with all errors, also if the segment would refer to itself or have too many conditions.
    """
    scope = members.build_scope(account_id, writing=True)
    nodes = members.parse_filters(account_id, filters, writing=True)
    faults: dict[str, list[str]] = {}
    for kind, number, path in iter_references(nodes) if segment_id is not None else ():
        if ("segment", segment_id) in find_reachable(account_id, kind, number):
            faults[path] = [gettext("refers back to this segment")]
    if faults:
        raise Invalid(faults)
    compiler.compile_filters(nodes, scope)
    return nodes


def hash_definition(account_id: int, segment_id: int) -> str:
    """Return a SHA-256, as hex, of the filters of a segment and of all segments and lists that it refers to."""
    definitions = []
    for kind, number in sorted(find_reachable(account_id, "segment", segment_id)):
        column, table = ("filters", "segment") if kind == "segment" else ("segment_id", "contact_list")
        definitions.append((kind, number, scalar(f"SELECT {column} FROM {table} WHERE id = ?", (number,))))
    return hashlib.sha256(repr(definitions).encode()).hexdigest()


def find_reachable_lists(account_id: int, segment_id: int) -> set[int]:
    """Return the ids of the lists that a segment refers to, directly or through other segments."""
    return {number for kind, number in find_reachable(account_id, "segment", segment_id) if kind == "list"}


# Ready-made segments, which most accounts need; each becomes an ordinary segment that can be changed.


class SegmentStarter(NamedTuple):
    """A ready-made segment; name and description are marked texts, and `filters` have the form of the API."""

    key: str
    name: str
    description: str
    filters: tuple[dict[str, Any], ...]

    def build(self) -> SegmentCreate:
        """Return the request that creates the segment, with its name in the current language."""
        return read(SegmentCreate, {"name": gettext(self.name), "filters": list(self.filters)})


def _filter(name: str, predicate: str, value: Any) -> dict[str, Any]:
    return {"name": name, "predicate": predicate, "value": value}


_SUBSCRIBED = _filter("contact_subscribed_email", "true", True)
STARTERS = (
    SegmentStarter(
        "engaged", gettext_noop("Engaged in the last 30 days"),
        gettext_noop("Opened or clicked an email in the last 30 days."),
        (
            _filter("group", "any", [
                _filter("email_last_opened_at", "within_days", 30), _filter("email_last_clicked_at", "within_days", 30),
            ]),
        ),
    ),
    SegmentStarter(
        "asleep", gettext_noop("Not engaged for 90 days"),
        gettext_noop("Subscribed to email, added over 90 days ago, and no opens or clicks since then."),
        (
            _SUBSCRIBED, _filter("contact_created_at", "not_within_days", 90),
            _filter("email_last_opened_at", "not_within_days", 90),
            _filter("email_last_clicked_at", "not_within_days", 90),
        ),
    ),
    SegmentStarter(
        "new", gettext_noop("New in the last 30 days"), gettext_noop("Added in the last 30 days."),
        (_filter("contact_created_at", "within_days", 30),),
    ),
    SegmentStarter(
        "never_opened", gettext_noop("Never opened"),
        gettext_noop("Received at least one email, but never opened or clicked one."),
        (
            _filter("email_sent_count", "gteq", 1), _filter("email_open_count", "lteq", 0),
            _filter("email_click_count", "lteq", 0),
        ),
    ),
)  # fmt: skip


def parse_create(account_id: int, request: SegmentCreate) -> SegmentCreate:
    """Return a request with the filters of its starter, unless it has filters of its own.

    Raises Invalid with all errors, also for an unknown starter.
    """
    faults, filters = Faults(), request.filters
    if isinstance(request.starter, str):
        starter = next((starter for starter in STARTERS if starter.key == request.starter), None)
        if starter is None:
            faults.add("starter", gettext("is not included in the list"))
        elif filters is UNSET:
            filters = list(starter.filters)
    if filters is not UNSET:
        faults.collect(check, account_id, None, filters)
    faults.check()
    return SegmentCreate(request.name, filters)


def find_starter(key: str) -> SegmentStarter:
    """Return a ready-made segment by its key; raises NotFound."""
    starter = next((starter for starter in STARTERS if starter.key == key), None)
    if starter is None:
        raise NotFound
    return starter
