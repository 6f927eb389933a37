"""A rehearsal with everybody who met the trigger: what it counts is what the flow would do with each of them."""

import threading

import pytest

from appliance.core.errors import Invalid, RateLimitExceeded
from appliance.flows import simulation_bulk
from tests.domain import flows_home
from tests.domain.flows_rehearsed import DAY, clicked, rehearsed, ways, with_all, written
from tests.domain.home import Home
from tests.domain.test_shadow import dumped

MAIL = {"subject": "Hello", "body": "<p>Hi</p>"}


def test_its_counts_are_those_of_each_person_alone(home: Home) -> None:
    """Everybody who met the trigger is counted once, at each step as their own rehearsal goes; nothing is left."""
    people = [home.contact(f"p{n}@example.org", data={"plan": "pro" if n % 3 == 0 else "free"}) for n in range(12)]
    home.leave("p0@example.org")
    where = {"where": [{"name": "event.total", "predicate": "gt", "value": 3}]}
    for n, one in enumerate(people):
        flows_home.happen(home, "cart_add", one.id, {"total": n})
        flows_home.happen(home, "cart_add", one.id, {"total": n, "again": True})
    pro = {"name": "contact_data.plan", "predicate": "eq", "value": "pro"}
    flow = written(
        home, [MAIL, {"duration": DAY}, {"filters": [pro], "yes": [{"type": "exit"}], "no": [{"event_name": "seen"}]}],
        {"event": "cart_add", "data": where},
    )  # fmt: skip
    before = dumped(home.directory)
    found = with_all(home, flow)
    assert dumped(home.directory) == before
    assert (found.met, found.rehearsed, found.sampled) == (8, 8, False)
    alone = [
        ways(rehearsed(home, flow, contact_id=one.id, event={"total": n})) for n, one in enumerate(people) if n > 3
    ]
    split = next(one for one in found.steps if one.type == "split")
    assert (split.entered, split.yes, split.no) == (
        8, sum((3, "yes") in way for way in alone), sum((3, "no") in way for way in alone)
    ) == (8, 2, 6)  # fmt: skip
    assert [(one.path, one.entered, one.sent) for one in found.steps][:2] == [("steps[0]", 8, 8), ("steps[1]", 8, 0)]
    assert (found.completed, found.exited, found.live, found.reasons) == (6, 2, 0, {"exit_step": 2})
    assert "8 people met it" in found.text and "Yes 2 (25%)" in found.text


def test_a_share_of_them_can_be_assumed_to_do_something(home: Home) -> None:
    """What is assumed of a share happens to about as many, always the same ones, and to the goal's end."""
    people = [home.contact(f"p{n}@example.org") for n in range(40)]
    for one in people:
        flows_home.happen(home, "cart_add", one.id)
    flow = written(home, [MAIL, {"duration": DAY}, {"filters": [clicked()], "yes": [], "no": [{"type": "exit"}]}],
                   goal="order_paid")  # fmt: skip
    click = {"event": "email_clicked", "after": 60, "share": 0.5}
    found = with_all(home, flow, events=[click])
    split = next(one for one in found.steps if one.type == "split")
    assert 8 <= split.yes <= 32 and split.yes + split.no == 40
    assert with_all(home, flow, events=[click]).steps == found.steps
    paid = with_all(home, flow, events=[{"event": "order_paid", "after": 60}])
    assert paid.completed == 40 and paid.reasons == {"goal": 40}


def test_who_gets_nothing_is_counted_with_the_reason(home: Home) -> None:
    """Opted out people go on without the message, and the reasons say so."""
    for n in range(4):
        flows_home.happen(home, "cart_add", home.contact(f"p{n}@example.org").id)
    home.leave("p0@example.org")
    home.suppress("p1@example.org", "hard_bounce")
    (mail,) = with_all(home, written(home, [MAIL])).steps
    assert (mail.entered, mail.skipped, mail.sent) == (4, 2, 2)
    assert mail.reasons == {"unsubscribed": 1, "suppressed_hard_bounce": 1}


def test_many_are_drawn_and_that_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound some are drawn, evenly over all of them."""
    monkeypatch.setattr(simulation_bulk, "MAX_CONTACTS", 10)
    for n in range(30):
        flows_home.happen(home, "cart_add", home.contact(f"p{n}@example.org").id)
    found = with_all(home, written(home, [{"duration": 60}]))
    assert (found.met, found.rehearsed, found.sampled, found.completed) == (30, 10, True, 10)
    assert "10 of the 30" in found.notes[-1]


def test_nobody_met_it_and_nobody_waits_for_another(home: Home) -> None:
    """A trigger that nobody met is said to be that; while one such rehearsal runs, the next is refused."""
    flow = written(home, [{"duration": 60}])
    assert with_all(home, flow).notes == ["Nobody met the trigger in that time."]
    assert with_all(home, written(home, [{"duration": 60}], {"event": "manual"})).met == 0
    with simulation_bulk._bulk_lock, pytest.raises(RateLimitExceeded):
        with_all(home, flow)
    refused: list[str] = []
    thread = threading.Thread(target=lambda: refused.extend(with_all(home, flow).notes))
    thread.start()
    thread.join()
    assert refused == ["Nobody met the trigger in that time."]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"days": 0}, "days"), ({"events": [{"event": "order_paid", "share": 2}]}, "events[0].share"),
        ({"events": [{"event": "order_paid"}] * 11}, "events"), ({"start_at": "2000-01-01T00:00:00Z"}, "start_at"),
        ({"events": [{"event": "email_opened", "step": 7}]}, "events[0].step"),
    ],
)  # fmt: skip
def test_faults_are_told_at_their_path(home: Home, body: dict[str, object], field: str) -> None:
    """What cannot be is refused."""
    with pytest.raises(Invalid) as refused:
        with_all(home, written(home, [{"duration": 60}]), **body)
    assert list(refused.value.fields) == [field]
