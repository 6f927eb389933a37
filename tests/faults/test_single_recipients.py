"""Faults of a single recipient affect only its own message (P6, P7)."""

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list, recipient_address, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import SmtpServer


def test_greylisting(relayed: StartRelayed, smtp_server: SmtpServer, clock: TestClock, figures: Figures) -> None:
    """Messages that get a 450 for 15 minutes are sent once, at the third attempt."""
    count = 40
    smtp_server.rules.greylist(900, clock.now)
    server = relayed(clock, retry_after="300,600,1200")
    api = server.client()
    path = send_campaign(api, create_list(api, count))
    for attempt, minutes in ((1, 6), (2, 12)):
        api.wait(
            "/messages",
            lambda rows, attempt_count=attempt: {row["attempts"] for row in rows} == {attempt_count},
            limit=100,
        )
        clock.advance(minutes=minutes)
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    attempts = [row["attempts"] for row in api.all("/messages", campaign_id=path.rpartition("/")[2])]
    figures.books(books, attempts=max(attempts))

    assert (books.accepted, books.copies, books.missing) == (count, 0, 0)
    assert attempts == [3] * count


def test_an_unknown_recipient_is_suppressed(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """A recipient rejected with 550 5.1.1 fails at the first attempt and is suppressed."""
    unknown = [recipient_address(index) for index in range(7, 300, 100)]
    for recipient in unknown:
        smtp_server.rules.reject("rcpt", recipient, code=550, text="5.1.1 No such user")
    api = relayed().client()
    path = send_campaign(api, create_list(api, 300))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    failed = api.get("/messages", campaign_id=path.rpartition("/")[2], status="failed").expect(200)
    suppressed = {row["address"]: row["reason"] for row in api.get("/suppressions").expect(200)}
    figures.books(books, refused=len(failed))

    assert (books.accepted, books.missing, books.copies) == (297, 0, 0)
    assert {row["to"]: (row["error"]["enhanced"], row["attempts"]) for row in failed} == dict.fromkeys(
        unknown, ("5.1.1", 1)
    )
    assert suppressed == dict.fromkeys(unknown, "hard_bounce")
    assert all(len(smtp_server.phases("rcpt", recipient)) == 1 for recipient in unknown)


def test_a_render_error_skips_one_message(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """A contact whose data cannot be rendered is skipped with `render_error`; all others get their mail."""
    api = relayed().client()
    list_id = create_list(api, 60)
    odd = api.get("/contacts/search", q=recipient_address(30)).expect(200)[0]["id"]
    api.patch(f"/contacts/{odd}", {"data": {"many": list(range(2000))}}).expect(200)
    path = send_campaign(api, list_id, body="<p>{% for one in contact.data.many %}{{ one }}{% endfor %} breads</p>")
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    (skipped,) = api.get("/messages", campaign_id=path.rpartition("/")[2], status="skipped").expect(200)
    figures.books(books, not_made=1)

    assert (books.accepted, books.missing, books.copies) == (59, 0, 0)
    assert (skipped["to"], skipped["skip_reason"]) == (recipient_address(30), "render_error")
    assert skipped["error"]["text"]


# Phase, reply of the server and final status of the message (docs/decisions.md#8, P6 and P7)
REPLIES = (
    ("mail", 451, "4.3.0 local trouble", "sent"),
    ("rcpt", 450, "4.2.0 mailbox busy", "sent"),
    ("rcpt", 452, "4.2.2 mailbox full", "sent"),
    ("rcpt", 552, "5.2.2 mailbox full", "failed"),
    ("rcpt", 550, "5.1.1 no such user", "failed"),
    ("rcpt", 550, "no such user", "failed"),
    ("data", 451, "4.3.0 local trouble", "sent"),
    ("data", 554, "5.5.1 no valid recipients", "failed"),
    ("body", 451, "4.3.0 local trouble", "sent"),
    ("body", 452, "4.3.1 no room", "sent"),
    ("body", 550, "5.7.1 looks like spam", "failed"),
    ("body", 552, "5.3.4 too big", "failed"),
)


def test_replies_decide_the_status(relayed: StartRelayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """A 4xx costs one attempt, a 5xx fails at once, and only unknown recipients are suppressed."""
    for index, (phase, code, text, _) in enumerate(REPLIES):
        recipient = "*" if phase == "mail" else recipient_address(index)
        smtp_server.rules.reject(phase, recipient, code=code, text=text, times=1)
    api = relayed(slow_down="1s").client()
    path = send_campaign(api, create_list(api, 60))
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)
    rows = {row["to"]: row for row in api.all("/messages", campaign_id=path.rpartition("/")[2])}
    figures.books(books, answers=len(REPLIES), failed=books.stats["failed"])

    assert (books.copies, books.missing, books.uncertain) == (0, 0, 0)
    for index, (phase, code, text, status) in enumerate(REPLIES):
        row = rows[recipient_address(index)]
        if phase == "mail":
            continue
        min_attempts = 2 if status == "sent" else 1
        assert row["status"] == status and row["attempts"] in (min_attempts, min_attempts + 1), (phase, code, text, row)
        assert row["error"] is None or (row["error"]["smtp"], text in row["error"]["text"]) == (code, True)
    # The reply to MAIL hits whichever connection comes first
    assert sum(row["attempts"] for row in rows.values()) == 60 + 6
    # Unknown by the code or by the text alone
    assert {row["address"] for row in api.get("/suppressions").expect(200)} == {
        recipient_address(4),
        recipient_address(5),
    }
