"""Simulations of flows do what the flow does, explain it, and leave no trace."""

from functools import partial

import pytest

from appliance.accounts.audit import Actor
from appliance.audience import lists
from appliance.audience.contacts import removal
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.core import clock, signals, validation
from appliance.core.errors import Invalid, NotFound
from appliance.flows import enrollment, simulation, simulator, starters, store
from appliance.flows.store import FlowCreate
from appliance.sending.messages.ledger import Outcome
from appliance.storage import disk_guard, transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Channel
from tests.domain import flows_home
from tests.domain.flows_rehearsed import (
    DAY,
    clicked_filter,
    create_flow,
    simulate,
    step_entry,
    step_outcomes,
    update_flow,
)
from tests.domain.home import Home, record_and_claim
from tests.domain.test_sandbox import dump_database

EMAIL = {"subject": "Welcome {{ contact.first_name }}", "body": '<p>Hi, <a href="https://example.com/a">look</a></p>'}
REMINDER = {"subject": "Still there?", "body": "<p>Hm</p>"}


def test_a_timeline_has_each_step_with_its_time(home: Home) -> None:
    """Messages are rendered for the contact, a wait ends after its days, and the end is shown."""
    ann = home.contact("ann@example.org", first_name="Ann")
    flow = create_flow(home, [EMAIL, {"duration": 3 * DAY}, REMINDER])
    result = simulate(home, flow, contact_id=ann.id)
    assert step_outcomes(result) == [(1, "on"), (2, "waits"), (3, "on")]
    message = step_entry(result, 1).message
    assert message is not None and (message.status, message.to, message.subject) == (
        "sent",
        "ann@example.org",
        "Welcome Ann",
    )
    assert "Hi" in (message.html or "") and "unsubscribe" in (message.text or "").lower()
    assert step_entry(result, 2).until == step_entry(result, 3).at == "2031-03-06T09:00:00.000Z"
    assert (result.end.status, result.end.at) == ("completed", "2031-03-06T09:00:00.000Z")
    assert "Thu, 6 Mar 2031" in result.text and "Email “Welcome Ann”: sent to ann@example.org" in result.text


def test_a_branch_explains_its_filters(home: Home) -> None:
    """Each filter shows whether it matched, the contact's value, and whether it decided the branch."""
    ann = home.contact("ann@example.org", data={"plan": "free", "tags": ["vip"]})
    group = {"name": "group", "predicate": "any", "value": [
        {"name": "contact_tag", "predicate": "eq", "value": "vip"},
        {"name": "event.total", "predicate": "gt", "value": 10}]}  # fmt: skip
    plan = {"name": "contact_data.plan", "predicate": "eq", "value": "pro"}
    flow = create_flow(home, [{"filters": [plan, group], "yes": [{"type": "exit"}], "no": [{"duration": 60}]}])
    no = step_entry(simulate(home, flow, contact_id=ann.id, event={"total": 3}), 1)
    assert no.outcome == "no" and no.description == (
        "Branch: No, because the contact does not match: Plan is “pro” (found: “free”)"
    )
    assert [(item.matches, item.decided, item.actual) for item in no.filters] == [
        (False, True, "free"),
        (True, False, None),
    ]
    assert [(item.matches, item.actual_text) for item in no.filters[1].rows] == [(True, "“vip”"), (False, "3")]
    pro = {"event": "contact_update", "at": "2031-03-03T09:00:00Z", "data": {"data": {"plan": "pro", "tags": ["vip"]}}}
    waits = update_flow(home, flow, steps=[{"duration": 60}, {"filters": [plan, group], "yes": [{"type": "exit"}]}])
    result = simulate(home, waits, contact_id=ann.id, events=[pro])
    yes = next(item for item in result.timeline if item.type == "split")
    assert yes.outcome == "yes" and [item.decided for item in yes.filters] == [True, True]
    assert [item.decided for item in yes.filters[1].rows] == [True, False]
    assert (result.end.status, result.end.reason) == ("exited", "exit_step")


def test_an_assumed_click_decides_a_branch(home: Home) -> None:
    """An assumed event of a message counts from when the message is sent, and filters see it."""
    flow = create_flow(home, [
        {"duration": DAY}, EMAIL, {"duration": 2 * DAY},
        {"filters": [clicked_filter()], "yes": [REMINDER], "no": [{"duration": 60}]},
    ])  # fmt: skip
    click = {"event": "email_clicked", "step": 2, "after": 3600, "data": {"url": "https://example.com/a"}}
    result = simulate(home, flow, events=[click])
    click_entry = next(entry for entry in result.timeline if entry.kind == "assumed")
    assert (
        click_entry.at == "2031-03-04T10:00:00.000Z"
        and "clicks https://example.com/a in “Welcome Alex”" in click_entry.description
    )
    branch = step_entry(result, 4)
    assert branch.outcome == "yes" and branch.filters[0].actual == {"count": 1, "last_at": click_entry.at}
    assert branch.filters[0].actual_text == "once, last Tue, 4 Mar 2031, 10:00"
    branch_without_click = step_entry(simulate(home, flow), 4)
    assert (
        branch_without_click.outcome == "no"
        and branch_without_click.filters[0].actual_text == "never"
        and branch_without_click.checked_events == ["email_clicked"]
    )


def test_an_assumed_goal_event_ends_the_simulation(home: Home) -> None:
    """Events assumed after the end are listed in the notes."""
    flow = create_flow(home, [{"duration": 10 * DAY}, REMINDER], goal="order_paid")
    script = [{"event": "order_paid", "after": DAY, "data": {"total": 3}}, {"event": "product_view", "after": 2 * DAY}]
    result = simulate(home, flow, events=script)
    assert (result.end.status, result.end.reason, result.end.at) == ("completed", "goal", "2031-03-04T09:00:00.000Z")
    assert [entry.kind for entry in result.timeline] == ["enter", "step", "assumed", "goal"]
    assert result.notes == ["“Viewed a product” would happen after the end, Wed, 5 Mar 2031, 09:00"]


def test_an_assumed_opt_out_or_bounce_skips_messages(home: Home) -> None:
    """Later messages are skipped with the reason, and other steps are run."""
    flow = create_flow(
        home, [EMAIL, {"duration": DAY}, REMINDER, {"type": "contact_update", "data_merge": {"seen": True}}]
    )
    for event, reason in (("opt_out", "unsubscribed"), ("email_bounced", "suppressed_hard_bounce")):
        result = simulate(home, flow, events=[{"event": event, "after": 60}])
        assert step_entry(result, 3).outcome == "skipped" and step_entry(result, 3).reason == reason, result.text
        assert step_entry(result, 4).outcome == "on" and result.end.status == "completed"


def test_the_sunset_starter_unsubscribes_those_who_do_not_click(home: Home) -> None:
    """Its last step opts out of email in the simulation, and nothing of that is stored."""
    starter = starters.find_starter(home.account_id, "sunset")
    assert starter is not None
    flow = create_flow(home, starter.steps, {"event": "manual"})
    contact = home.contact("quiet@example.org")
    result = simulate(home, flow, contact_id=contact.id)
    last = result.timeline[-1]
    assert (last.type, last.description, last.outcome) == ("unsubscribe", "Unsubscribe from email", "on"), result.text
    assert Channel.get(Channel.contact == contact.id).subscribed
    clicked = simulate(home, flow, contact_id=contact.id, events=[{"event": "email_clicked", "step": 1, "after": 60}])
    assert "unsubscribe" not in {entry.type for entry in clicked.timeline}


def test_drafts_and_unsaved_steps_can_be_simulated(home: Home) -> None:
    """A draft is simulated with notes on what is missing; steps in the request replace the stored ones."""
    flow = create_flow(home, [{"subject": "Only a subject"}, {"duration": 60}])
    result = simulate(home, flow)
    assert result.version is None
    assert any(note.startswith("This flow cannot go live yet: Email “Only a subject”: ") for note in result.notes)
    other = simulate(home, flow, steps=[{"subject": "New", "body": "<p>Words</p>"}, {"type": "exit"}])
    assert [(entry.path, entry.type) for entry in other.timeline[1:]] == [("steps[0]", "email"), ("steps[1]", "exit")]
    assert other.timeline[1].message is not None and other.timeline[1].message.subject == "New"
    with pytest.raises(Invalid) as error_info:
        simulate(home, flow, steps=[{"duration": 60}, {"filters": [{"name": "what", "predicate": "eq"}]}])
    assert "steps[1].filters[0].name" in error_info.value.fields


def test_an_active_flow_is_simulated_in_its_live_version(home: Home) -> None:
    """The version is the one that new runs follow."""
    home.configure(email__allow_unverified_domains=True)
    flow = create_flow(home, [EMAIL, {"duration": 60}], status="active")
    result = simulate(home, flow)
    assert result.version == flow.version == 1 and step_outcomes(result) == [(1, "on"), (2, "waits")]
    assert result.notes == []


def test_notes_say_why_the_trigger_would_not_start(home: Home) -> None:
    """A contact who would not enter is simulated nevertheless, with the reason in the notes."""
    ann = home.contact("ann@example.org")
    where = {"where": [{"name": "event.total", "predicate": "gt", "value": 10}], "frequency": "once"}
    flow = create_flow(home, [{"duration": 60}], {"event": "cart_add", "data": where})
    result = simulate(home, flow, contact_id=ann.id, event={"total": 3})
    assert (
        "“Added to cart” would not start this flow" in result.notes[0]
        and "Total is over 10 (found: 3)" in result.notes[0]
    )
    assert result.timeline[0].filters[0].matches is False and result.end.status == "completed"
    assert simulate(home, flow, contact_id=ann.id, event={"total": 30}).notes == []
    update_flow(home, flow, status="active")
    flows_home.record_event(home, "cart_add", ann.id, {"total": 30})
    flows_home.process_events()
    inside = simulate(home, flow, contact_id=ann.id, event={"total": 30})
    assert any("in this flow now" in note for note in inside.notes)
    flows_home.end_runs(flow.id)
    second_result = simulate(home, flow, contact_id=ann.id, event={"total": 30})
    assert any("does not allow another entry yet" in note for note in second_result.notes)


def test_list_changes_and_other_flows(home: Home) -> None:
    """A step's change of lists is visible to later steps, and other flows that would start are named."""
    news_list, old_list = home.list_of(name="News"), home.list_of(name="Old")
    flows_home.live_flow(home, {"event": "list_add", "contact_list_id": old_list.id}, name="Second")
    inside = {"name": "contact_list", "predicate": "in", "value": [old_list.id]}
    flow = create_flow(
        home, [{"type": "list_add", "contact_list_id": old_list.id}, {"filters": [inside], "yes": [{"type": "exit"}]}],
        {"event": "list_add", "contact_list_id": news_list.id},
    )  # fmt: skip
    result = simulate(home, flow)
    assert step_entry(result, 2).outcome == "yes" and step_entry(result, 2).filters[0].actual_text == "“News”, “Old”"
    assert [entry.description for entry in result.timeline if entry.kind == "starts"] == [
        "“Joined a list” would also start the flow “Second”"
    ]
    assert result.notes == [] and rows("SELECT contacts_count FROM contact_list ORDER BY id") == [(0,), (0,)]


def test_a_simulation_of_the_past_uses_recorded_events(home: Home) -> None:
    """Recorded events of the contact happen at their time, not before."""
    ann = home.contact("ann@example.org")
    start = clock.iso(clock.now_ms() + 60_000)
    home.advance(DAY)
    flows_home.record_event(home, "order_paid", ann.id, {"total": 5})
    home.advance(DAY * 4)
    paid = {"name": "event", "predicate": "performed", "value": {"event": "order_paid", "since": "flow_start"}}
    flow = create_flow(home, [
        {"filters": [paid], "yes": [{"type": "exit"}]}, {"duration": 2 * DAY},
        {"filters": [paid], "yes": [{"type": "exit"}]},
    ])  # fmt: skip
    result = simulate(home, flow, contact_id=ann.id, start_at=start)
    assert step_outcomes(result)[0] == (1, "no") and step_outcomes(result)[2] == (4, "yes")
    assert [entry.event for entry in result.timeline if entry.kind == "recorded"] == ["order_paid"]


def test_a_simulation_changes_nothing_and_wakes_no_job(home: Home) -> None:
    """The database is the same before and after, and no wake-up is sent."""
    ann = home.contact("ann@example.org", first_name="Ann", data={"plan": "pro"})
    news_list = home.list_of(ann.id)
    all_steps = [
        EMAIL, {"duration": DAY},
        {"filters": [clicked_filter()], "yes": [{"event_name": "cart_remove"}], "no": [REMINDER]},
        {"type": "list_remove", "contact_list_id": news_list.id}, {"type": "contact_update", "data_merge": {"a": 1}},
        {"duration": 60}, {"type": "exit"},
    ]  # fmt: skip
    flow = create_flow(home, all_steps, goal="order_paid")
    wake_ups: list[str] = []
    for name in ("flows", "outbox"):
        signals.register_handler(name, partial(wake_ups.append, name))
    before = dump_database(home.directory)
    script = [
        {"event": event, "after": 100}
        for event in ("email_delivered", "email_opened", "email_clicked", "email_replied", "email_complained",
                      "email_soft_bounced", "opt_out", "opt_in", "product_view", "message")
    ]  # fmt: skip
    script += [{"event": "list_add", "after": 200, "data": {"contact_list_id": news_list.id}},
               {"event": "contact_update", "after": 200, "data": {"first_name": "Anna"}}]  # fmt: skip
    for contact in ({"contact_id": ann.id}, {"contact": {"email": "new@example.org", "list_ids": [news_list.id]}}, {}):
        for _ in range(2):
            result = simulate(home, flow, **contact, events=script)
            assert len([entry for entry in result.timeline if entry.kind == "assumed"]) >= 8, result.text
    assert dump_database(home.directory) == before and wake_ups == []
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
def test_invalid_simulations_are_rejected(home: Home, body: dict[str, object], field: str) -> None:
    """The error is reported at the field's path."""
    home.contact("ann@example.org")
    flow = create_flow(home, [{"duration": 60}])
    with pytest.raises(Invalid) as error_info:
        simulate(home, flow, **body)
    assert list(error_info.value.fields) == [field]


def test_deleted_lists_and_flows_in_simulations(home: Home) -> None:
    """A deleted list does not stop a simulation; an unknown or deleted flow is not found."""
    news_list = home.list_of(name="News")
    flow = create_flow(home, [{"type": "list_add", "contact_list_id": news_list.id}, {"duration": 60}])
    transactions.write(lists.delete, home.account_id, news_list.id)
    assert simulate(home, flow).end.status in ("completed", "exited")
    with pytest.raises(NotFound):
        flow.id = 99
        simulate(home, flow)
    transactions.write(run, "UPDATE flow SET deleted_at = 1")
    flow.id = 1
    with pytest.raises(NotFound):
        simulate(home, flow)


def test_history_before_the_start_counts(home: Home) -> None:
    """Branches on campaigns and segments and the frequency cap consider what happened before the start."""
    ann = home.contact("ann@example.org")
    campaign = home.campaign(home.list_of(ann.id).id)
    home.send(campaign)
    row = record_and_claim(None, want=True)
    assert row is not None
    record_and_claim(Outcome(row, subject="Hello", sender="a@example.org"), want=False)
    flows_home.record_event(home, "product_view", ann.id)
    viewed = {"name": "event", "predicate": "performed", "value": {"event": "product_view", "within_days": 30}}
    segment = transactions.write(segments.create, home.account_id, SegmentCreate(name="Viewers", filters=[viewed]))
    got_campaign = {"name": "campaign_sent", "predicate": "eq", "value": campaign.id}
    member = {"name": "contact_segment", "predicate": "eq", "value": segment.id}
    soon = clock.iso(clock.now_ms() + 60_000)
    for condition in (got_campaign, member):
        flow = create_flow(home, [{"filters": [condition], "yes": [{"type": "exit"}]}])
        assert step_outcomes(simulate(home, flow, contact_id=ann.id, start_at=soon))[0] == (1, "yes")
        assert step_outcomes(simulate(home, flow, start_at=soon))[0] == (1, "no")
    transactions.write(run, 'UPDATE account SET frequency_cap = \'{"messages": 1, "days": 7}\'')
    message = step_entry(simulate(home, create_flow(home, [EMAIL]), contact_id=ann.id, start_at=soon), 1).message
    assert message is not None and (message.status, message.skip_reason) == ("skipped", "frequency_cap")


def test_a_made_up_contact_has_the_status_of_its_address(home: Home) -> None:
    """A suppression or opt-out of the address applies to a made-up contact too."""
    flow = create_flow(home, [EMAIL])
    home.suppress("bad@example.org", "hard_bounce")
    deleted = home.contact("left@example.org")
    home.opt_out("left@example.org")
    transactions.write(removal.delete, home.account_id, deleted.id)
    for address, reason in (("bad@example.org", "suppressed_hard_bounce"), ("left@example.org", "unsubscribed")):
        step = step_entry(simulate(home, flow, contact={"email": address}), 1)
        assert (step.outcome, step.reason) == ("skipped", reason)


def test_quiet_hours_hold_a_simulated_message(home: Home) -> None:
    """A held message is shown as sent after quiet hours, also after the end of the run."""
    flow = create_flow(home, [EMAIL], data={"quiet_hours": {"from": "08:00", "to": "12:00"}})
    result = simulate(home, flow)
    held_entry, sent_entry = step_entry(result, 1), result.timeline[-1]
    assert held_entry.message is not None and held_entry.message.leaves_at == "2031-03-03T12:00:00.000Z"
    assert "held until Mon, 3 Mar 2031, 12:00" in held_entry.description and result.end.at == "2031-03-03T09:00:00.000Z"
    assert sent_entry.kind == "message" and sent_entry.at == "2031-03-03T12:00:00.000Z"
    assert sent_entry.message is not None and sent_entry.message.subject == "Welcome Alex" and sent_entry.message.html


def test_a_message_that_cannot_be_rendered_is_skipped(home: Home) -> None:
    """The note has the reason, and the simulation goes on."""
    flow = create_flow(home, [{"subject": "S", "body": "{% for i in (1..200) %}x{% endfor %}"}, {"duration": 60}])
    result = simulate(home, flow)
    assert result.end.status == "completed" and "a loop of more than 100 rounds" in result.notes[-1]
    message = step_entry(result, 1).message
    assert message is not None and message.skip_reason == "render_error"


def test_each_flow_starter_can_be_simulated(home: Home) -> None:
    """Each starter runs to completion and sends at least one message."""
    for name in ("welcome", "win_back", "birthday", "after_event", "cart", "sunset"):
        request = validation.read(FlowCreate, {"starter": name})
        starter_request = store.apply_starter(home.account_id, request)
        flow = transactions.write(
            store.create,
            home.account_id,
            starter_request,
            store.parse_request(home.account_id, starter_request),
            Actor(can_approve=True),
        )
        result = simulate(home, flow)
        assert result.end.status == "completed" and any(entry.message for entry in result.timeline), (name, result.text)


def test_a_flow_without_steps_or_trigger_can_be_simulated(home: Home) -> None:
    """The contact enters by hand and completes the flow at once."""
    result = simulate(home, create_flow(home, [], {"event": "manual"}))
    assert result.timeline[0].description == "Enters the flow manually" and result.end.status == "completed"
    assert result.notes and "cannot go live yet" in result.notes[0]


def test_a_slow_simulation_is_ended_early(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note reports the early end, and scripts that were not run are reported as failed."""
    monkeypatch.setattr(simulator, "_MAX_SECONDS", 0.0)
    monkeypatch.setattr(simulation, "MAX_SCRIPTS_SECONDS", 0.0)
    flow = create_flow(home, [{"duration": 60}, {"duration": 60}], data={"scripts": [{"name": "a"}, {"name": "b"}]})
    result = simulate(home, flow)
    assert result.end.status == "live" and "ended early" in result.notes[-1]
    assert [script_result.failures for script_result in simulation.run_scripts(flow)] == [
        ["not run: the other tests took too long"]
    ] * 2


def test_messages_sent_together_respect_the_time_limit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the time limit messages are not rendered, and a note reports the early end."""
    flow = create_flow(home, [EMAIL] * 5)
    full_result = simulate(home, flow)
    assert len([item for item in full_result.timeline if item.message]) == 5 and not any(
        "early" in item for item in full_result.notes
    )
    monkeypatch.setattr(simulator, "_MAX_SECONDS", 0.0)
    result = simulate(home, flow)
    assert len([item for item in result.timeline if item.message]) == 1 and "ended early" in result.notes[-1]


def test_stopped_sending_is_noted_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sending stopped the simulation goes on; with a full disk the message stays queued; each has one note."""
    flow = create_flow(home, [EMAIL, {"duration": 60}])
    transactions.write(run, "UPDATE account SET sending_stopped = 1")
    result = simulate(home, flow)
    message = step_entry(result, 1).message
    assert (
        message is not None and message.status == "sent" and "All sending of the account is stopped" in result.notes[0]
    )
    monkeypatch.setattr(disk_guard, "send_blocker", lambda: "the disk is full")
    blocked_result = simulate(home, flow)
    message = step_entry(blocked_result, 1).message
    assert (
        message is not None
        and message.status == "queued"
        and step_outcomes(blocked_result) == [(1, "on"), (2, "waits")]
    )
    assert [entry.kind for entry in blocked_result.timeline] == [
        "enter",
        "step",
        "step",
    ] and "the disk is full" in blocked_result.notes[-1]


def test_an_unverified_sender_is_noted(home: Home) -> None:
    """On a relay a note says that the message would wait, and the simulation goes on as if it were sent."""
    home.configure(email__transport="relay", email__relay__host="127.0.0.1")
    flow = create_flow(home, [EMAIL, {"duration": 60}])
    result = simulate(home, flow, events=[{"event": "email_delivered", "step": 1, "after": 9}])
    assert any(
        "is no longer verified" in note for note in result.notes if note.startswith("Email “Welcome Alex”: it would")
    )
    assumed_texts = [entry.description for entry in result.timeline if entry.kind == "assumed"]
    assert assumed_texts == ["Assumed: “Welcome Alex” is delivered"] and result.end.status == "completed"


def test_an_impossible_assumed_change_is_noted(home: Home) -> None:
    """A contact update that would be rejected is noted, and the simulation goes on."""
    flow = create_flow(home, [{"duration": 60}])
    change = {"event": "contact_update", "data": {"channels_attributes": [{"id": 4711, "value": "b@example.org"}]}}
    result = simulate(home, flow, events=[change])
    assert result.notes[-1].startswith("“Changed” could not happen") and result.end.status == "completed"
