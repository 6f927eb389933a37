"""Pausing, cancelling and stopping the service in the middle of a send (P5)."""

import random
import time

import pytest

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import check_sum_of_stats, reconcile
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4


def test_pauses_act_at_once_and_lose_no_message(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """After each pause at most the messages in flight leave; in the end each recipient has one copy."""
    count, pauses = (20_000, 50) if full else (400, 4)
    smtp_server.rules.delay("body", 0.005)
    api, rng, max_after_pause = relayed().client(validate=False), random.Random(19), 0
    path = send_campaign(api, create_list(api, count))
    for number in range(pauses):
        smtp_server.wait_for(number * count // (pauses + 2) + 1)
        time.sleep(rng.uniform(0, 0.02))
        check_sum_of_stats(api.post(f"{path}/pause").expect(200)["stats"])
        before = len(smtp_server.messages)
        time.sleep(0.3)
        max_after_pause = max(max_after_pause, len(smtp_server.messages) - before)
        assert api.post(f"{path}/resume").expect(200)["status"] == "active"
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, pauses=pauses, most_after_one=max_after_pause)

    assert max_after_pause <= CONNECTIONS
    assert (books.accepted, books.copies, books.missing) == (count, 0, 0)


def test_a_pause_lasts(relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures) -> None:
    """After a pause nothing more leaves, whatever wakes the sender."""
    smtp_server.rules.delay("body", 0.01)
    api = relayed().client(validate=False)
    path = send_campaign(api, create_list(api, 400))
    smtp_server.wait_for(50)
    api.post(f"{path}/pause").expect(200)
    time.sleep(0.3)
    before = len(smtp_server.messages)
    time.sleep(10 if full else 2.5)
    after = len(smtp_server.messages)
    figures.books(reconcile(api, path, smtp_server.messages), silence=f"{10 if full else 2.5} s")

    assert before == after


@pytest.mark.full
def test_a_cancelled_campaign_stays_cancelled(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """At most the messages in flight leave; the rest stays `cancelled`, also after other verbs and a kill."""
    count = 20_000 if full else 500
    smtp_server.rules.delay("body", 0.005)
    server = relayed()
    api = server.client(validate=False)
    path = send_campaign(api, create_list(api, count))
    smtp_server.wait_for(count * 7 // 10, timeout=300)
    response = api.post(f"{path}/cancel").expect(200)
    before = len(smtp_server.messages)
    time.sleep(1.5)
    sent_later = len(smtp_server.messages) - before
    rejected = [api.post(f"{path}/{verb}") for verb in ("resume", "pause", "send")]
    server.kill()
    api = server.start().client(validate=False)
    time.sleep(1.5)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, kills=1, after_the_answer=sent_later, cancelled=books.stats["cancelled"])

    assert response["status"] == "completed" and response["phase"] == "cancelled"
    assert sent_later <= CONNECTIONS and len(smtp_server.messages) == before + sent_later
    assert {(rejection.status, rejection.json["reason"]) for rejection in rejected} <= {
        (422, "invalid_transition"),
        (422, "campaign_locked"),
    }
    assert books.accepted + books.stats["cancelled"] == count and (books.copies, books.missing) == (0, 0)


def test_stopping_leaves_no_uncertain_message(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """After two SIGTERMs in the middle of a send each recipient has one copy, and no message is uncertain."""
    smtp_server.rules.delay("body", 0.02)
    server = relayed(in_doubt="hold")
    api = server.client(validate=False)
    path, longest_stop = send_campaign(api, create_list(api, 500)), 0.0
    for sent_count in (100, 300):
        smtp_server.wait_for(sent_count)
        started = time.monotonic()
        server.stop(expect=0)
        longest_stop = max(longest_stop, time.monotonic() - started)
        api = server.start().client(validate=False)
        assert "being sent when the service last stopped" not in server.output
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, kills=0, stops=2, longest=f"{longest_stop:.1f} s")

    assert (books.accepted, books.copies, books.missing, books.uncertain) == (500, 0, 0, 0)


@pytest.mark.full
def test_hanging_servers_do_not_delay_stopping(
    relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """With hanging SMTP servers SIGTERM ends the service within 30 s with exit code 0.

    Messages that were not transmitted are sent later; the transmitted ones are uncertain.
    """
    smtp_server.rules.hold("data", times=2)
    smtp_server.rules.store_then_hold(times=2)
    server = relayed(command_timeout="600s", reply_timeout="600s", in_doubt="hold")
    path = send_campaign(server.client(), create_list(server.client(), 40))
    smtp_server.wait_for_phase("data", count=4)
    smtp_server.wait_for(2)
    started = time.monotonic()
    server.stop(expect=0)
    seconds = time.monotonic() - started
    smtp_server.rules.clear()
    api = server.start().client()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, uncertain=books.uncertain, stopped_after=f"{seconds:.1f} s")

    assert seconds < 30
    assert (books.accepted, books.uncertain, books.copies, books.missing) == (38, 2, 0, 0)
