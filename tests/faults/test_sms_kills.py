"""Repeated kills in the middle of an SMS campaign: no SMS is lost or sent twice (P13)."""

import random
import time

from tests.faults.conftest import Figures, StartSms
from tests.faults.test_kills_in_a_send import Watch
from tests.kit import sms_recipients
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms
from tests.kit.reconciliation import Reconciliation
from tests.kit.server import Server

CONNECTIONS = 16


def wait_until_completed(api: Client, clock: TestClock, path: str, timeout: float = 120) -> None:
    """Wait until a campaign is completed, advancing the clock while it waits for look-ups."""
    end = time.monotonic() + timeout
    while (row := api.get(path).expect(200))["status"] != "completed":
        assert time.monotonic() < end, row
        waiting = row["waiting"]
        if waiting is not None and waiting["reason"] == "retries":
            clock.advance(30)
        time.sleep(0.1)


def send_with_kills(
    server: Server, sms: FakeSms, clock: TestClock, count: int, kills: int, rng: random.Random
) -> Reconciliation:
    """Send an SMS campaign, kill the server at random moments, and return the result once it is completed."""
    api = server.client(validate=False)
    path = sms_recipients.send_campaign(api, sms_recipients.create_list(api, count))
    watch = Watch(api, path)
    for accepted_count in sorted(rng.sample(range(count // 50, count * 17 // 20), kills)):
        sms.wait_for(accepted_count, timeout=240)
        time.sleep(rng.uniform(0, 0.05))
        server.kill()
        server.start()
    wait_until_completed(api, clock, path, timeout=600)
    watch.end()
    return sms_recipients.reconcile(api, path, sms.accepted)


def test_kills_lose_and_copy_no_sms(
    texting: StartSms, fake_sms: FakeSms, clock: TestClock, full: bool, figures: Figures, seed: int
) -> None:
    """With `hold` each SMS is sent at most once; the uncertain ones are resent by a user, and then all have arrived."""
    count, kills = (20_000, 10) if full else (300, 2)
    server = texting()
    books = send_with_kills(server, fake_sms, clock, count, kills, random.Random(seed))
    figures.books(books, kills=kills, uncertain=books.uncertain)

    assert (books.audience, books.missing, books.copies) == (count, 0, 0)
    assert books.accepted + books.uncertain == count and books.uncertain <= kills * CONNECTIONS
    assert len(fake_sms.accepted) == books.accepted, "the provider has accepted an uncertain SMS"
    api = server.client(validate=False)
    path = f"/campaigns/{api.get('/campaigns').json[0]['id']}"
    for row in api.all("/messages", campaign_id=int(path.rpartition("/")[2]), status="uncertain"):
        api.post(f"/messages/{row['id']}/retry").expect(200)
    fake_sms.wait_for(count, timeout=60)
    api.wait(path, lambda row: row["stats"]["pending"] == 0, 60)
    books = sms_recipients.reconcile(api, path, fake_sms.accepted)
    assert (books.accepted, books.missing, books.copies, books.uncertain) == (count, 0, 0, 0)
