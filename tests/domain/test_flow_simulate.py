"""A rehearsal does what the flow does, says why, and leaves nothing behind."""

from functools import partial

import pytest

from appliance.accounts.audit import Actor
from appliance.audience import lists
from appliance.audience.contacts import removal
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.core import clock, signals, validation
from appliance.core.errors import Invalid, NotFound
from appliance.flows import enrollment, simulation, simulation_bulk, store
from appliance.flows.store import FlowCreate
from appliance.sending.messages.ledger import Outcome
from appliance.storage import disk_guard, transactions
from appliance.storage.database import rows, run, scalar
from tests.domain import flows_home
from tests.domain.flows_rehearsed import DAY, changed, clicked, rehearsed, told, ways, written
from tests.domain.home import Home, turn
from tests.domain.test_shadow import dumped

MAIL = {"subject": "Welcome {{ contact.first_name }}", "body": '<p>Hi, <a href="https://example.com/a">look</a></p>'}
LATER = {"subject": "Still there?", "body": "<p>Hm</p>"}


def test_days_pass_and_every_step_is_told_with_its_moment(home: Home) -> None:
    """A message leaves rendered for the person, a wait ends on its day, and the end is told."""
    ann = home.contact("ann@example.org", first_name="Ann")
    flow = written(home, [MAIL, {"duration": 3 * DAY}, LATER])
    found = rehearsed(home, flow, contact_id=ann.id)
    assert ways(found) == [(1, "on"), (2, "waits"), (3, "on")]
    mail = told(found, 1).message
    assert mail is not None and (mail.status, mail.to, mail.subject) == ("sent", "ann@example.org", "Welcome Ann")
    assert "Hi" in (mail.html or "") and "unsubscribe" in (mail.text or "").lower()
    assert told(found, 2).until == told(found, 3).at == "2031-03-06T09:00:00.000Z"
    assert (found.end.status, found.end.at) == ("completed", "2031-03-06T09:00:00.000Z")
    assert "Thu 6 Mar 2031" in found.text and "“Welcome Ann” goes to ann@example.org" in found.text


def test_a_branch_says_which_filter_decided_and_what_it_found(home: Home) -> None:
    """Each filter tells whether it holds and the person's own value; those that made the answer are marked."""
    ann = home.contact("ann@example.org", data={"plan": "free", "tags": ["vip"]})
    group = {"name": "group", "predicate": "any", "value": [
        {"name": "contact_tag", "predicate": "eq", "value": "vip"},
        {"name": "event.total", "predicate": "gt", "value": 10}]}  # fmt: skip
    plan = {"name": "contact_data.plan", "predicate": "eq", "value": "pro"}
    flow = written(home, [{"filters": [plan, group], "yes": [{"type": "exit"}], "no": [{"duration": 60}]}])
    no = told(rehearsed(home, flow, contact_id=ann.id, event={"total": 3}), 1)
    assert no.outcome == "no" and no.says == (
        "Branch: No, because this is not somebody whose plan is “pro” (found: “free”)"
    )
    assert [(one.holds, one.decided, one.actual) for one in no.filters] == [(False, True, "free"), (True, False, None)]
    assert [(one.holds, one.found) for one in no.filters[1].rows] == [(True, "“vip”"), (False, "3")]
    pro = {"event": "contact_update", "at": "2031-03-03T09:00:00Z", "data": {"data": {"plan": "pro", "tags": ["vip"]}}}
    waits = changed(home, flow, steps=[{"duration": 60}, {"filters": [plan, group], "yes": [{"type": "exit"}]}])
    found = rehearsed(home, waits, contact_id=ann.id, events=[pro])
    yes = next(one for one in found.timeline if one.type == "split")
    assert yes.outcome == "yes" and [one.decided for one in yes.filters] == [True, True]
    assert [one.decided for one in yes.filters[1].rows] == [True, False]
    assert (found.end.status, found.end.reason) == ("exited", "exit_step")


def test_an_assumed_click_decides_a_branch(home: Home) -> None:
    """What is assumed of a message counts from when that message leaves, and filters see it as they will."""
    flow = written(home, [
        {"duration": DAY}, MAIL, {"duration": 2 * DAY},
        {"filters": [clicked()], "yes": [LATER], "no": [{"duration": 60}]},
    ])  # fmt: skip
    click = {"event": "email_clicked", "step": 2, "after": 3600, "data": {"url": "https://example.com/a"}}
    found = rehearsed(home, flow, events=[click])
    said = next(one for one in found.timeline if one.told == "assumed")
    assert said.at == "2031-03-04T10:00:00.000Z" and "click in “Welcome Alex” on https://example.com/a" in said.says
    branch = told(found, 4)
    assert branch.outcome == "yes" and branch.filters[0].actual == {"count": 1, "last_at": said.at}
    assert branch.filters[0].found == "once, last Tue 4 Mar 2031, 10:00"
    never = told(rehearsed(home, flow), 4)
    assert never.outcome == "no" and never.filters[0].found == "never" and never.asks == ["email_clicked"]


def test_a_goal_ends_it_and_what_comes_later_is_said(home: Home) -> None:
    """An assumed event that is the goal ends the run; what is assumed after the end is named as that."""
    flow = written(home, [{"duration": 10 * DAY}, LATER], goal="order_paid")
    script = [{"event": "order_paid", "after": DAY, "data": {"total": 3}}, {"event": "product_view", "after": 2 * DAY}]
    found = rehearsed(home, flow, events=script)
    assert (found.end.status, found.end.reason, found.end.at) == ("completed", "goal", "2031-03-04T09:00:00.000Z")
    assert [one.told for one in found.timeline] == ["enter", "step", "assumed", "goal"]
    assert found.notes == ["product_view would come after the end, Wed 5 Mar 2031, 09:00"]


def test_who_opts_out_on_the_way_gets_no_more_and_goes_on(home: Home) -> None:
    """Steps behind an opt-out are skipped with the reason, others are done; so too after a bounce."""
    flow = written(home, [MAIL, {"duration": DAY}, LATER, {"type": "contact_update", "data_merge": {"seen": True}}])
    for event, reason in (("opt_out", "unsubscribed"), ("email_bounced", "suppressed_hard_bounce")):
        found = rehearsed(home, flow, events=[{"event": event, "after": 60}])
        assert told(found, 3).outcome == "skipped" and told(found, 3).reason == reason, found.text
        assert told(found, 4).outcome == "on" and found.end.status == "completed"


def test_drafts_and_steps_that_nobody_saved_are_rehearsed(home: Home) -> None:
    """A draft says what it lacks and is rehearsed all the same; steps of the request stand in for those stored."""
    flow = written(home, [{"subject": "Only a subject"}, {"duration": 60}])
    found = rehearsed(home, flow)
    assert found.version is None and any("could not go live" in note for note in found.notes)
    other = rehearsed(home, flow, steps=[{"subject": "New", "body": "<p>Words</p>"}, {"type": "exit"}])
    assert [(one.path, one.type) for one in other.timeline[1:]] == [("steps[0]", "email"), ("steps[1]", "exit")]
    assert other.timeline[1].message is not None and other.timeline[1].message.subject == "New"
    with pytest.raises(Invalid) as refused:
        rehearsed(home, flow, steps=[{"duration": 60}, {"filters": [{"name": "what", "predicate": "eq"}]}])
    assert "steps[1].filters[0].name" in refused.value.fields


def test_a_live_flow_is_rehearsed_as_it_is_live(home: Home) -> None:
    """Its version is that which new runs take."""
    home.configure(email__allow_unverified_domains=True)
    flow = written(home, [MAIL, {"duration": 60}], status="active")
    found = rehearsed(home, flow)
    assert found.version == flow.version == 1 and ways(found) == [(1, "on"), (2, "waits")]
    assert found.notes == []


def test_the_trigger_is_held_against_the_event_and_the_person(home: Home) -> None:
    """Who would not have been let in is told, with the reason, and taken along all the same."""
    ann = home.contact("ann@example.org")
    where = {"where": [{"name": "event.total", "predicate": "gt", "value": 10}], "frequency": "once"}
    flow = written(home, [{"duration": 60}], {"event": "cart_add", "data": where})
    found = rehearsed(home, flow, contact_id=ann.id, event={"total": 3})
    assert "cart_add would not let them in" in found.notes[0] and "whose total is over 10 (found: 3)" in found.notes[0]
    assert found.timeline[0].filters[0].holds is False and found.end.status == "completed"
    assert rehearsed(home, flow, contact_id=ann.id, event={"total": 30}).notes == []
    changed(home, flow, status="active")
    flows_home.happen(home, "cart_add", ann.id, {"total": 30})
    flows_home.take_in()
    inside = rehearsed(home, flow, contact_id=ann.id, event={"total": 30})
    assert any("in this flow now" in note for note in inside.notes)
    flows_home.end_runs(flow.id)
    again = rehearsed(home, flow, contact_id=ann.id, event={"total": 30})
    assert any("does not allow another entry yet" in note for note in again.notes)


def test_lists_and_other_flows(home: Home) -> None:
    """Who enters by a list is in it, what a step does to lists holds behind it, flows that would start are named."""
    news, old = home.list_of(name="News"), home.list_of(name="Old")
    flows_home.live_flow(home, {"event": "list_add", "contact_list_id": old.id}, name="Second")
    inside = {"name": "contact_list", "predicate": "in", "value": [old.id]}
    flow = written(
        home, [{"type": "list_add", "contact_list_id": old.id}, {"filters": [inside], "yes": [{"type": "exit"}]}],
        {"event": "list_add", "contact_list_id": news.id},
    )  # fmt: skip
    found = rehearsed(home, flow)
    assert told(found, 2).outcome == "yes" and told(found, 2).filters[0].found == "“News”, “Old”"
    assert [one.says for one in found.timeline if one.told == "starts"] == [
        "list_add would start the flow “Second” too"
    ]
    assert found.notes == [] and rows("SELECT contacts_count FROM contact_list ORDER BY id") == [(0,), (0,)]


def test_a_rehearsal_of_the_past_sees_what_really_came(home: Home) -> None:
    """From a day that is over, the person's events come when they came, and not before."""
    ann = home.contact("ann@example.org")
    start = clock.iso(clock.now_ms() + 60_000)
    home.advance(DAY)
    flows_home.happen(home, "order_paid", ann.id, {"total": 5})
    home.advance(DAY * 4)
    paid = {"name": "event", "predicate": "performed", "value": {"event": "order_paid", "since": "flow_start"}}
    flow = written(home, [
        {"filters": [paid], "yes": [{"type": "exit"}]}, {"duration": 2 * DAY},
        {"filters": [paid], "yes": [{"type": "exit"}]},
    ])  # fmt: skip
    found = rehearsed(home, flow, contact_id=ann.id, start_at=start)
    assert ways(found)[0] == (1, "no") and ways(found)[2] == (4, "yes")
    assert [one.event for one in found.timeline if one.told == "recorded"] == ["order_paid"]


def test_not_a_byte_is_left_and_nobody_is_woken(home: Home) -> None:
    """The database, its file and its log are the same before and after, whatever is rehearsed, and no bell rings."""
    ann = home.contact("ann@example.org", first_name="Ann", data={"plan": "pro"})
    news = home.list_of(ann.id)
    everything = [
        MAIL, {"duration": DAY}, {"filters": [clicked()], "yes": [{"event_name": "cart_remove"}], "no": [LATER]},
        {"type": "list_remove", "contact_list_id": news.id}, {"type": "contact_update", "data_merge": {"a": 1}},
        {"duration": 60}, {"type": "exit"},
    ]  # fmt: skip
    flow = written(home, everything, goal="order_paid")
    heard: list[str] = []
    for name in ("flows", "outbox"):
        signals.register_handler(name, partial(heard.append, name))
    before = dumped(home.directory)
    script = [
        {"event": event, "after": 100}
        for event in ("email_delivered", "email_opened", "email_clicked", "email_replied", "email_complained",
                      "email_soft_bounced", "opt_out", "opt_in", "product_view", "message")
    ]  # fmt: skip
    script += [{"event": "list_add", "after": 200, "data": {"contact_list_id": news.id}},
               {"event": "contact_update", "after": 200, "data": {"first_name": "Anna"}}]  # fmt: skip
    for contact in ({"contact_id": ann.id}, {"contact": {"email": "new@example.org", "list_ids": [news.id]}}, {}):
        for _ in range(2):
            found = rehearsed(home, flow, **contact, events=script)
            assert len([one for one in found.timeline if one.told == "assumed"]) >= 8, found.text
    assert dumped(home.directory) == before and heard == []
    assert scalar("SELECT count(*) FROM run") == 0 and enrollment.get_cursor() == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"contact_id": 99}, "contact_id"),
        ({"contact_id": 1, "contact": {"first_name": "A"}}, "contact"),
        ({"contact": {"email": "nobody"}}, "contact.email"),
        ({"start_at": "1999-01-01T00:00:00Z"}, "start_at"),
        ({"until": "2031-01-01T00:00:00Z"}, "until"),
        ({"events": [{"event": "flow_enter"}]}, "events[0].event"),
        ({"events": [{"event": "Bad"}]}, "events[0].event"),
        ({"events": [{"event": "email_clicked", "step": 9}]}, "events[0].step"),
        ({"events": [{"event": "order_paid", "step": 1}]}, "events[0].step"),
        ({"events": [{"event": "order_paid", "after": 1, "at": "2031-03-04T00:00:00Z"}]}, "events[0].at"),
        ({"events": [{"event": "order_paid", "after": -1}]}, "events[0].after"),
        ({"events": [{"event": "list_add"}]}, "events[0].data.contact_list_id"),
        ({"events": [{"event": "contact_update", "data": {"first_name": 5}}]}, "events[0].data.first_name"),
        ({"events": [{"event": "order_paid"}] * 101}, "events"),
    ],
)
def test_what_cannot_be_is_refused_at_its_path(home: Home, body: dict[str, object], field: str) -> None:
    """Faults of a rehearsal are told like those of any request."""
    home.contact("ann@example.org")
    flow = written(home, [{"duration": 60}])
    with pytest.raises(Invalid) as refused:
        rehearsed(home, flow, **body)
    assert list(refused.value.fields) == [field]


def test_of_others_and_of_what_is_gone_nothing_is_rehearsed(home: Home) -> None:
    """A flow that is not there is not found, and a list that was deleted since ends only that step's work."""
    news = home.list_of(name="News")
    flow = written(home, [{"type": "list_add", "contact_list_id": news.id}, {"duration": 60}])
    transactions.write(lists.delete, home.account_id, news.id)
    assert rehearsed(home, flow).end.status in ("completed", "exited")
    with pytest.raises(NotFound):
        flow.id = 99
        rehearsed(home, flow)
    transactions.write(run, "UPDATE flow SET deleted_at = 1")
    flow.id = 1
    with pytest.raises(NotFound):
        rehearsed(home, flow)


def test_what_was_sent_and_done_before_counts_where_it_is_asked_for(home: Home) -> None:
    """A branch on campaigns, on a segment of old events or on the account's cap knows what was before the start."""
    ann = home.contact("ann@example.org")
    letter = home.campaign(home.list_of(ann.id).id)
    home.send(letter)
    taken = turn(None, want=True)
    assert taken is not None
    turn(Outcome(taken, subject="Hello", sender="a@example.org"), want=False)
    flows_home.happen(home, "product_view", ann.id)
    viewed = {"name": "event", "predicate": "performed", "value": {"event": "product_view", "within_days": 30}}
    segment = transactions.write(segments.create, home.account_id, SegmentCreate(name="Viewers", filters=[viewed]))
    got = {"name": "campaign_sent", "predicate": "eq", "value": letter.id}
    member = {"name": "contact_segment", "predicate": "eq", "value": segment.id}
    soon = clock.iso(clock.now_ms() + 60_000)
    for one in (got, member):
        flow = written(home, [{"filters": [one], "yes": [{"type": "exit"}]}])
        assert ways(rehearsed(home, flow, contact_id=ann.id, start_at=soon))[0] == (1, "yes")
        assert ways(rehearsed(home, flow, start_at=soon))[0] == (1, "no")
    transactions.write(run, 'UPDATE account SET frequency_cap = \'{"messages": 1, "days": 7}\'')
    mail = told(rehearsed(home, written(home, [MAIL]), contact_id=ann.id, start_at=soon), 1).message
    assert mail is not None and (mail.status, mail.skip_reason) == ("skipped", "frequency_cap")


def test_somebody_made_up_has_the_past_of_their_address(home: Home) -> None:
    """An address that is suppressed, or opted out under a contact that is gone, is so for somebody made up too."""
    flow = written(home, [MAIL])
    home.suppress("bad@example.org", "hard_bounce")
    gone = home.contact("left@example.org")
    home.leave("left@example.org")
    transactions.write(removal.delete, home.account_id, gone.id)
    for address, reason in (("bad@example.org", "suppressed_hard_bounce"), ("left@example.org", "unsubscribed")):
        step = told(rehearsed(home, flow, contact={"email": address}), 1)
        assert (step.outcome, step.reason) == ("skipped", reason)


def test_quiet_hours_hold_a_message_until_they_are_over(home: Home) -> None:
    """What is held leaves when the hours are over, also after the run itself has ended, and is shown then."""
    flow = written(home, [MAIL], data={"quiet_hours": {"from": "08:00", "to": "12:00"}})
    found = rehearsed(home, flow)
    held, left = told(found, 1), found.timeline[-1]
    assert held.message is not None and held.message.leaves_at == "2031-03-03T12:00:00.000Z"
    assert "held until Mon 3 Mar 2031, 12:00" in held.says and found.end.at == "2031-03-03T09:00:00.000Z"
    assert left.told == "message" and left.at == "2031-03-03T12:00:00.000Z"
    assert left.message is not None and left.message.subject == "Welcome Alex" and left.message.html


def test_a_step_that_breaks_ends_the_rehearsal_and_not_the_request(home: Home) -> None:
    """A message that cannot be made is skipped and says why; the rest goes on."""
    flow = written(home, [{"subject": "S", "body": "{% for i in (1..200) %}x{% endfor %}"}, {"duration": 60}])
    found = rehearsed(home, flow)
    assert found.end.status == "completed" and "a loop of more than 100 rounds" in found.notes[-1]
    mail = told(found, 1).message
    assert mail is not None and mail.skip_reason == "render_error"


def test_each_starter_can_be_rehearsed(home: Home) -> None:
    """What a starter offers comes to an end, with its own trigger met."""
    for name in ("welcome", "win_back", "birthday", "after_event"):
        request = validation.read(FlowCreate, {"starter": name})
        begun = store.apply_starter(home.account_id, request)
        flow = transactions.write(
            store.create, home.account_id, begun, store.parse_request(home.account_id, begun), Actor(can_approve=True)
        )
        found = rehearsed(home, flow)
        assert found.end.status == "completed" and any(one.message for one in found.timeline), (name, found.text)


def test_a_flow_without_steps_or_trigger_is_rehearsed_too(home: Home) -> None:
    """Who enters a flow of no steps has completed it; without a trigger they are let in by hand."""
    found = rehearsed(home, written(home, [], {"event": "manual"}))
    assert found.timeline[0].says == "Enters the flow by hand" and found.end.status == "completed"
    assert found.notes and "could not go live" in found.notes[0]


def test_what_takes_too_long_is_ended_and_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal keeps nobody waiting for long, nor do the scripts of a flow."""
    monkeypatch.setattr(simulation, "_MAX_SECONDS", 0.0)
    monkeypatch.setattr(simulation_bulk, "MAX_SECONDS", 0.0)
    flow = written(home, [{"duration": 60}, {"duration": 60}], data={"scripts": [{"name": "a"}, {"name": "b"}]})
    found = rehearsed(home, flow)
    assert found.end.status == "live" and "ended early" in found.notes[-1]
    assert [one.failures for one in simulation_bulk.run_scripts(flow)] == [["not played: the others took too long"]] * 2


def test_many_messages_of_one_moment_take_no_longer_either(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that leave together are not all rendered where that would take too long, and it says so."""
    flow = written(home, [MAIL] * 5)
    whole = rehearsed(home, flow)
    assert len([one for one in whole.timeline if one.message]) == 5 and not any("early" in one for one in whole.notes)
    monkeypatch.setattr(simulation, "_MAX_SECONDS", 0.0)
    found = rehearsed(home, flow)
    assert len([one for one in found.timeline if one.message]) == 1 and "ended early" in found.notes[-1]


def test_where_nothing_may_leave_that_is_said_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop of all sending is noted and lets the rehearsal go on; a message that cannot leave is told of once."""
    flow = written(home, [MAIL, {"duration": 60}])
    transactions.write(run, "UPDATE account SET sending_stopped = 1")
    found = rehearsed(home, flow)
    mail = told(found, 1).message
    assert mail is not None and mail.status == "sent" and "All sending of the account is stopped" in found.notes[0]
    monkeypatch.setattr(disk_guard, "send_blocker", lambda: "the disk is full")
    waits = rehearsed(home, flow)
    mail = told(waits, 1).message
    assert mail is not None and mail.status == "queued" and ways(waits) == [(1, "on"), (2, "waits")]
    assert [one.told for one in waits.timeline] == ["enter", "step", "step"] and "the disk is full" in waits.notes[-1]


def test_on_a_real_transport_what_keeps_mail_back_is_said(home: Home) -> None:
    """A sender that is not ours yet is named, and the rest is rehearsed as if it were."""
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    flow = written(home, [MAIL, {"duration": 60}])
    found = rehearsed(home, flow, events=[{"event": "email_delivered", "step": 1, "after": 9}])
    assert any("not verified as yours" in note for note in found.notes if note.startswith("Step 1: it would wait"))
    said = [one.says for one in found.timeline if one.told == "assumed"]
    assert said == ["Assumed: “Welcome Alex” is delivered"] and found.end.status == "completed"


def test_what_is_refused_in_reality_does_not_happen_here_either(home: Home) -> None:
    """A change that a contact cannot have is noted, and the rest goes on."""
    flow = written(home, [{"duration": 60}])
    change = {"event": "contact_update", "data": {"channels_attributes": [{"id": 4711, "value": "b@example.org"}]}}
    found = rehearsed(home, flow, events=[change])
    assert found.notes[-1].startswith("contact_update could not happen") and found.end.status == "completed"
