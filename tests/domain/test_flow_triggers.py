"""Parsing of triggers, and what a trigger needs to go live."""

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


def parse(home: Home, raw: Any, previous: TriggerSpec | None = None) -> tuple[TriggerSpec, dict[str, list[str]]]:
    """Parse a trigger and return it with its errors."""
    errors = Faults()
    return triggers.parse_trigger(home.account_id, raw, errors, before=previous), errors.fields


@pytest.mark.parametrize(
    ("raw", "errors"),
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
def test_all_trigger_errors_are_reported_at_their_paths(home: Home, raw: Any, errors: dict[str, list[str]]) -> None:
    """All errors of a trigger are reported at once."""
    assert parse(home, raw)[1] == errors


def test_a_trigger_update_keeps_absent_fields(home: Home) -> None:
    """Absent fields stay, null clears, `data` is replaced; a segment alone means `segment_enter`."""
    list_id = home.list_of(name="news").id
    first, errors = parse(home, {"event": "list_add", "contact_list_id": list_id, "data": {"ours": 1}})
    assert (first, errors) == (TriggerSpec("list_add", None, list_id, {"ours": 1}), {})
    second, errors = parse(home, {"data": {"frequency": "every_time"}, "contact_list_id": None}, first)
    assert (second, errors) == (TriggerSpec("list_add", None, None, {"frequency": "every_time"}), {})
    assert parse(home, {"event": None}, second)[0].event == "manual"
    assert parse(home, {})[0] == TriggerSpec()
    segment_id = transactions.write(segments.create, home.account_id, SegmentCreate(name="all")).id
    assert parse(home, {"segment_id": segment_id}, TriggerSpec())[0] == TriggerSpec("segment_enter", segment_id)
    assert parse(home, {"segment_id": segment_id}, TriggerSpec("checkout"))[0] == TriggerSpec("checkout", segment_id)
    assert parse(home, {"segment_id": segment_id, "event": "manual"})[0] == TriggerSpec("manual", segment_id)


def test_a_mirror_list_cannot_be_a_list_add_trigger(home: Home) -> None:
    """`list_add` needs a static list; other events may name a mirror."""
    segment_id = transactions.write(segments.create, home.account_id, SegmentCreate(name="all")).id
    mirror_id = transactions.write(lists.create, home.account_id, ListCreate(name="view", segment_id=segment_id)).id
    list_id = home.list_of(name="news").id
    assert triggers.list_missing(TriggerSpec("list_add", None, mirror_id)) == [
        ("contact_list_id", "is a view of a segment")
    ]
    assert (
        triggers.list_missing(TriggerSpec("list_add", None, list_id))
        == triggers.list_missing(TriggerSpec("checkout", None, mirror_id))
        == []
    )


def test_list_missing_of_a_trigger(home: Home) -> None:
    """A trigger lacks an event, segment, or date path, or has reserved keywords."""
    assert triggers.list_missing(TriggerSpec()) == [("event", "names no event that starts the flow: `manual` is none")]
    assert [key for key, _ in triggers.list_missing(TriggerSpec("segment_exit"))] == ["segment_id"]
    assert [key for key, _ in triggers.list_missing(TriggerSpec("date_reached"))] == ["data.path"]
    assert triggers.list_missing(TriggerSpec("date_reached", data={"path": "birthday"})) == []
    # Opt-out and help keywords are handled before flows, so they are reserved in keyword triggers
    keywords = ["Stop!", "win", "HELP", "alto", "yes", "stop texting me"]
    missing = triggers.list_missing(TriggerSpec("keyword", data={"keywords": keywords}))
    assert missing == [(f"data.keywords[{index}]", "is reserved") for index in (0, 2, 3, 5)]
    assert (
        triggers.list_missing(TriggerSpec("chat_line", data={"keywords": keywords}))
        == triggers.list_missing(TriggerSpec("keyword"))
        == []
    )


def test_default_frequency_of_a_trigger() -> None:
    """`list_add` and `segment_enter` start once by default, other events every time."""
    frequencies = {
        event: triggers.get_frequency(TriggerSpec(event)) for event in ("list_add", "segment_enter", "order_paid")
    }
    assert frequencies == {"list_add": "once", "segment_enter": "once", "order_paid": "every_time"}
    assert triggers.get_frequency(TriggerSpec("list_add", data={"frequency": {"min_gap_seconds": 60}})) == 60
