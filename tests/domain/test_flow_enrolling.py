"""Enrollment of contacts into a flow by hand."""

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
from tests.domain.flows_home import end_runs, live_flow, process_events, record_event, runs
from tests.domain.home import Home


def enroll(home: Home, flow_id: int, *, test: bool = False, **body: Any) -> EnrollmentResult | None:
    """Enroll contacts as the API does for few of them."""
    chosen = enrollment.resolve_contacts(home.account_id, flow_id, validation.read(EnrollWrite, body))
    return transactions.write(enrollment.enroll, flow_id, chosen, test)


def test_enrolling_contacts_and_segments(home: Home) -> None:
    """Contacts enroll once, for any trigger; those inside or already through are counted as skipped."""
    anna_id, ben_id = (home.contact(f"{name}@example.org", first_name=name).id for name in ("anna", "ben"))
    list_id = home.list_of(name="news").id
    flow = live_flow(home, {"event": "list_add", "contact_list_id": list_id})
    assert enroll(home, flow, contact_ids=[ben_id, ben_id]) == EnrollmentResult(1, 0, 0)
    segment = {"name": "S", "filters": [{"name": "first_name", "predicate": "present"}]}
    number = transactions.write(store.create, home.account_id, validation.read(SegmentCreate, segment)).id
    assert enroll(home, flow, segment_id=number) == EnrollmentResult(1, 1, 0)
    end_runs(flow)
    assert enroll(home, flow, contact_ids=[anna_id]) == EnrollmentResult(0, 0, 1)
    assert enroll(home, flow, contact_ids=[anna_id], test=True) == EnrollmentResult(1, 0, 0)
    runs_found = rows("SELECT contact_id, status, test, event_id, event_data FROM run ORDER BY id")
    assert runs_found == [(ben_id, "completed", 0, None, "{}"), (anna_id, "completed", 0, None, "{}"),
                     (anna_id, "live", 1, None, "{}")]  # fmt: skip
    assert Flow.get_by_id(flow).entered_count == 2


def test_a_goal_before_enrollment_does_not_end_the_run(home: Home) -> None:
    """Only a goal event after the enrollment completes the run."""
    anna = home.contact("anna@example.org").id
    flow = live_flow(home, {"event": "checkout"}, goal="order_paid")
    record_event(home, "order_paid", anna)
    home.advance(1)
    enroll(home, flow, contact_ids=[anna])
    process_events()
    assert runs(flow) == [(anna, "live", None)]
    record_event(home, "order_paid", anna)
    process_events()
    assert runs(flow) == [(anna, "completed", "goal")]


def test_enrolling_all_contacts_needs_confirmation(home: Home) -> None:
    """A segment without filters needs `confirm_send_to_all`."""
    home.contact("anna@example.org")
    flow = live_flow(home, {"event": "checkout"})
    number = transactions.write(store.create, home.account_id, SegmentCreate(name="all")).id
    with pytest.raises(Invalid) as error_info:
        enroll(home, flow, segment_id=number)
    assert error_info.value.reason == "confirmation_required"
    assert error_info.value.extra["blockers"][0]["field"] == "confirm_send_to_all"
    assert enroll(home, flow, segment_id=number, confirm_send_to_all=True) == EnrollmentResult(1, 0, 0)


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({}, {"contact_ids": ["can't be blank"]}),
        ({"contact_ids": [99]}, {"contact_ids": ["must exist"]}),
        ({"segment_id": 99}, {"segment_id": ["must exist"]}),
        ({"contact_ids": [], "segment_id": 99},
         {"base": ["must name either contacts or a segment"], "segment_id": ["must exist"]}),
    ],
)  # fmt: skip
def test_invalid_enrollments_are_rejected(home: Home, body: dict[str, Any], errors: dict[str, list[str]]) -> None:
    """All errors are reported at once, at their fields."""
    flow = live_flow(home, {"event": "checkout"})
    with pytest.raises(Invalid) as error_info:
        enroll(home, flow, **body)
    assert error_info.value.fields == errors


def test_enrollment_needs_an_active_flow(home: Home) -> None:
    """Enrolling into a paused flow is rejected, also within the transaction; an unknown flow is not found."""
    anna = home.contact("anna@example.org").id
    flow = live_flow(home, {"event": "checkout"})
    transactions.write(run, "UPDATE flow SET status = 'paused'")
    with pytest.raises(Invalid) as error_info:
        enroll(home, flow, contact_ids=[anna])
    assert error_info.value.fields == {"base": ["is not active"]}
    assert transactions.write(enrollment.enroll, flow, [anna], False) is None
    with pytest.raises(NotFound):
        enroll(home, flow + 1, contact_ids=[anna])
