"""What a live flow needs cannot be deleted from under it, and a draft never becomes one for everybody."""

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
from tests.domain.flows_home import happen, live_flow, take_in
from tests.domain.home import Home


@pytest.fixture
def news(home: Home) -> int:
    """A list."""
    return int(home.list_of(name="news").id)


@pytest.fixture
def vips(home: Home) -> int:
    """A segment."""
    body = {"name": "V", "filters": [{"name": "contact_tag", "predicate": "eq", "value": "vip"}]}
    return int(transactions.write(store.create, home.account_id, validation.read(SegmentCreate, body)).id)


def refused(verb: Any, home: Home, number: int) -> list[dict[str, Any]]:
    """Return what keeps a thing from being deleted."""
    with pytest.raises(Invalid) as found:
        transactions.write(verb, home.account_id, number)
    assert found.value.reason == "in_use"
    used: list[dict[str, Any]] = found.value.extra["used_by"]
    return used


def split(home: Home, flow_id: int, version: int, name: str, number: int) -> None:
    """Give a version of a flow a branch on a list or segment."""
    steps = [
        {"id": 1, "type": "wait", "duration": 60},
        {"id": 2, "type": "split", "filters": [{"name": name, "predicate": "in", "value": [number]}],
         "yes": [], "no": []},
    ]  # fmt: skip
    transactions.write(lambda: versions.write_plan(flow_id, version, versions.compile_steps(steps), {}))
    transactions.write(run, "UPDATE flow SET version = ? WHERE id = ?", (version, flow_id))


def test_what_starts_a_flow_stays(home: Home, news: int, vips: int) -> None:
    """By the trigger, or by its conditions; while the flow stands still too."""
    first = live_flow(home, {"event": "list_add", "contact_list_id": news}, name="A")
    where = [{"name": "contact_list", "predicate": "eq", "value": news}]
    second = live_flow(home, {"event": "checkout", "segment_id": vips, "data": {"where": where}}, name="B")
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (second,))
    assert refused(lists.delete, home, news) == [{"flow_id": first, "name": "A"}, {"flow_id": second, "name": "B"}]
    assert refused(store.delete, home, vips) == [{"flow_id": second, "name": "B"}]


def test_what_a_step_needs_stays_while_somebody_may_come_to_it(home: Home, news: int, vips: int) -> None:
    """A branch of the version that is live, or of an older one that somebody is in."""
    anna = home.contact("anna@example.org").id
    flow = live_flow(home, {"event": "checkout"})
    split(home, flow, 2, "contact_segment", vips)
    happen(home, "checkout", anna)
    take_in()
    split(home, flow, 3, "contact_list", news)
    assert refused(lists.delete, home, news) == [{"flow_id": flow, "name": "Hello"}]
    assert refused(store.delete, home, vips) == [{"flow_id": flow, "name": "Hello"}]
    transactions.write(run, "UPDATE run SET status = 'completed'")
    transactions.write(store.delete, home.account_id, vips)
    refused(lists.delete, home, news)


def test_a_draft_of_a_deleted_group_is_for_nobody(home: Home, news: int, vips: int) -> None:
    """What nobody may enter now can go; the flow has to be told anew what starts it."""
    flows = [
        live_flow(home, {"event": "list_add", "contact_list_id": news}),
        live_flow(home, {"event": "checkout", "segment_id": vips}),
    ]
    transactions.write(run, "UPDATE flow SET status = 'draft'")
    transactions.write(lists.delete, home.account_id, news)
    transactions.write(store.delete, home.account_id, vips)
    assert not ContactList.select().exists()
    found = rows("SELECT flow_id, event, contact_list_id, segment_id FROM trigger ORDER BY flow_id")
    assert found == [(flow, "manual", None, None) for flow in flows]


def test_the_domain_that_a_step_writes_from_stays(home: Home) -> None:
    """As long as somebody may come to a message that is from one of its addresses."""
    by, pairs = Actor("key:1"), keys.generate_keys(("ed25519",))
    ours, other = (
        transactions.write(domains.create, home.account_id, DomainCreate(DomainName(name)), pairs, by)
        for name in ("shop.example", "other.example")
    )
    flow = live_flow(home, {"event": "checkout"})
    pinned = {"sender": {"email": "hello@shop.example", "reply_to": None}}
    steps = [{"id": 2, "type": "email"}]
    transactions.write(lambda: versions.write_plan(flow, 2, versions.compile_steps(steps), {2: {"pinned": pinned}}))
    transactions.write(run, "UPDATE flow SET version = 2")
    with pytest.raises(Invalid) as found:
        transactions.write(domains.delete, home.account_id, ours.id, by)
    assert found.value.extra["used_by"] == [{"flow_id": flow, "name": "Hello"}]
    transactions.write(domains.delete, home.account_id, other.id, by)
    transactions.write(run, "UPDATE flow SET status = 'archived'")
    transactions.write(domains.delete, home.account_id, ours.id, by)
