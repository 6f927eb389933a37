"""Pause, cancel and end of the service in the middle of a send (P5)."""

import random
import time

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance, identity
from tests.kit.recipients import completed, crowd, send
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4


def test_pauses_act_at_once_and_lose_nobody(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Paused and resumed at random: after each answer at most what is in hand leaves; in the end each has one copy."""
    count, pauses = (20_000, 50) if full else (1_500, 12)
    smtp_server.rules.delay("body", 0.005)
    api, dice, most = relayed().client(validate=False), random.Random(19), 0
    path = send(api, crowd(api, count))
    for turn in range(pauses):
        smtp_server.wait_for(turn * count // (pauses + 2) + 1)
        time.sleep(dice.uniform(0, 0.02))
        identity(api.post(f"{path}/pause").expect(200)["stats"])
        before = len(smtp_server.messages)
        time.sleep(0.3)
        most = max(most, len(smtp_server.messages) - before)
        assert api.post(f"{path}/resume").expect(200)["status"] == "active"
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, pauses=pauses, most_after_one=most)

    assert most <= CONNECTIONS
    assert (books.accepted, books.copies, books.missing) == (count, 0, 0)


def test_a_pause_lasts(relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures) -> None:
    """Once paused, silence; the bell and the pulse change nothing of that."""
    smtp_server.rules.delay("body", 0.01)
    api = relayed().client(validate=False)
    path = send(api, crowd(api, 400))
    smtp_server.wait_for(50)
    api.post(f"{path}/pause").expect(200)
    time.sleep(0.3)
    before = len(smtp_server.messages)
    time.sleep(10 if full else 2.5)
    after = len(smtp_server.messages)
    figures.books(balance(api, path, smtp_server.messages), silence=f"{10 if full else 2.5} s")

    assert before == after


def test_a_cancelled_campaign_is_over(relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures) -> None:
    """At 70 %: at most what is in hand leaves after the answer, the rest is `cancelled`, and nothing brings it back."""
    count = 20_000 if full else 1_000
    smtp_server.rules.delay("body", 0.005)
    server = relayed()
    api = server.client(validate=False)
    path = send(api, crowd(api, count))
    smtp_server.wait_for(count * 7 // 10, timeout=300)
    answer = api.post(f"{path}/cancel").expect(200)
    before = len(smtp_server.messages)
    time.sleep(1.5)
    more = len(smtp_server.messages) - before
    refused = [api.post(f"{path}/{verb}") for verb in ("resume", "pause", "send")]
    server.kill()
    api = server.start().client(validate=False)
    time.sleep(1.5)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, kills=1, after_the_answer=more, cancelled=books.stats["cancelled"])

    assert answer["status"] == "completed" and answer["phase"] == "cancelled"
    assert more <= CONNECTIONS and len(smtp_server.messages) == before + more
    assert {(one.status, one.json["reason"]) for one in refused} <= {
        (422, "invalid_transition"),
        (422, "campaign_locked"),
    }
    assert books.accepted + books.stats["cancelled"] == count and (books.copies, books.missing) == (0, 0)


def test_the_end_of_the_service_leaves_no_doubt(relayed: Relayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """SIGTERM in the middle, twice: what is open ends, exit 0, no row in doubt; each has one copy in the end."""
    smtp_server.rules.delay("body", 0.02)
    server = relayed(in_doubt="hold")
    api = server.client(validate=False)
    path, took = send(api, crowd(api, 500)), 0.0
    for at in (100, 300):
        smtp_server.wait_for(at)
        begun = time.monotonic()
        server.stop(expect=0)
        took = max(took, time.monotonic() - begun)
        api = server.start().client(validate=False)
        assert "being sent when the service last stopped" not in server.output
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, kills=0, stops=2, longest=f"{took:.1f} s")

    assert (books.accepted, books.copies, books.missing, books.uncertain) == (500, 0, 0, 0)


def test_a_server_that_hangs_does_not_hold_the_end(relayed: Relayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """Four conversations hang, two before their message and two after: SIGTERM ends within 30 s, exit 0.

    Who was never handed over is in no doubt; of the others nobody can know.
    """
    smtp_server.rules.hold("data", times=2)
    smtp_server.rules.store_then_hold(times=2)
    server = relayed(command_timeout="600s", reply_timeout="600s", in_doubt="hold")
    path = send(server.client(), crowd(server.client(), 40))
    smtp_server.wait_for_phase("data", count=4)
    smtp_server.wait_for(2)
    begun = time.monotonic()
    server.stop(expect=0)
    took = time.monotonic() - begun
    smtp_server.rules.clear()
    api = server.start().client()
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    figures.books(books, uncertain=books.uncertain, stopped_after=f"{took:.1f} s")

    assert took < 30
    assert (books.accepted, books.uncertain, books.copies, books.missing) == (38, 2, 0, 0)
