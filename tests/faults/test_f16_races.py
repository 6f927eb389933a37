"""Several at once: the same send, two campaigns to the same people, a second process (P10)."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.patience import soon
from tests.kit.recipients import address, completed, crowd, draft, send
from tests.kit.smtp import SmtpServer

# How long one campaign may stand still while another moves
STILL_SECONDS = 60


def test_twenty_sends_at_once_are_one(relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures) -> None:
    """Twenty people press the button in the same moment: one audience, each address once, the same answer for all."""
    count = 20_000 if full else 500
    api = relayed().client(validate=False)
    path = draft(api, crowd(api, count))
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: api.post(f"{path}/send"), range(20)))
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, sends=20)

    assert {answer.status for answer in answers} == {200}
    assert {(answer.json["id"], answer.json["audience_count"]) for answer in answers} == {
        (answers[0].json["id"], count)
    }
    assert (books.accepted, books.copies, books.missing) == (count, 0, 0)


def test_two_campaigns_to_the_same_people_share_the_way(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Sent in the same second, both complete, each once per address; neither waits while the other moves."""
    count = 10_000 if full else 600
    api = relayed().client(validate=False)
    group = crowd(api, count)
    paths = [draft(api, group, subject=name) for name in ("First", "Second")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda path: api.post(f"{path}/send").expect(200), paths))
    for path, name in zip(paths, ("First", "Second"), strict=True):
        completed(api, path, timeout=300)
        figures.books(balance(api, path, (one for one in smtp_server.messages if one.subject == name)))
    order = [message.subject for message in smtp_server.messages]
    until = len(order) - 1 - min(order[::-1].index(name) for name in ("First", "Second"))
    longest = max_still([message.time for message in smtp_server.messages if message.subject == order[until]])
    halves = Counter(order[: len(order) // 2])
    figures.note(first_half_of_both=f"{halves['First']} and {halves['Second']}", longest_still=f"{longest:.1f} s")

    assert len(order) == 2 * count
    assert min(halves.values()) > count / 4
    assert longest < STILL_SECONDS


def max_still(times: list[float]) -> float:
    """Return the longest time between two messages."""
    return max(after - before for before, after in pairwise(times))


def test_a_second_process_leaves_a_send_alone(relayed: Relayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """Started in the middle of a send on the same data, it ends within 2 s and says why; the send notices nothing."""
    smtp_server.rules.delay("body", 0.01)
    server = relayed()
    api = server.client(validate=False)
    path = send(api, crowd(api, 500))
    smtp_server.wait_for(50)
    begun = time.monotonic()
    refused = server.cli("serve", "--listen", "127.0.0.1:1", expect=1)
    took = time.monotonic() - begun
    assert api.get(path).expect(200)["stats"]["pending"] > 0
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, refused_after=f"{took:.1f} s")

    assert took < soon(2) and "another service runs on" in refused.stderr
    assert (books.accepted, books.copies, books.missing) == (500, 0, 0)
    assert {message.to for message in smtp_server.messages} == {address(index) for index in range(500)}
