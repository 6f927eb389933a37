"""F05, F06, F28: what is wrong with one recipient, and stays with that one (P6, P7)."""

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import balance
from tests.kit.clock import TestClock
from tests.kit.recipients import address, completed, crowd, send
from tests.kit.smtp import SmtpServer


def test_greylisting_is_waited_out(
    relayed: Relayed, smtp_server: SmtpServer, clock: TestClock, figures: Figures
) -> None:
    """Refused with 450 for the first 15 minutes, everybody gets one copy, at the third attempt."""
    count = 40
    smtp_server.rules.greylist(900, clock.now)
    server = relayed(clock, retry_after="300,600,1200")
    api = server.client()
    path = send(api, crowd(api, count))
    for attempt, minutes in ((1, 6), (2, 12)):
        api.wait("/messages", lambda rows, at=attempt: {row["attempts"] for row in rows} == {at}, limit=100)
        clock.advance(minutes=minutes)
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    attempts = [row["attempts"] for row in api.all("/messages", campaign_id=path.rpartition("/")[2])]
    figures.books(books, attempts=max(attempts))

    assert (books.accepted, books.copies, books.missing) == (count, 0, 0)
    assert attempts == [3] * count


def test_who_does_not_exist_is_tried_once(relayed: Relayed, smtp_server: SmtpServer, figures: Figures) -> None:
    """One in a hundred is refused with 550 5.1.1: failed, suppressed, and nobody asks about them again."""
    gone = [address(index) for index in range(7, 300, 100)]
    for one in gone:
        smtp_server.rules.refuse("rcpt", one, code=550, text="5.1.1 No such user")
    api = relayed().client()
    path = send(api, crowd(api, 300))
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    failed = api.get("/messages", campaign_id=path.rpartition("/")[2], status="failed").expect(200)
    suppressed = {row["address"]: row["reason"] for row in api.get("/suppressions").expect(200)}
    figures.books(books, refused=len(failed))

    assert (books.accepted, books.missing, books.copies) == (297, 0, 0)
    assert {row["to"]: (row["error"]["enhanced"], row["attempts"]) for row in failed} == dict.fromkeys(
        gone, ("5.1.1", 1)
    )
    assert suppressed == dict.fromkeys(gone, "hard_bounce")
    assert all(len(smtp_server.phases("rcpt", one)) == 1 for one in gone)


def test_a_message_that_cannot_be_made_stops_no_other(
    relayed: Relayed, smtp_server: SmtpServer, figures: Figures
) -> None:
    """A value that is too much to be shown costs its own row, which says so; all others are sent."""
    api = relayed().client()
    group = crowd(api, 60)
    odd = api.get("/contacts/search", q=address(30)).expect(200)[0]["id"]
    api.patch(f"/contacts/{odd}", {"data": {"many": list(range(2000))}}).expect(200)
    path = send(api, group, body="<p>{% for one in contact.data.many %}{{ one }}{% endfor %} breads</p>")
    completed(api, path)
    books = balance(api, path, smtp_server.messages)
    (skipped,) = api.get("/messages", campaign_id=path.rpartition("/")[2], status="skipped").expect(200)
    figures.books(books, not_made=1)

    assert (books.accepted, books.missing, books.copies) == (59, 0, 0)
    assert (skipped["to"], skipped["skip_reason"]) == (address(30), "render_error")
    assert skipped["error"]["text"]
