"""Lets people into a flow by hand, for those who were there before anything could bring them."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.contacts import lists
from appliance.db.open import rows
from appliance.db.work import writing
from appliance.errors import Faults, Invalid
from appliance.fields import Id
from appliance.flows import enrollment, people, starting
from appliance.flows.starting import FREQUENCY, INSIDE, Arrival
from appliance.segments import people as members
from appliance.segments import store as segments

# People of one transaction: it shall take no longer than 20 ms
CHUNK = 100


class EnrollWrite(Struct):
    """Who is let in: people by their ids, or whoever is in a segment now."""

    contact_ids: Annotated[list[Id], Meta(max_length=10_000)] | None | UnsetType = UNSET
    segment_id: Id | None | UnsetType = UNSET
    confirm_send_to_all: bool | UnsetType = UNSET


class Enrolled(Struct):
    """How many were let in, and how many were not because they are inside, or were there and may not come again."""

    enrolled: int = 0
    already_inside: int = 0
    frequency: int = 0


def who(account_id: int, flow_id: int, request: EnrollWrite) -> list[int]:
    """Return whom a request names, in the order of their ids; raises NotFound, or Invalid with all faults.

    What the trigger asks of an event, a list or a segment is not asked here: a person chose these people.
    """
    check(account_id, request, flow_id)
    if isinstance(request.segment_id, int):
        return _of_segment(account_id, request.segment_id, request.confirm_send_to_all is True)
    return sorted(set(request.contact_ids or []))


def check(account_id: int, request: EnrollWrite, flow_id: int) -> None:
    """Raise Invalid with all that is wrong with a request, beyond its types; raises NotFound."""
    flow = people.flow_of(account_id, flow_id)
    faults = Faults()
    if flow.status != "active":
        faults.add("base", "is not active")
    chosen = request.contact_ids if isinstance(request.contact_ids, list) else None
    segment = request.segment_id if isinstance(request.segment_id, int) else None
    if chosen is None and segment is None:
        faults.add("contact_ids", "can't be blank")
    if chosen is not None and segment is not None:
        faults.add("base", "takes either contacts or a segment")
    if chosen is not None and lists.unknown(account_id, chosen):
        faults.add("contact_ids", "must exist")
    if segment is not None and not rows(
        "SELECT 1 FROM segment WHERE account_id = ? AND id = ?", (account_id, segment)
    ):  # fmt: skip
        faults.add("segment_id", "must exist")
    faults.check()


def _of_segment(account_id: int, segment_id: int, confirmed: bool) -> list[int]:
    filters = segments.get(account_id, segment_id).filters
    if not filters and not confirmed:
        words = "confirm that everybody enters"
        blocker = {"code": "confirmation_required", "message": words, "field": "confirm_send_to_all"}
        raise Invalid({"confirm_send_to_all": [words]}, reason="confirmation_required", blockers=[blocker])
    here = members.scope(account_id)
    chosen = members.select(account_id, members.nodes(account_id, filters), here)
    with members.limited():
        return [row[0] for row in rows(f"SELECT c.id {chosen.sql} ORDER BY c.id", chosen.parameters)]


def let_in(flow_id: int, contact_ids: Sequence[int], test: bool) -> Enrolled | None:
    """Start runs for some people; None if the flow takes nobody in any more."""
    writing()
    flow = enrollment.still_open(flow_id)
    if flow is None:
        return None
    done = starting.start(flow, [Arrival(contact_id, test=test or flow.test) for contact_id in contact_ids])
    return Enrolled(done.number, done.ignored.get(INSIDE, 0), done.ignored.get(FREQUENCY, 0))
