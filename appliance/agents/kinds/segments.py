"""The proposal to change a segment that is in use."""

import msgspec
from msgspec import UNSET

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.agents.differences import Difference, Values, compare, label_field
from appliance.agents.flow_words import word_filters
from appliance.agents.kinds import base
from appliance.agents.kinds.base import EmailChange, ProposalKind, Reach, References
from appliance.audience.segments import members, references, store
from appliance.audience.segments.store import SegmentPatch
from appliance.core.errors import Invalid
from appliance.core.hidden_characters import show_hidden
from appliance.core.i18n import gettext, gettext_noop
from appliance.storage.models import Segment


def describe_version(segment: Segment) -> str:
    """Return the version of a segment and of all segments and lists that it refers to."""
    definition = store.describe_audience(segment.account_id, [("segment", segment.id)])
    return base.hash_version([segment.updated_at, definition])


def check(account_id: int, segment_id: int, changes: SegmentPatch) -> None:
    """Raise Invalid with all faults of the filters, or if nothing would change."""
    store.get(account_id, segment_id)
    if all(value is UNSET for value in msgspec.structs.astuple(changes)):
        raise Invalid({"changes": [gettext("can't be blank")]})
    if changes.filters is UNSET:
        return
    try:
        store.check(account_id, segment_id, changes.filters)
    except Invalid as error:
        raise Invalid({f"changes.{name}": messages for name, messages in error.fields.items()}) from None


def prepare(account_id: int, segment_id: int, changes: SegmentPatch) -> None:
    """Return nothing: a segment needs no preparation."""


def carry_out(account_id: int, segment_id: int, changes: SegmentPatch, by: Actor, prepared: None) -> None:
    """Change the segment as a user does; raises what `store.update` raises."""
    audit.run_and_record(by, "segment_update", store.update, account_id, segment_id, changes, by)


def compare_segment(account_id: int, segment_id: int, changes: SegmentPatch) -> list[Difference]:
    """Return name and conditions before and after, and what uses the segment."""
    segment, scope = store.get(account_id, segment_id), members.build_scope(account_id)
    name = changes.name.strip() if isinstance(changes.name, str) else segment.name
    filters = segment.filters if changes.filters is UNSET else changes.filters
    before, after = Values(), Values()
    for side, own_name, own_filters in ((before, segment.name, segment.filters), (after, name, filters)):
        side.add(("name",), label_field("name"), own_name)
        side.add(("filters",), label_field("filters"), word_filters(account_id, own_filters or [], scope))
    differences = compare(before, after)
    uses = [show_hidden(use["name"]) for use in store.list_effects(account_id, segment_id)]
    return [*differences, *(Difference(gettext("In use by"), name, name) for name in uses)]


def measure(account_id: int, segment_id: int, changes: SegmentPatch) -> Reach:
    """Return the number of members before and after."""
    segment, scope = store.get(account_id, segment_id), members.build_scope(account_id)
    before = members.count_members(account_id, members.parse_filters(account_id, segment.filters), scope)
    filters = segment.filters if changes.filters is UNSET else changes.filters
    after = members.count_members(account_id, members.parse_filters(account_id, filters), scope)
    return Reach(before, after)


def list_emails(account_id: int, segment_id: int, changes: SegmentPatch) -> list[EmailChange]:
    """Return nothing: a segment has no email."""
    return []


def find_references(account_id: int, segment_id: int, changes: SegmentPatch) -> References:
    """Return the segments and lists that the conditions name."""
    filters = store.get(account_id, segment_id).filters if changes.filters is UNSET else changes.filters
    return {*references.find_references(account_id, filters)}


CHANGE_SEGMENT = ProposalKind(
    "change_segment",
    gettext_noop("Change segment"),
    "segment",
    ("contacts:read",),
    ("events:read",),
    SegmentPatch,
    store.get,
    describe_version,
    check,
    prepare,
    carry_out,
    compare_segment,
    measure,
    list_emails,
    find_references,
    "/segments/{}",
)
