"""Connections that hang, break or reply oddly, and what each phase means for the message (P3)."""

import random

import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures, StartRelayed
from tests.kit.client import Client
from tests.kit.recipients import NO_RATE_LIMITS, create_list, recipient_address, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer


def row_of(api: Client, path: str, index: int) -> dict[str, object]:
    """Return the message of a campaign to the contact with this index."""
    rows: list[dict[str, object]] = api.all("/messages", campaign_id=path.rpartition("/")[2])
    return next(row for row in rows if row["to"] == recipient_address(index))


def test_a_missing_greeting_counts_no_attempt(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """Without a greeting no attempt is counted; once the server greets again, each message is sent once."""
    smtp_server.rules.hold("connect")
    api = relayed(command_timeout="1s").client()
    path = send_campaign(api, create_list(api, 60))
    smtp_server.wait_for_phase("connect", count=6)
    smtp_server.rules.clear()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books)

    assert (books.accepted, books.copies, books.missing) == (60, 0, 0)
    assert {row["attempts"] for row in api.all("/messages")} == {1}


def test_a_hang_before_the_data_is_retried(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """A message that was not transmitted when the server hangs is sent again, and no row is uncertain."""
    for phase, index in (("mail", None), ("rcpt", 3), ("data", 5)):
        smtp_server.rules.hold(phase, recipient_address(index) if index else "*", times=1)
    api = relayed(command_timeout="1s", in_doubt="hold").client()
    path = send_campaign(api, create_list(api, 60))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, uncertain=books.uncertain)
    smtp_server.rules.clear()

    assert (books.accepted, books.copies, books.missing, books.uncertain) == (60, 0, 0, 0)
    assert row_of(api, path, 3)["attempts"] == row_of(api, path, 5)["attempts"] == 2


@pytest.mark.parametrize("mode", ["resend", "hold"])
def test_a_hang_after_the_data_leaves_the_message_uncertain(
    relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures, mode: str
) -> None:
    """Without a reply within `reply_timeout` the message is resent once with the same bytes, or held for a user."""
    smtp_server.rules.store_then_hold(recipient_address(3), times=1)
    smtp_server.rules.store_then_hold(recipient_address(5))
    api = relayed(reply_timeout="2s", in_doubt=mode).client()
    path = send_campaign(api, create_list(api, 60))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    first, *rest = [entry.time for entry in smtp_server.phases("body", recipient_address(5))]
    figures.books(books, uncertain=books.uncertain, waited=f"{rest[0] - first:.1f} s" if rest else "")
    smtp_server.rules.clear()

    assert books.missing == 0
    if mode == "hold":
        assert (books.accepted, books.uncertain, books.copies, rest) == (58, 2, 0, [])
    else:
        assert (books.accepted, books.uncertain, books.copies, len(rest)) == (59, 1, 2, 1)
        assert rest[0] - first >= 2
        assert row_of(api, path, 5)["status"] == "uncertain" and row_of(api, path, 3)["status"] == "sent"


def test_a_reset_within_a_large_message_is_retried(fresh_server: FreshServer, figures: Figures) -> None:
    """A connection that is reset before all data is sent leaves no uncertain message and no copy."""
    rng, count = random.Random(8), 40
    with SmtpServer(window=4096) as sink:
        reset_indexes = rng.sample(range(count), 4)
        for index in reset_indexes:
            sink.rules.reset(rng.randrange(1, 100_000), recipient_address(index), times=1)
        server = fresh_server(relay=sink.port, env=NO_RATE_LIMITS | {"CAMPANERO_EMAIL__IN_DOUBT": "hold"})
        api = server.client()
        body = "<p>" + "A loaf of rye and a loaf of spelt. " * 12_000 + "</p>"
        path = send_campaign(api, create_list(api, count), body=body)
        wait_until_completed(api, path)
        books = reconcile(api, path, sink.messages)
        figures.books(books, resets=len(reset_indexes), uncertain=books.uncertain)

        assert len(sink.messages[0].raw) > 400_000
        assert (books.accepted, books.copies, books.missing, books.uncertain) == (count, 0, 0, 0)
        assert all(row_of(api, path, index)["attempts"] == 2 for index in reset_indexes)


def test_a_reset_within_a_small_message_makes_no_copy(
    relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """A small message is already sent when the reset comes, so it is uncertain: it is resent, and stored once."""
    rng, count = random.Random(9), 200
    reset_indexes = rng.sample(range(count), 10)
    for index in reset_indexes:
        smtp_server.rules.reset(rng.randrange(1, 900), recipient_address(index), times=1)
    api = relayed().client(validate=False)
    path = send_campaign(api, create_list(api, count))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, resets=len(reset_indexes), uncertain=books.uncertain)

    assert (books.accepted, books.copies, books.missing, books.uncertain) == (count, 0, 0, 0)


def test_a_lost_reply_makes_one_copy(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """A message that is stored without a reply is resent once; after a second lost reply it is `uncertain`."""
    count = 2_000 if full else 200
    closed_indexes = range(0, count, 20)
    smtp_server.rules.store_then_close(recipient_address(1))
    for index in closed_indexes:
        smtp_server.rules.store_then_close(recipient_address(index), times=1)
    api = relayed().client(validate=False)
    path = send_campaign(api, create_list(api, count))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, closed=len(closed_indexes) + 1, uncertain=books.uncertain)

    assert (books.accepted, books.uncertain, books.missing) == (count - 1, 1, 0)
    assert books.copies == len(closed_indexes) + 1
    assert len(smtp_server.to(recipient_address(1))) == 2 and row_of(api, path, 1)["status"] == "uncertain"
    assert books.stats["bounced"] == books.stats["failed"] == 0


def test_a_relay_that_never_replies_pauses_the_campaign(
    relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """A relay that accepts every message and loses every reply does not get the whole campaign twice."""
    smtp_server.rules.store_then_close()
    api = relayed(probe_after="1s").client(validate=False)
    path = send_campaign(api, create_list(api, 200))
    campaign = api.wait(path, lambda row: row["status"] == "paused")
    stored = len(smtp_server.messages)
    smtp_server.rules.clear()
    api.post(f"{path}/resume").expect(200)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    figures.books(books, stored_before_the_pause=stored)

    assert campaign["pause_reason"] == "transport" and 20 <= stored < 60
    assert books.missing == 0 and books.copies <= stored


LONG = "ä long story " * 60


def test_odd_replies(fresh_server: FreshServer, figures: Figures) -> None:
    """Replies in single bytes, of many lines, too long, in UTF-8 or without enhanced codes count by their code."""
    with SmtpServer(piece=1) as sink:
        rules = sink.rules
        rules.reply_raw("connect", b"220-kit.example ESMTP\r\n220-be nice\r\n220 ready\r\n", times=2)
        rules.reply_raw("mail", b"250\r\n", times=3)
        rules.reply_raw("rcpt", b"251 user not local, will forward\r\n", recipient_address(1))
        rules.reply_raw("rcpt", b"252-2.1.5 cannot\r\n252 2.1.5 verify\r\n", recipient_address(2))
        rules.reply_raw("data", f"354 {LONG}\r\n".encode(), recipient_address(3))
        rules.reply_raw("body", "250 2.0.0 übernommen für später\r\n".encode(), recipient_address(4))
        rules.reply_raw(
            "body", b"".join(f"250-{LONG}\r\n".encode() for _ in range(5)) + b"250 ok\r\n", recipient_address(5)
        )
        rules.reply_raw("body", b"259 whatever\r\n", recipient_address(6))
        rules.reject("rcpt", recipient_address(7), code=550, text=f"{LONG}\n5.1.1 no\nwie schön")
        rules.reject("rcpt", recipient_address(8), code=550, text="no such user here")
        rules.reject("body", recipient_address(9), code=452, text="später\n4.2.2 voll", times=1)
        rules.reply_raw("body", b"nonsense\r\n", recipient_address(10), times=1)
        server = fresh_server(relay=sink.port, env=NO_RATE_LIMITS)
        api = server.client()
        path = send_campaign(api, create_list(api, 40))
        wait_until_completed(api, path)
        books = reconcile(api, path, sink.messages)
        figures.books(books, uncertain=books.uncertain)

        # Nonsense after the data is not a reply: the message is uncertain and is resent once
        assert (books.accepted, books.stats["failed"], books.copies, books.missing) == (38, 2, 1, 0)
        errors = {index: row_of(api, path, index)["error"] for index in (7, 8)}
        assert isinstance(errors[7], dict) and isinstance(errors[8], dict)
        assert errors[7]["smtp"] == errors[8]["smtp"] == 550
        assert "schön" in errors[7]["text"] and errors[8]["enhanced"] is None
        assert (row_of(api, path, 9)["attempts"], row_of(api, path, 9)["status"]) == (2, "sent")
