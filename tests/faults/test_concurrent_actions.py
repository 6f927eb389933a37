"""Concurrent actions: the same send twenty times, two campaigns to the same list, and a second process (P10)."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.recipients import create_campaign, create_list, recipient_address, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout

# Maximum seconds without progress of one campaign while another is sent
MAX_STALL_SECONDS = 60


def test_concurrent_sends_are_one(relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures) -> None:
    """Twenty simultaneous `send` requests get the same response, and each recipient gets the mail once."""
    count = 20_000 if full else 250
    api = relayed().client(validate=False)
    path = create_campaign(api, create_list(api, count))
    with ThreadPoolExecutor(20) as pool:
        responses = list(pool.map(lambda _: api.post(f"{path}/send"), range(20)))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, sends=20)

    assert {response.status for response in responses} == {200}
    assert {(response.json["id"], response.json["audience_count"]) for response in responses} == {
        (responses[0].json["id"], count)
    }
    assert (books.accepted, books.copies, books.missing) == (count, 0, 0)


@pytest.mark.full
def test_two_campaigns_are_sent_in_turns(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Two simultaneous campaigns to the same list both complete, and neither stalls while the other is sent."""
    count = 10_000 if full else 300
    api = relayed().client(validate=False)
    list_id = create_list(api, count)
    paths = [create_campaign(api, list_id, subject=name) for name in ("First", "Second")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda path: api.post(f"{path}/send").expect(200), paths))
    for path, name in zip(paths, ("First", "Second"), strict=True):
        wait_until_completed(api, path, timeout=300)
        figures.books(reconcile(api, path, (message for message in smtp_server.messages if message.subject == name)))
    order = [message.subject for message in smtp_server.messages]
    last_index = len(order) - 1 - min(order[::-1].index(name) for name in ("First", "Second"))
    longest_stall = max_stall(
        [message.time for message in smtp_server.messages if message.subject == order[last_index]]
    )
    first_half = Counter(order[: len(order) // 2])
    figures.note(
        first_half_of_both=f"{first_half['First']} and {first_half['Second']}", longest_still=f"{longest_stall:.1f} s"
    )

    assert len(order) == 2 * count
    assert min(first_half.values()) > count / 4
    assert longest_stall < MAX_STALL_SECONDS


def max_stall(times: list[float]) -> float:
    """Return the longest time between two messages, in seconds."""
    return max(after - before for before, after in pairwise(times))


def test_a_second_process_is_rejected_during_a_send(
    relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """A second service on the same data exits within 2 s with the reason, and the send is not affected."""
    smtp_server.rules.delay("body", 0.01)
    server = relayed()
    api = server.client(validate=False)
    path = send_campaign(api, create_list(api, 250))
    smtp_server.wait_for(50)
    started = time.monotonic()
    result = server.cli("serve", "--listen", "127.0.0.1:1", expect=1)
    seconds = time.monotonic() - started
    assert api.get(path).expect(200)["stats"]["pending"] > 0
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, refused_after=f"{seconds:.1f} s")

    assert seconds < extend_timeout(2) and "another service runs on" in result.stderr
    assert (books.accepted, books.copies, books.missing) == (250, 0, 0)
    assert {message.to for message in smtp_server.messages} == {recipient_address(index) for index in range(250)}
