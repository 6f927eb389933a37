"""The test of a random split: what counts for a branch, when a winner is declared, and who takes it."""

import math
import random
from typing import Any

from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.flows import split_results, split_sample, split_tests, versions
from appliance.flows.split_sample import SplitSample
from appliance.flows.split_tests import ChooseBranch
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run
from appliance.storage.models import Flow, SplitTest
from appliance.tracking import orders
from tests.domain.flows_home import record_event
from tests.domain.home import Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow, start_runs, step_history

BRANCHES = [
    {"key": "b2", "name": "Short", "share": 50, "steps": []},
    {"key": "b3", "name": "", "share": 50, "steps": []},
]
SPLIT: dict[str, Any] = {
    "id": 1, "type": "random_split", "branches": BRANCHES, "metric": "event", "decided_by": "service",
    "event_name": "order_paid", "by_amount": False,
}  # fmt: skip


def publish(flow: Flow, **changes: Any) -> None:
    """Publish the flow with other props of its split."""
    flow.steps = [{**flow.steps[0], **changes}]
    transactions.write(versions.publish, flow)
    flow.save()


def start_test(home: Home, number: int, **changes: Any) -> tuple[Flow, list[int]]:
    """Return a flow with a test, and the runs of contacts that have come to it."""
    flow = create_live_flow(home, [])
    flow.steps = [{**SPLIT, **changes}]
    publish(flow)
    contacts = [home.contact(f"t{flow.id}-{index}@acme.test").id for index in range(number)]
    runs = start_runs(home, flow, *contacts, version=flow.version)
    advance_until_idle()
    return flow, runs


def take_branches(flow: Flow, step: int = 1) -> dict[int, str]:
    """Return the branch of each run."""
    return dict(rows("SELECT run_id, outcome FROM step_visit WHERE flow_id = ? AND action_id = ?", (flow.id, step)))


def count(flow: Flow) -> list[list[tuple[int, int, float]]]:
    """Return (recipients, converted, amount) of each branch, in each batch."""
    test = split_tests.find(flow.id, 1)
    assert test is not None
    return [[(each.recipients, each.converted, each.amount) for each in batch]
            for batch in split_results.count_batches(test)]  # fmt: skip


def order(home: Home, contact_id: int, amount: float) -> None:
    """Record an order of a contact."""
    event_id = record_event(home, "order_paid", contact_id)
    transactions.write(run, "UPDATE event SET amount = ? WHERE id = ?", (amount, event_id))


def test_an_event_counts_once_for_the_last_run_before_it(home: Home) -> None:
    """Events before the step, after the window, of tests and of machines count for nobody."""
    flow, (first, second, third) = start_test(home, 3, by_amount=True)
    branches = take_branches(flow)
    contacts = dict(rows("SELECT id, contact_id FROM run"))
    for amount in (20, 5):
        order(home, contacts[first], amount)
    record_event(home, "order_paid", contacts[second], test=True)
    record_event(home, "cart_add", contacts[second])
    home.advance(31 * 86_400)
    order(home, contacts[third], 7)
    totals = {key: [0, 0, 0.0] for key in ("b2", "b3")}
    for run_id in (first, second, third):
        totals[branches[run_id]][0] += 1
    totals[branches[first]][1:] = [1, 25.0]
    assert count(flow) == [[tuple(totals["b2"]), tuple(totals["b3"])]]
    again = start_runs(home, flow, contacts[first], version=flow.version)
    advance_until_idle()
    order(home, contacts[first], 1)
    converted = sum(each[1] for each in count(flow)[0])
    assert converted == 2 and len(again) == 1


def test_clicks_count_for_the_run_of_their_message(home: Home) -> None:
    """A run converts by a click on one of its messages after the step."""
    flow, runs = start_test(home, 4, metric="clicks", event_name=None)
    now = clock.now_ms()

    def insert(run_id: int, clicked_at: int | None) -> None:
        connection().execute(
            "INSERT INTO message (account_id, flow_id, run_id, step_id, channel, recipient, recipient_key, status, "
            "source_type, transactional, test, attempts, uncertain_count, clicked_at, created_at, updated_at, round, "
            "provider) "
            "VALUES (?, ?, ?, 9, 'email', 'a@b.c', 'a@b.c', 'sent', 'flow', 0, 0, 1, 0, ?, ?, ?, 0, 'relay')",
            (home.account_id, flow.id, run_id, clicked_at, now, now),
        ).fetchall()

    for run_id, clicked_at in ((runs[0], now + 5), (runs[1], None), (runs[2], now - 60_000)):
        transactions.write(insert, run_id, clicked_at)
    assert sum(each[1] for each in count(flow)[0]) == 1
    # The list of flows counts the orders that followed a click, each once.
    transactions.write(run, "UPDATE message SET contact_id = (SELECT r.contact_id FROM run r WHERE r.id = run_id)", ())
    home.advance(60)
    for contact_id in [row[0] for row in rows("SELECT contact_id FROM run WHERE flow_id = ?", (flow.id,))]:
        order(home, contact_id, 40)
    transactions.write(run, "UPDATE event SET generated = 0 WHERE amount NOT NULL", ())
    assert orders.count_by_flow([flow.id, flow.id + 1], 7) == {flow.id: (2, 80.0)}
    home.advance(2 * 86_400)
    for contact_id in [row[0] for row in rows("SELECT contact_id FROM run WHERE flow_id = ?", (flow.id,))]:
        order(home, contact_id, 5)
    transactions.write(run, "UPDATE event SET generated = 0 WHERE amount NOT NULL", ())
    assert orders.count_by_flow([flow.id], 2) == {flow.id: (2, 80.0)}
    assert orders.count_by_flow([flow.id], 3) == {flow.id: (4, 90.0)}


def convert_some(home: Home, flow: Flow, rates: dict[str, float]) -> None:
    """Record orders of the contacts of a flow, with the rate of their branch."""
    rng = random.Random(3)
    contacts = dict(rows("SELECT id, contact_id FROM run WHERE flow_id = ?", (flow.id,)))
    for run_id, branch in take_branches(flow).items():
        if rng.random() < rates[branch]:
            record_event(home, "order_paid", contacts[run_id])


def test_the_service_chooses_a_clear_winner_once(home: Home) -> None:
    """New runs take the winner, and the visit says why; the test itself counts no more."""
    flow, _ = start_test(home, 300)
    split_results._next_looks.clear()
    split_results.decide_running()
    assert split_tests.find_progress(flow.id, 1).winner is None
    convert_some(home, flow, {"b2": 0.1, "b3": 0.5})
    split_results._next_looks.clear()
    split_results.decide_running()
    test = split_tests.find(flow.id, 1)
    assert test is not None and (test.winner, test.state, test.chosen_by) == ("b3", "decided", "service")
    assert test.decision["code"] == "winner" and not split_tests.has_running()
    before = count(flow)
    later = start_runs(home, flow, *(home.contact(f"later{index}@acme.test").id for index in range(8)),
                       version=flow.version)  # fmt: skip
    advance_until_idle()
    assert {tuple(step_history(run_id)) for run_id in later} == {((1, "b3", "winner"),)} and count(flow) == before


def test_a_person_decides_and_takes_it_back(home: Home) -> None:
    """The service leaves such a test alone; without a branch the test goes on."""
    flow, _ = start_test(home, 300, decided_by="person")
    convert_some(home, flow, {"b2": 0.1, "b3": 0.5})
    split_results._next_looks.clear()
    split_results.decide_running()
    assert split_tests.find_progress(flow.id, 1).winner is None
    choice, by = ChooseBranch(1, "b2"), Actor("user:1")
    decision = split_results.find_decision(home.account_id, flow.id, choice)
    transactions.write(split_tests.choose, home.account_id, flow.id, choice, decision, by)
    test = split_tests.find(flow.id, 1)
    assert test is not None and (test.winner, test.chosen_by, test.decision["leader"]) == ("b2", "user:1", 1)
    transactions.write(split_tests.choose, home.account_id, flow.id, ChooseBranch(1, None), None, by)
    assert split_tests.find_progress(flow.id, 1).winner is None and split_tests.has_running()


def test_a_run_that_comes_again_keeps_its_branch(home: Home) -> None:
    """After the decision, a loop still leads through the branch that the run took first."""
    steps = [
        {"id": 8, "type": "wait", "duration": 60}, SPLIT,
        {"id": 9, "type": "go_to", "step_id": 8, "max_jumps": 1},
    ]  # fmt: skip
    flow = create_live_flow(home, [])
    flow.steps = steps
    transactions.write(versions.publish, flow)
    flow.save()
    runs = start_runs(home, flow, *(home.contact(f"loop{index}@acme.test").id for index in range(20)),
                      version=flow.version, action_id=8)  # fmt: skip
    advance_until_idle()
    home.advance(60)
    advance_until_idle()
    first = take_branches(flow)
    assert set(first.values()) == {"b2", "b3"}
    transactions.write(split_tests.choose, home.account_id, flow.id, ChooseBranch(1, "b3"), None, Actor("user:1"))
    home.advance(60)
    advance_until_idle()
    for run_id in runs:
        visits = rows("SELECT outcome, reason FROM step_visit WHERE run_id = ? AND action_id = 1", (run_id,))
        assert visits == [(first[run_id], None)] * 2


def test_what_starts_another_test(home: Home) -> None:
    """New shares are counted apart in the same test; another metric, or other branches, begin another one."""
    flow, _ = start_test(home, 40)
    started = SplitTest.get().started_at
    home.advance(60)
    shares = [{**BRANCHES[0], "share": 20}, {**BRANCHES[1], "share": 80}]
    publish(flow, branches=shares)
    assert SplitTest.get().started_at == started
    start_runs(home, flow, *(home.contact(f"more{index}@acme.test").id for index in range(40)), version=flow.version)
    advance_until_idle()
    batches = count(flow)
    assert len(batches) == 2 and sum(each[0] for each in batches[1]) == 40 and batches[1][0][0] < batches[1][1][0]
    publish(flow, metric="clicks", event_name=None)
    assert SplitTest.get().started_at > started and count(flow) == []
    publish(flow, metric=None)
    assert SplitTest.select().count() == 0


def look(flow: Flow) -> SplitTest:
    """Decide about all running split tests now, and return that of the flow."""
    split_results._next_looks.clear()
    split_results.decide_running()
    test = split_tests.find(flow.id, 1)
    assert test is not None
    return test


def test_better_branches_get_more_of_the_later_contacts(home: Home) -> None:
    """With uneven shares, another batch begins after a day with enough contacts, and is compared in itself."""
    flow, _ = start_test(home, 300, uneven=True, decided_by="person")
    first = count(flow)
    convert_some(home, flow, {"b2": 0.1, "b3": 0.3})
    assert look(flow).batches == []
    home.advance(86_400)
    weights = look(flow).batches[0]["weights"]
    assert weights["b3"] > 0.85 and weights["b2"] >= 0.1 and abs(sum(weights.values()) - 1) < 1e-9
    assert len(look(flow).batches) == 1
    later = [home.contact(f"u{index}@acme.test").id for index in range(100)]
    start_runs(home, flow, *later, version=flow.version)
    advance_until_idle()
    (before, now) = count(flow)
    assert [row[0] for row in before] == [row[0] for row in first[0]]
    assert sum(row[0] for row in now) == 100 and now[1][0] > 75
    result = split_results.get_result(flow.id, flow.steps[0])
    assert result is not None and result.uneven and [row.share for row in result.variants] == list(weights.values())
    for contact_id in later[:40]:
        record_event(home, "order_paid", contact_id)
    assert [sum(row[1] for row in batch) for batch in count(flow)][1] == 40
    # Without it, the shares of the step hold again, and those who come then are counted apart.
    publish(flow, uneven=False)
    start_runs(home, flow, *(home.contact(f"v{index}@acme.test").id for index in range(40)), version=flow.version)
    advance_until_idle()
    assert 10 < count(flow)[2][0][0] < 30


def test_the_size_of_a_test_is_told_before(home: Home) -> None:
    """Without enough runs the rate is assumed; then it is that of the flow, with the days that the contacts take."""
    draft = split_sample.estimate(home.account_id, 1, SPLIT)
    assert draft is not None and (draft.is_measured, draft.rate, draft.days) == (False, 0.02, None)
    assert draft.needed is not None and 40_000 < draft.needed < 45_000
    flow, _ = start_test(home, 300)
    convert_some(home, flow, {"b2": 0.2, "b3": 0.2})
    sample = split_sample.estimate(home.account_id, flow.id, flow.steps[0])
    assert sample is not None and sample.is_measured and 0.1 < sample.rate < 0.3 and sample.per_day == 300
    assert sample.needed is not None and sample.days == -(-2 * sample.needed // 300)
    assert split_sample.estimate(home.account_id, flow.id, {**SPLIT, "metric": None}) is None
    # Programs that open links convert nothing
    by_program = """event = 'email_clicked', generated = 1, data = '{"verdict": "machine"}'"""
    transactions.write(run, f"UPDATE event SET {by_program}")
    clicked = split_sample.estimate(home.account_id, flow.id, {**flow.steps[0], "event_name": "email_clicked"})
    assert clicked is not None and not clicked.is_measured


def test_the_days_of_a_test_follow_the_last_30_days(home: Home) -> None:
    """A new step has as many days as it exists; later on, who came more than 30 days ago is not counted."""
    flow, _ = start_test(home, 60)

    def measure() -> SplitSample:
        sample = split_sample.estimate(home.account_id, flow.id, flow.steps[0])
        assert sample is not None and sample.needed is not None
        return sample

    for days, per_day in ((0, 60), (10, 6), (15, 2.4)):
        home.advance(days * 86_400)
        sample = measure()
        assert sample.needed is not None
        assert (sample.per_day, sample.days) == (per_day, math.ceil(2 * sample.needed / per_day))
    home.advance(15 * 86_400)
    sample = measure()
    assert (sample.per_day, sample.days) == (0, None)
    start_runs(home, flow, home.contact("late@acme.test").id, version=flow.version)
    advance_until_idle()
    assert measure().per_day == 0.03
    # A step that nobody has come to takes the contacts who entered the flow.
    other = split_sample.estimate(home.account_id, flow.id, {**flow.steps[0], "id": 99})
    assert other is not None and other.per_day == 0.03
