"""Repeated kills in the middle of a large send lose no message and make few copies (P2, P3).

With `--full` for three seeds.
"""

import random
import threading
import time
from http.client import HTTPException

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.client import Client
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import Reconciliation, check_sum_of_stats, reconcile
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4


class Watch:
    """Polls a campaign in a thread: its counts always add up, and it is never completed with open messages."""

    def __init__(self, api: Client, path: str) -> None:
        self._api, self._path, self._stop = api, path, threading.Event()
        self.checks, self._faults = 0, list[str]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                row = self._api.get(self._path).expect(200)
                check_sum_of_stats(row["stats"])
                assert row["status"] == "active" or row["stats"]["pending"] == 0, row
                self.checks += 1
            except (OSError, HTTPException):
                continue  # the server was just killed
            except AssertionError as fault:
                self._faults.append(str(fault))

    def end(self) -> None:
        """Stop polling, and raise AssertionError for anything wrong."""
        self._stop.set()
        self._thread.join()
        assert self.checks > 3 and not self._faults, self._faults[:3]


def send_with_kills(server: Server, sink: SmtpServer, count: int, kills: int, rng: random.Random) -> Reconciliation:
    """Send a campaign, kill the server at random moments, and return the result once it is completed."""
    api = server.client(validate=False)
    path = send_campaign(api, create_list(api, count))
    watch = Watch(api, path)
    for sent_count in sorted(rng.sample(range(count // 50, count * 19 // 20), kills)):
        sink.wait_for(sent_count, timeout=120)
        time.sleep(rng.uniform(0, 0.05))
        server.kill()
        server.start()
    wait_until_completed(api, path, timeout=300)
    watch.end()
    return reconcile(api, path, sink.messages)


def test_kills_lose_no_message(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures, seed: int
) -> None:
    """No message is missing, and each kill causes at most two copies per connection, of the same bytes."""
    count, kills = (20_000, 10) if full else (700, 3)
    books = send_with_kills(relayed(), smtp_server, count, kills, random.Random(seed))
    figures.books(books, kills=kills, uncertain=books.uncertain)

    assert (books.audience, books.accepted, books.missing, books.uncertain) == (count, count, 0, 0)
    assert books.copies <= kills * 2 * CONNECTIONS


def test_the_last_message_is_decided_after_a_kill(relayed: StartRelayed, smtp_server: SmtpServer) -> None:
    """A campaign whose only open message was in flight when the service was killed is completed."""
    server = relayed()
    api = server.client(validate=False)
    body = smtp_server.rules.hold("body", times=1)
    path = send_campaign(api, create_list(api, 1))
    body.wait_reached()
    server.kill()
    body.release()
    server.start()
    wait_until_completed(api, path, timeout=30)
    books = reconcile(api, path, smtp_server.messages)
    assert (books.accepted, books.missing) == (1, 0) and books.copies <= 1


def test_a_kill_while_sending_is_stopped_loses_no_message(relayed: StartRelayed, smtp_server: SmtpServer) -> None:
    """Messages in flight when a STOP file appeared and the service was killed are decided by the next service."""
    server = relayed()
    api = server.client(validate=False)
    body = smtp_server.rules.hold("body", times=CONNECTIONS)
    path = send_campaign(api, create_list(api, 20))
    body.wait_reached()
    (server.data / "STOP").touch()
    time.sleep(0.5)  # until the sender has seen it
    server.kill()
    body.release()
    server.start()
    (server.data / "STOP").unlink()
    wait_until_completed(api, path, timeout=30)
    books = reconcile(api, path, smtp_server.messages)
    assert (books.accepted, books.missing) == (20, 0) and books.copies <= 2 * CONNECTIONS


def test_kills_make_no_copies_with_hold(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures, seed: int
) -> None:
    """With `in_doubt = hold` there are no copies, and uncertain messages wait for a user's decision."""
    count, kills = (20_000, 10) if full else (500, 2)
    books = send_with_kills(relayed(in_doubt="hold"), smtp_server, count, kills, random.Random(seed))
    figures.books(books, kills=kills, uncertain=books.uncertain)

    assert (books.audience, books.missing, books.copies) == (count, 0, 0)
    assert books.accepted + books.uncertain == count and books.uncertain <= kills * 2 * CONNECTIONS
