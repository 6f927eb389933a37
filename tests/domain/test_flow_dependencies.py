"""Lists, segments and domains that a flow uses cannot be deleted."""

from typing import Any

import pytest

from appliance.accounts.audit import Actor
from appliance.audience import lists
from appliance.audience.segments import store
from appliance.audience.segments.store import SegmentCreate
from appliance.core import validation
from appliance.core.errors import Invalid
from appliance.flows import versions
from appliance.sending.domains import keys
from appliance.sending.domains import store as domains
from appliance.sending.domains.store import DomainCreate, DomainName
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import ContactList
from tests.domain.flows_home import live_flow, process_events, record_event
from tests.domain.home import Home


@pytest.fixture
def list_id(home: Home) -> int:
    """Return the id of a list."""
    return int(home.list_of(name="news").id)


@pytest.fixture
def segment_id(home: Home) -> int:
    """Return the id of a segment."""
    body = {"name": "V", "filters": [{"name": "contact_tag", "predicate": "eq", "value": "vip"}]}
    return int(transactions.write(store.create, home.account_id, validation.read(SegmentCreate, body)).id)


def deletion_users(delete: Any, home: Home, object_id: int) -> list[dict[str, Any]]:
    """Return the flows named by a rejected deletion."""
    with pytest.raises(Invalid) as error_info:
        transactions.write(delete, home.account_id, object_id)
    assert error_info.value.reason == "in_use"
    used: list[dict[str, Any]] = error_info.value.extra["used_by"]
    return used


def add_split_version(home: Home, flow_id: int, version: int, name: str, object_id: int) -> None:
    """Publish a version of a flow that branches on a list or segment."""
    steps = [
        {"id": 1, "type": "wait", "duration": 60},
        {"id": 2, "type": "split", "filters": [{"name": name, "predicate": "in", "value": [object_id]}],
         "yes": [], "no": []},
    ]  # fmt: skip
    transactions.write(lambda: versions.write_plan(flow_id, version, versions.compile_steps(steps), {}))
    transactions.write(run, "UPDATE flow SET version = ? WHERE id = ?", (version, flow_id))


def test_lists_and_segments_of_triggers_cannot_be_deleted(home: Home, list_id: int, segment_id: int) -> None:
    """Deleting a list or segment in a trigger or its conditions is rejected, also while the flow is paused."""
    first = live_flow(home, {"event": "list_add", "contact_list_id": list_id}, name="A")
    where = [{"name": "contact_list", "predicate": "eq", "value": list_id}]
    second = live_flow(home, {"event": "checkout", "segment_id": segment_id, "data": {"where": where}}, name="B")
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (second,))
    assert deletion_users(lists.delete, home, list_id) == [
        {"flow_id": first, "name": "A"},
        {"flow_id": second, "name": "B"},
    ]
    assert deletion_users(store.delete, home, segment_id) == [{"flow_id": second, "name": "B"}]


def test_lists_and_segments_of_steps_cannot_be_deleted(home: Home, list_id: int, segment_id: int) -> None:
    """Deleting one in a branch of the live version, or of an older one with live runs, is rejected."""
    anna_id = home.contact("anna@example.org").id
    flow = live_flow(home, {"event": "checkout"})
    add_split_version(home, flow, 2, "contact_segment", segment_id)
    record_event(home, "checkout", anna_id)
    process_events()
    add_split_version(home, flow, 3, "contact_list", list_id)
    assert deletion_users(lists.delete, home, list_id) == [{"flow_id": flow, "name": "Hello"}]
    assert deletion_users(store.delete, home, segment_id) == [{"flow_id": flow, "name": "Hello"}]
    transactions.write(run, "UPDATE run SET status = 'completed'")
    transactions.write(store.delete, home.account_id, segment_id)
    deletion_users(lists.delete, home, list_id)


def test_deleting_a_list_or_segment_resets_draft_triggers(home: Home, list_id: int, segment_id: int) -> None:
    """A draft whose list or segment is deleted gets a manual trigger."""
    flows = [
        live_flow(home, {"event": "list_add", "contact_list_id": list_id}),
        live_flow(home, {"event": "checkout", "segment_id": segment_id}),
    ]
    transactions.write(run, "UPDATE flow SET status = 'draft'")
    transactions.write(lists.delete, home.account_id, list_id)
    transactions.write(store.delete, home.account_id, segment_id)
    assert not ContactList.select().exists()
    triggers = rows("SELECT flow_id, event, contact_list_id, segment_id FROM trigger ORDER BY flow_id")
    assert triggers == [(flow, "manual", None, None) for flow in flows]


def test_a_sending_domain_of_a_live_step_cannot_be_deleted(home: Home) -> None:
    """The domain can be deleted once the flow is archived; other domains at any time."""
    actor, pairs = Actor("key:1"), keys.generate_keys(("ed25519",))
    ours, other = (
        transactions.write(domains.create, home.account_id, DomainCreate(DomainName(name)), pairs, actor)
        for name in ("shop.example", "other.example")
    )
    flow = live_flow(home, {"event": "checkout"})
    pinned = {"sender": {"email": "hello@shop.example", "reply_to": None}}
    steps = [{"id": 2, "type": "email"}]
    transactions.write(lambda: versions.write_plan(flow, 2, versions.compile_steps(steps), {2: {"pinned": pinned}}))
    transactions.write(run, "UPDATE flow SET version = 2")
    with pytest.raises(Invalid) as error_info:
        transactions.write(domains.delete, home.account_id, ours.id, actor)
    assert error_info.value.extra["used_by"] == [{"flow_id": flow, "name": "Hello"}]
    transactions.write(domains.delete, home.account_id, other.id, actor)
    transactions.write(run, "UPDATE flow SET status = 'archived'")
    transactions.write(domains.delete, home.account_id, ours.id, actor)
