"""Who is let into a flow by hand."""

from typing import Any

import pytest

from appliance.audience.segments import store
from appliance.audience.segments.store import SegmentCreate
from appliance.core import validation
from appliance.core.errors import Invalid, NotFound
from appliance.flows import enrollment
from appliance.flows.enrollment import EnrollmentResult, EnrollWrite
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Flow
from tests.domain.flows_home import end_runs, happen, live_flow, runs, take_in
from tests.domain.home import Home


def enroll(home: Home, flow_id: int, *, test: bool = False, **body: Any) -> EnrollmentResult | None:
    """Let people in, as the API does with few."""
    chosen = enrollment.resolve_contacts(home.account_id, flow_id, validation.read(EnrollWrite, body))
    return transactions.write(enrollment.enroll, flow_id, chosen, test)


def test_people_and_segments_are_let_in_whatever_the_trigger_asks(home: Home) -> None:
    """Who was there before enters once; who is inside or was there stays out, and is counted and not kept."""
    anna, ben = (home.contact(f"{name}@example.org", first_name=name).id for name in ("anna", "ben"))
    news = home.list_of(name="news").id
    flow = live_flow(home, {"event": "list_add", "contact_list_id": news})
    assert enroll(home, flow, contact_ids=[ben, ben]) == EnrollmentResult(1, 0, 0)
    segment = {"name": "S", "filters": [{"name": "first_name", "predicate": "present"}]}
    number = transactions.write(store.create, home.account_id, validation.read(SegmentCreate, segment)).id
    assert enroll(home, flow, segment_id=number) == EnrollmentResult(1, 1, 0)
    end_runs(flow)
    assert enroll(home, flow, contact_ids=[anna]) == EnrollmentResult(0, 0, 1)
    assert enroll(home, flow, contact_ids=[anna], test=True) == EnrollmentResult(1, 0, 0)
    found = rows("SELECT contact_id, status, test, event_id, event_data FROM run ORDER BY id")
    assert found == [(ben, "completed", 0, None, "{}"), (anna, "completed", 0, None, "{}"),
                     (anna, "live", 1, None, "{}")]  # fmt: skip
    assert Flow.get_by_id(flow).entered_count == 2


def test_a_goal_from_before_does_not_end_who_is_let_in(home: Home) -> None:
    """What happened before somebody was let in is not what the flow has reached."""
    anna = home.contact("anna@example.org").id
    flow = live_flow(home, {"event": "checkout"}, goal="order_paid")
    happen(home, "order_paid", anna)
    home.advance(1)
    enroll(home, flow, contact_ids=[anna])
    take_in()
    assert runs(flow) == [(anna, "live", None)]
    happen(home, "order_paid", anna)
    take_in()
    assert runs(flow) == [(anna, "completed", "goal")]


def test_everybody_has_to_be_confirmed(home: Home) -> None:
    """A segment without filters is everybody."""
    home.contact("anna@example.org")
    flow = live_flow(home, {"event": "checkout"})
    number = transactions.write(store.create, home.account_id, SegmentCreate(name="all")).id
    with pytest.raises(Invalid) as refused:
        enroll(home, flow, segment_id=number)
    assert refused.value.reason == "confirmation_required"
    assert refused.value.extra["blockers"][0]["field"] == "confirm_send_to_all"
    assert enroll(home, flow, segment_id=number, confirm_send_to_all=True) == EnrollmentResult(1, 0, 0)


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {"contact_ids": ["can't be blank"]}),
        ({"contact_ids": [99]}, {"contact_ids": ["must exist"]}),
        ({"segment_id": 99}, {"segment_id": ["must exist"]}),
        ({"contact_ids": [], "segment_id": 99},
         {"base": ["must name either contacts or a segment"], "segment_id": ["must exist"]}),
    ],
)  # fmt: skip
def test_what_names_nobody_is_refused(home: Home, body: dict[str, Any], faults: dict[str, list[str]]) -> None:
    """Every fault at once."""
    flow = live_flow(home, {"event": "checkout"})
    with pytest.raises(Invalid) as refused:
        enroll(home, flow, **body)
    assert refused.value.fields == faults


def test_only_an_active_flow_takes_people_in(home: Home) -> None:
    """One that stands still refuses, or stops in the middle; one that is nobody's is not there."""
    anna = home.contact("anna@example.org").id
    flow = live_flow(home, {"event": "checkout"})
    transactions.write(run, "UPDATE flow SET status = 'paused'")
    with pytest.raises(Invalid) as refused:
        enroll(home, flow, contact_ids=[anna])
    assert refused.value.fields == {"base": ["is not active"]}
    assert transactions.write(enrollment.enroll, flow, [anna], False) is None
    with pytest.raises(NotFound):
        enroll(home, flow + 1, contact_ids=[anna])
