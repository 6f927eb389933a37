"""A/B tests and holdouts from the send to the winner, on a server whose clock the tests move."""

import csv
import json
from typing import Any

from appliance.campaigns import experiment_results
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.experiment_rows import check_sums, count_groups, query
from tests.kit.recipients import create_list
from tests.kit.server import Server
from tests.kit.shared_clock import clock, server

__all__ = ["clock", "server"]
CONTENT = {"subject": "First", "preheader": "Today", "body": "<p>Hi <a href='https://example.org/a'>offer</a></p>"}
SECOND = {"subject": "Second", "from_email": "second@bakery.example", "reply_to": "answers@bakery.example"}
BY_ORDERS = {"metric": "event", "event": "order"}


def start(api: Client, people: int, experiment: dict[str, Any], name: str, **send: Any) -> str:
    """Send a campaign with a test to new contacts and return its path."""
    body = {
        "name": name, "trigger_attributes": {"contact_list_id": create_list(api, people, name)},
        "template_attributes": CONTENT, "experiment": experiment,
    }  # fmt: skip
    path = f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"
    api.post(f"{path}/send", send).expect(200)
    return path


def get_id(path: str) -> int:
    """Return the id of a campaign by its path."""
    return int(path.rpartition("/")[2])


def list_contacts(server: Server, path: str, variant: int) -> list[int]:
    """Return the contacts of a variant in order of their ids."""
    sql = "SELECT contact_id FROM message WHERE campaign_id = ? AND variant = ? ORDER BY 1"
    return [row[0] for row in query(server, sql, (get_id(path), variant))]


def order(api: Client, contacts: list[int], amount: float = 10.0) -> None:
    """Record an order of each contact."""
    for contact_id in contacts:
        api.post("/events", {"event": "order", "contact_id": contact_id, "amount": amount}).expect(201)


def wait_until_sent(server: Server, api: Client, path: str) -> None:
    """Wait until only those who wait for the winner have an open message."""
    waiting = "SELECT count(*) FROM message WHERE campaign_id = ? AND variant = 0"
    api.wait(path, lambda row: row["stats"]["pending"] == query(server, waiting, (get_id(path),))[0][0], 60)


def wait_for_state(api: Client, path: str, state: str) -> dict[str, Any]:
    """Wait until the test of a campaign is in a state and return its figures."""
    result: dict[str, Any] = api.wait(f"{path}/experiment", lambda row: row["state"] == state, 30)
    return result


def list_decided(api: Client, path: str) -> list[dict[str, Any]]:
    """Return the data of the events that say how the test of a campaign ended."""
    events = api.get("/events", event="campaign_test_decided", limit=100).expect(200)
    own = [event for event in events if event["resource_uid"] == f"campaign:{get_id(path)}"]
    return [{key: value for key, value in event["data"].items() if key != "campaign_id"} for event in own]


def test_the_winner_is_sent_to_those_who_wait(server: Server, api: Client, clock: TestClock) -> None:
    """A clear winner goes to all others at once; each got one variant, with its texts and sender, and the sums add up.

    The rate of those who were held out is compared with that of all others.
    """
    experiment = {"variants": [{}, SECOND], "test_share": 0.5, "holdout": 0.1, **BY_ORDERS}
    path = start(api, 400, experiment, "winner")
    wait_until_sent(server, api, path)
    before = count_groups(server, get_id(path))
    assert before.keys() == {-1, 0, 1, 2} and before[1] + before[2] > 130 and before[0] > 100
    assert check_sums(api, path)["decision"]["code"] == "too_early"
    order(api, list_contacts(server, path, 1)[:5])
    order(api, list_contacts(server, path, 2)[:50])
    order(api, list_contacts(server, path, -1)[:2])
    clock.advance(minutes=2)
    wait_for_state(api, path, "decided")
    completed = api.wait(path, lambda row: row["status"] == "completed", 30)
    after, result = count_groups(server, get_id(path)), check_sums(api, path)

    assert (after[-1], after[0], after[1], after[2]) == (before[-1], 0, before[1], before[2] + before[0])
    assert (result["winner"], result["chosen_by"], result["decision"]["code"]) == (2, "service", "winner")
    assert [variant["converted"] for variant in result["variants"]] == [5, 50]
    assert [variant["test_recipients"] for variant in result["variants"]] == [before[1], before[2]]
    assert result["variants"][1]["chance"] > 0.99
    assert (result["holdout"]["converted"], result["holdout"]["held_out_converted"]) == (55, 2)
    assert result["holdout"]["recipients"] == 400 - before[-1]
    assert completed["experiment"]["winner"] == 2
    assert list_decided(api, path) == [{"winner": 2, "chosen_by": "service", "result": "winner"}]
    subjects = query(
        server, "SELECT variant, subject, sender, reply_to, count(*) FROM message WHERE campaign_id = ? "
        "AND status = 'sent' GROUP BY 1, 2, 3, 4 ORDER BY 1", (get_id(path),),
    )  # fmt: skip
    assert [(row[0], row[1], row[4]) for row in subjects] == [(1, "First", after[1]), (2, "Second", after[2])]
    assert subjects[1][3] == "answers@bakery.example" != subjects[0][3]


def test_a_person_decides_and_a_pause_moves_the_end(server: Server, api: Client, clock: TestClock) -> None:
    """With `person`, the test waits for a choice, of whatever variant; the end moves by the time of a pause."""
    experiment = {"variants": [{"name": "Long"}, SECOND], "test_share": 0.3, "decided_by": "person", **BY_ORDERS}
    path = start(api, 200, experiment, "person")
    wait_until_sent(server, api, path)
    before = count_groups(server, get_id(path))
    ends_at = api.get(path).json["experiment"]["ends_at"]
    order(api, list_contacts(server, path, 2)[:8] + list_contacts(server, path, 2)[:1])
    api.post(f"{path}/pause").expect(200)
    clock.advance(hours=30)
    assert api.get(f"{path}/experiment").json["state"] == "testing"
    resumed = api.post(f"{path}/resume").expect(200)
    assert resumed["experiment"]["ends_at"][:13] > ends_at[:13]
    clock.advance(hours=23)
    assert not check_sums(api, path)["is_waiting_for_person"]
    assert api.get(path).json["waiting"]["reason"] == "winner"
    clock.advance(hours=2)
    waiting = api.wait(f"{path}/experiment", lambda row: row["is_waiting_for_person"], 10)
    assert (waiting["state"], waiting["decision"]["code"], waiting["waiting"]) == ("testing", "too_close", before[0])
    assert waiting["variants"][1]["converted"] == 8

    assert api.post(f"{path}/experiment/winner", {"variant": 3}).expect(422)["validation_errors"] == {
        "variant": ["must exist"]
    }
    chosen = api.post(f"{path}/experiment/winner", {"variant": 1}).expect(200)
    assert chosen["experiment"]["chosen_by"].startswith("key:")
    api.wait(path, lambda row: row["status"] == "completed", 30)
    after = count_groups(server, get_id(path))
    assert (after[1], after[2]) == (before[1] + before[0], before[2])
    assert check_sums(api, path)["winner"] == 1
    actor = chosen["experiment"]["chosen_by"]
    assert list_decided(api, path) == [{"winner": 1, "chosen_by": actor, "result": "too_close"}]
    again = api.post(f"{path}/experiment/winner", {"variant": 2}).expect(422)
    assert (again["reason"], again["from"]) == ("invalid_transition", "decided")


def test_the_leader_is_sent_if_it_is_too_close(server: Server, api: Client, clock: TestClock) -> None:
    """At the end without a winner, the service sends the variant of the least expected loss."""
    path = start(api, 60, {"variants": [{}, SECOND], "test_share": 0.5, **BY_ORDERS}, "close")
    wait_until_sent(server, api, path)
    order(api, list_contacts(server, path, 2)[:3])
    clock.advance(hours=24, minutes=2)
    result = wait_for_state(api, path, "decided")
    assert (result["winner"], result["chosen_by"], result["decision"]["code"]) == (2, "service", "too_close")
    api.wait(path, lambda row: row["status"] == "completed", 30)
    assert count_groups(server, get_id(path))[0] == 0


def test_a_test_of_everybody_ends_without_a_release(server: Server, api: Client, clock: TestClock) -> None:
    """Nobody waits, so the campaign completes at once, and the test ends without a winner if none is clear."""
    path = start(api, 40, {"variants": [{}, SECOND, {"body": "<p>Third</p>"}], **BY_ORDERS}, "everybody")
    completed = api.wait(path, lambda row: row["status"] == "completed", 30)
    assert (completed["stats"]["sent"], completed["experiment"]["state"]) == (40, "testing")
    clock.advance(hours=24, minutes=2)
    result = wait_for_state(api, path, "decided")
    assert (result["winner"], result["chosen_by"], result["waiting"]) == (None, None, 0)
    [decided] = list_decided(api, path)
    assert (decided["winner"], decided["chosen_by"]) == (None, None)
    check_sums(api, path)


def test_an_undone_send_can_be_sent_again(server: Server, api: Client, clock: TestClock) -> None:
    """Undo makes the test a draft without rows; the next send draws the groups again."""
    path = start(api, 50, {"variants": [{}, SECOND], "test_share": 0.5}, "undone", hold_seconds=600)
    assert count_groups(server, get_id(path)).keys() == {0, 1, 2}
    undone = api.patch(path, {"status": "draft"}).expect(200)
    assert (undone["experiment"]["state"], undone["experiment"]["ends_at"]) == ("draft", None)
    changed = {"variants": [{"id": variant["id"]} for variant in undone["experiment"]["variants"]], "test_share": 1}
    api.patch(path, {"experiment": changed}).expect(200)
    api.post(f"{path}/send").expect(200)
    api.wait(path, lambda row: row["status"] == "completed", 30)
    assert count_groups(server, get_id(path)).keys() == {1, 2}
    locked = api.patch(path, {"experiment": {"test_share": 0.5}}).expect(422)
    assert locked["reason"] == "campaign_locked"
    assert api.patch(path, {"name": "Other", "experiment": {"test_share": 1}}).status == 200


def test_variants_have_their_own_times(server: Server, api: Client, clock: TestClock) -> None:
    """A variant leaves at its time; both are compared for equally long, and nothing is decided before the end."""
    later = {**SECOND, "send_after_minutes": 120}
    path = start(api, 200, {"variants": [{}, later], "test_share": 0.9, **BY_ORDERS}, "times")
    first, second = list_contacts(server, path, 1), list_contacts(server, path, 2)
    waiting = api.wait(path, lambda row: row["stats"]["sent"] == len(first), 30)["waiting"]
    assert waiting["reason"] == "variant"
    order(api, first[:40])
    assert [variant["converted"] for variant in check_sums(api, path)["variants"]] == [0, 0]
    clock.advance(minutes=121)
    wait_until_sent(server, api, path)
    assert api.get(path).json["stats"]["sent"] == len(first) + len(second)
    order(api, second[:2])
    clock.advance(minutes=5)
    assert [variant["converted"] for variant in check_sums(api, path)["variants"]] == [40, 2]
    assert api.get(f"{path}/experiment").json["state"] == "testing"
    clock.advance(hours=22)
    result = wait_for_state(api, path, "decided")
    assert (result["winner"], result["decision"]["code"]) == (1, "winner")


def test_clicks_decide_by_default(server: Server, api: Client, clock: TestClock) -> None:
    """Clicks are counted by variant, and links have joint numbers over variants that have other links."""
    other = {"body": "<p><a href='https://example.org/b'>b</a> <a href='https://example.org/a'>a</a></p>"}
    path = start(api, 60, {"variants": [{}, other]}, "clicks")
    api.wait(path, lambda row: row["status"] == "completed", 30)
    messages = query(
        server, "SELECT id, variant FROM message WHERE campaign_id = ? AND variant = 2 LIMIT 2", (get_id(path),)
    )
    captured = {row["message_id"]: row["id"] for row in api.all("/capture")}
    # The second link is that to unsubscribe.
    for link, (message_id, _) in zip((1, 3), messages, strict=True):
        api.post(f"/capture/{captured[message_id]}/simulate", {"action": "click", "link": link}).expect(200)
    clock.advance(minutes=1)  # simulated clicks are some seconds after the message
    result = api.wait(f"{path}/experiment", lambda row: row["variants"][1]["clicked"] == 2, 30)
    assert [variant["converted"] for variant in result["variants"]] == [0, 2]
    report = api.get(f"{path}/report").expect(200)
    assert {(link["url"], link["clicked"]["count"]) for link in report["links"]} >= {
        ("https://example.org/a", 1), ("https://example.org/b", 1),
    }  # fmt: skip
    assert len(api.all(f"{path}/recipients", variant=2)) == result["variants"][1]["recipients"]


def test_an_uneven_test_is_sent_in_batches(server: Server, api: Client, clock: TestClock) -> None:
    """A variant that does better gets more of the later batches; nobody changes their variant."""
    experiment = {"variants": [{}, SECOND], "uneven": True, "decided_by": "person", **BY_ORDERS}
    # With fewer, a variant has under 100 recipients in the first batch by chance, and the second has equal shares too.
    path = start(api, 1100, experiment, "uneven")
    groups: dict[int, int] = {}
    progress = "SELECT state, json_array_length(batches) FROM experiment WHERE campaign_id = ?"
    for batch in range(1, 5):
        wait_until_sent(server, api, path)
        count_groups(server, get_id(path))
        assigned = "SELECT contact_id, variant FROM message WHERE campaign_id = ? AND variant > 0"
        current = dict(query(server, assigned, (get_id(path),)))
        assert len(current) > 150 * batch and groups.items() <= current.items()
        groups = current
        if batch == 1:
            order(api, [contact_id for contact_id, variant in current.items() if variant == 2][:20])
        if batch < 4:
            clock.advance(hours=6, minutes=1)
            released = ("testing", batch + 1)
            api.wait(path, lambda _, now=released: query(server, progress, (get_id(path),)) == [now], 30)
    sizes = query(server, "SELECT batches FROM experiment WHERE campaign_id = ?", (get_id(path),))[0][0]
    batches = [batch["sizes"] for batch in json.loads(sizes)]
    assert all(later[1] > 3 * later[0] for later in batches[1:])
    result = check_sums(api, path)
    assert [variant["test_recipients"] for variant in result["variants"]] == [
        sum(batch[0] for batch in batches), sum(batch[1] for batch in batches),
    ]  # fmt: skip
    assert result["waiting"] == 0


def test_decisions_count_from_an_index(server: Server) -> None:
    """The counts of a decision read ranges of an index, neither the table nor all messages of a campaign."""
    counted = experiment_results._COUNT_ENGAGED.format(column="clicked")
    plan = query(server, f"EXPLAIN QUERY PLAN {counted}", (1, 1, 1, 2))
    assert [row[3] for row in plan] == [
        "SEARCH message USING COVERING INDEX message_variant_clicked "
        "(campaign_id=? AND variant=? AND variant_batch=? AND clicked_at>? AND clicked_at<?)"
    ]
    events = experiment_results._COUNT_EVENTS.format(spans="(1, 1, 0, 9)", amount="0")
    steps = " ".join(row[3] for row in query(server, f"EXPLAIN QUERY PLAN {events}", (1, 1, "order", 0, 9, 0)))
    assert (
        "SEARCH e USING COVERING INDEX event_of_name (account_id=? AND event=? AND created_at>? AND created_at<?)"
        in steps
    )
    assert "SEARCH m USING INDEX message_campaign_contact (campaign_id=? AND contact_id=?)" in steps


def test_an_sms_test_sends_each_variant(server: Server, api: Client) -> None:
    """Variants of an SMS differ in their text; each contact gets one of them, and it is part of the export."""
    list_id = api.post("/lists", {"name": "Phones"}).expect(201)["id"]
    for number in range(12):
        api.post("/contacts", {"phone": f"+49151123456{number:02}", "list_ids": [list_id]}).expect(201)
    body = {
        "name": "SMS", "channel": "sms", "trigger_attributes": {"contact_list_id": list_id},
        "template_attributes": {"body": "First"}, "experiment": {"variants": [{}, {"body": "Second"}], **BY_ORDERS},
    }  # fmt: skip
    path = f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"
    api.post(f"{path}/send").expect(200)
    api.wait(path, lambda row: row["status"] == "completed", 30)
    groups = count_groups(server, get_id(path))
    assert groups.keys() <= {1, 2} and sum(groups.values()) == 12
    texts = {row["message_id"]: row["preview"] for row in api.all("/capture") if row["channel"] == "sms"}
    variants = dict(query(server, "SELECT id, variant FROM message WHERE campaign_id = ?", (get_id(path),)))
    assert {(variants[number], texts[number].split()[0]) for number in variants} <= {(1, "First"), (2, "Second")}
    lines = list(csv.DictReader(api.get("/exports/messages.csv", campaign_id=get_id(path)).text.splitlines()))
    assert {int(line["id"]): int(line["variant"]) for line in lines} == variants


def test_amounts_decide_if_they_are_compared(server: Server, api: Client, clock: TestClock) -> None:
    """The variant whose recipients paid more wins, although as many of the other ordered."""
    path = start(api, 200, {"variants": [{}, SECOND], "test_share": 0.8, **BY_ORDERS, "by_amount": True}, "amounts")
    wait_until_sent(server, api, path)
    order(api, list_contacts(server, path, 1)[:45], amount=10)
    order(api, list_contacts(server, path, 2)[:45], amount=100)
    assert check_sums(api, path)["variants"][1]["amount"] == 4500
    clock.advance(minutes=2)
    result = wait_for_state(api, path, "decided")
    assert (result["winner"], result["decision"]["code"]) == (2, "winner")
    assert [variant["converted"] for variant in result["variants"]] == [45, 45]
    assert result["variants"][1]["value"] > 5 * result["variants"][0]["value"]
