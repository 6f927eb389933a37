"""A/B tests and holdouts from the send to the winner, on a server whose clock the tests move."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.experiment_rows import check_sums, count_groups, query
from tests.kit.recipients import create_list
from tests.kit.server import Server

CONTENT = {"subject": "First", "preheader": "Today", "body": "<p>Hi <a href='https://example.org/a'>offer</a></p>"}
SECOND = {"subject": "Second", "from_email": "second@bakery.example", "reply_to": "answers@bakery.example"}
BY_ORDERS = {"metric": "event", "event": "order"}


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """Return the clock of the server."""
    return TestClock(Path(tmp_path_factory.mktemp("clock"), "offset"))


@pytest.fixture(scope="module")
def server(clock: TestClock) -> Iterator[Server]:
    """Yield a server with the built-in inbox."""
    with Server(clock=clock).set_up() as running:
        yield running
        running.stop()


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


def test_the_winner_is_sent_to_those_who_wait(server: Server, api: Client, clock: TestClock) -> None:
    """A clear winner goes to all others at once; each got one variant, with its texts and sender, and the sums add up.

    The rate of those who were held out is compared with that of all others.
    """
    experiment = {"variants": [{}, SECOND], "test_share": 0.5, "holdout": 0.1, **BY_ORDERS}
    path = start(api, 400, experiment, "winner")
    wait_until_sent(server, api, path)
    before = count_groups(server, get_id(path))
    assert before.keys() == {-1, 0, 1, 2} and before[1] + before[2] > 150 and before[0] > 100
    assert check_sums(api, path)["decision"]["code"] == "too_early"
    order(api, list_contacts(server, path, 1)[:5])
    order(api, list_contacts(server, path, 2)[:60])
    order(api, list_contacts(server, path, -1)[:2])
    clock.advance(minutes=2)
    wait_for_state(api, path, "decided")
    completed = api.wait(path, lambda row: row["status"] == "completed", 30)
    after, result = count_groups(server, get_id(path)), check_sums(api, path)

    assert (after[-1], after[0], after[1], after[2]) == (before[-1], 0, before[1], before[2] + before[0])
    assert (result["winner"], result["chosen_by"], result["decision"]["code"]) == (2, "service", "winner")
    assert [variant["converted"] for variant in result["variants"]] == [5, 60]
    assert [variant["test_recipients"] for variant in result["variants"]] == [before[1], before[2]]
    assert result["variants"][1]["chance"] > 0.99
    assert (result["holdout"]["converted"], result["holdout"]["held_out_converted"]) == (65, 2)
    assert result["holdout"]["recipients"] == 400 - before[-1]
    assert completed["experiment"]["winner"] == 2
    subjects = query(
        server, "SELECT variant, subject, sender, reply_to, count(*) FROM message WHERE campaign_id = ? "
        "AND status = 'sent' GROUP BY 1, 2, 3, 4 ORDER BY 1", (get_id(path),),
    )  # fmt: skip
    assert [(row[0], row[1], row[4]) for row in subjects] == [(1, "First", after[1]), (2, "Second", after[2])]
    assert subjects[1][3] == "answers@bakery.example" != subjects[0][3]
