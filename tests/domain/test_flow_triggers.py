"""What starts a flow: read with every fault at its path, stored as it was meant."""

from typing import Any

import pytest

from appliance.audience import lists
from appliance.audience.lists import ListCreate
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.core.errors import Faults
from appliance.flows import triggers
from appliance.flows.triggers import TriggerSpec
from appliance.storage import transactions
from tests.domain.home import Home


def read(home: Home, raw: Any, before: TriggerSpec | None = None) -> tuple[TriggerSpec, dict[str, list[str]]]:
    """Read a trigger, and answer it with its faults."""
    faults = Faults()
    return triggers.parse_trigger(home.account_id, raw, faults, before=before), faults.fields


@pytest.mark.parametrize(
    ("raw", "faults"),
    [
        ("x", {"trigger": ["is invalid"]}),
        ({"evnt": "x"}, {"trigger.evnt": ["is not a known field"]}),
        ({"event": "Order Paid"}, {"trigger.event": ["is invalid"]}),
        ({"segment_id": 99}, {"trigger.segment_id": ["must exist"]}),
        ({"contact_list_id": True}, {"trigger.contact_list_id": ["is not a number"]}),
        ({"data": []}, {"trigger.data": ["is invalid"]}),
        ({"data": {"frequency": "often"}}, {"trigger.data.frequency": ["is not included in the list"]}),
        (
            {"data": {"frequency": {"min_gap_seconds": 0, "x": 1}}},
            {
                "trigger.data.frequency.x": ["is not a known field"],
                "trigger.data.frequency.min_gap_seconds": ["must be greater than or equal to 1"],
            },
        ),
        (
            {"data": {"where": [{"name": "event.total", "predicate": "gt", "value": True}]}},
            {"trigger.data.where[0].value": ["is invalid"]},
        ),
        ({"data": {"where": {}}}, {"trigger.data.where": ["is invalid"]}),
        (
            {"data": {"keywords": ["", 3]}},
            {"trigger.data.keywords[0]": ["can't be blank"], "trigger.data.keywords[1]": ["is invalid"]},
        ),
        (
            {"data": {"at": "24:00", "path": 'a"b', "yearly": 1, "offset_days": 1.5, "tag": " "}},
            {
                "trigger.data.at": ["is invalid"],
                "trigger.data.path": ["is invalid"],
                "trigger.data.yearly": ["is invalid"],
                "trigger.data.offset_days": ["is not a number"],
                "trigger.data.tag": ["can't be blank"],
            },
        ),
    ],
)
def test_every_fault_stands_at_its_path(home: Home, raw: Any, faults: dict[str, list[str]]) -> None:
    """All faults of a trigger are told at once, in the stable words."""
    assert read(home, raw)[1] == faults


def test_absent_keeps_and_null_clears(home: Home) -> None:
    """A segment alone means entering it; what is not sent stays; `data` is replaced whole and keeps foreign keys."""
    news = home.list_of(name="news").id
    first, faults = read(home, {"event": "list_add", "contact_list_id": news, "data": {"ours": 1}})
    assert (first, faults) == (TriggerSpec("list_add", None, news, {"ours": 1}), {})
    second, faults = read(home, {"data": {"frequency": "every_time"}, "contact_list_id": None}, first)
    assert (second, faults) == (TriggerSpec("list_add", None, None, {"frequency": "every_time"}), {})
    assert read(home, {"event": None}, second)[0].event == "manual"
    assert read(home, {})[0] == TriggerSpec()
    group = transactions.write(segments.create, home.account_id, SegmentCreate(name="all")).id
    assert read(home, {"segment_id": group}, TriggerSpec())[0] == TriggerSpec("segment_enter", group)
    assert read(home, {"segment_id": group}, TriggerSpec("checkout"))[0] == TriggerSpec("checkout", group)
    assert read(home, {"segment_id": group, "event": "manual"})[0] == TriggerSpec("manual", group)


def test_nobody_joins_the_view_of_a_segment(home: Home) -> None:
    """A list whose people follow from a segment is no list to wait for; entering the segment is."""
    group = transactions.write(segments.create, home.account_id, SegmentCreate(name="all")).id
    view = transactions.write(lists.create, home.account_id, ListCreate(name="view", segment_id=group)).id
    own = home.list_of(name="news").id
    assert triggers.list_missing(TriggerSpec("list_add", None, view)) == [("contact_list_id", "is a view of a segment")]
    assert (
        triggers.list_missing(TriggerSpec("list_add", None, own))
        == triggers.list_missing(TriggerSpec("checkout", None, view))
        == []
    )


def test_what_lacks_keeps_it_from_going_live(home: Home) -> None:
    """A draft may be unfinished; without an event, a segment or a date it cannot start anybody."""
    assert triggers.list_missing(TriggerSpec()) == [("event", "names no event that starts it: `manual` is none")]
    assert [key for key, _ in triggers.list_missing(TriggerSpec("segment_exit"))] == ["segment_id"]
    assert [key for key, _ in triggers.list_missing(TriggerSpec("date_reached"))] == ["data.path"]
    assert triggers.list_missing(TriggerSpec("date_reached", data={"path": "birthday"})) == []
    # Words that are acted on before any flow hears them, and what says so elsewhere
    words = ["Stop!", "win", "HELP", "alto", "yes", "stop texting me"]
    found = triggers.list_missing(TriggerSpec("keyword", data={"keywords": words}))
    assert found == [(f"data.keywords[{index}]", "is reserved") for index in (0, 2, 3, 5)]
    assert (
        triggers.list_missing(TriggerSpec("chat_line", data={"keywords": words}))
        == triggers.list_missing(TriggerSpec("keyword"))
        == []
    )


def test_what_cannot_mean_anything_new_starts_once() -> None:
    """People are added, join and enter a segment once by default, and everything else counts each time."""
    said = {event: triggers.get_frequency(TriggerSpec(event)) for event in ("list_add", "segment_enter", "order_paid")}
    assert said == {"list_add": "once", "segment_enter": "once", "order_paid": "every_time"}
    assert triggers.get_frequency(TriggerSpec("list_add", data={"frequency": {"min_gap_seconds": 60}})) == 60
