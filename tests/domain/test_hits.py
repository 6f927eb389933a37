"""Open and click tracking: recording, verdicts, counters, and later corrections."""

from typing import Any

import pytest

from appliance.audience.contacts import removal
from appliance.core import clock
from appliance.sending.messages.ledger import Outcome
from appliance.sending.messages.links import LinkRequest, LinkResolver
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run
from appliance.tracking import hits
from appliance.tracking.hits import MAX_HITS_PER_MESSAGE, Hit, HitJudge, HitLimiter, HitRequest
from tests.domain.home import BY_API, Home, record_and_claim
from tests.domain.test_bot_detection import CHROME, GMAIL, PHONE

BODY = "".join(f'<a href="https://example.org/{n}?utm_source=mail&amp;utm_campaign=c{n}">{n}</a> ' for n in range(1, 7))


def send_campaign(home: Home, *names: str, **person: Any) -> list[int]:
    """Send a campaign with six links, advance the clock by a minute, and return the message ids."""
    contact_ids = [home.contact(f"{name}@example.org", **person).id for name in names or ("ann",)]
    campaign = home.send(home.campaign(home.list_of(*contact_ids).id, body=f"<p>{BODY}</p>"))
    ledger_row = record_and_claim(None, True)
    while ledger_row is not None:
        ledger_row = record_and_claim(
            Outcome(ledger_row, subject="S", sender="a@example.org", internet_message_id="i"), True
        )
    home.advance(60)
    return [row[0] for row in rows("SELECT id FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))]


def build_hit(
    message_id: int, number: int | None = None, method: str = "GET", agent: str | None = CHROME,
    ip: str = "192.0.2.77", after: int = 0,
) -> Hit:  # fmt: skip
    """Return a hit, `after` milliseconds from now; without `number` it is an open."""
    link_request = LinkRequest(message_id, number)
    return Hit(
        HitRequest(number, method, ip, agent, None, clock.now_ms() + after),
        LinkResolver().resolve([link_request])[link_request],
    )


def record_hits(*new_hits: Hit) -> None:
    """Record and judge the hits of contacts who allow tracking."""
    transactions.write(hits.record_hits, [hit for hit in new_hits if hits.is_tracked(hit.message)])


def store_hits(*new_hits: Hit) -> None:
    """Store the hits of contacts who allow tracking, to be judged later, as the web server does."""
    transactions.write(hits.store_hits, [hit for hit in new_hits if hits.is_tracked(hit.message)])


def judge_after(home: Home, seconds: float = 5) -> None:
    """Advance the clock and judge the hits that are due."""
    home.advance(seconds)
    HitJudge().run()


def stored_hits() -> list[Any]:
    """Return all hits: kind, number, verdict, reason."""
    return rows("SELECT kind, number, verdict, reason FROM hit ORDER BY at, id")


def tracking_events() -> list[Any]:
    """Return the open and click events: name, link, verdict."""
    return rows(
        "SELECT event, data ->> 'link', data ->> 'verdict' FROM event WHERE event GLOB 'email_[oc]*' ORDER BY id"
    )


def contact_counts() -> Any:
    """Return the open and click counts of the only contact."""
    return fetch_one("SELECT email_open_count, email_click_count FROM contact")


def message_flags(message_id: int) -> Any:
    """Return whether a message is opened and clicked."""
    return fetch_one("SELECT opened_at IS NOT NULL, clicked_at IS NOT NULL FROM message WHERE id = ?", (message_id,))


def test_a_click_updates_message_contact_and_channel(home: Home) -> None:
    """The click event has URL, UTM parameters and device; times are set on contact and channel."""
    (message_id,) = send_campaign(home)
    record_hits(build_hit(message_id, 2))
    assert (
        stored_hits() == [("click", 2, "human", None)]
        and message_flags(message_id) == (1, 1)
        and contact_counts() == (1, 1)
    )
    event = fetch_one(
        "SELECT event, contact_id, resource_uid, resource_name, resource_url, utm_source, utm_campaign, ip, browser, "
        "os, device_type, generated, test FROM event WHERE event = 'email_clicked'"
    )
    assert event == (
        "email_clicked", 1, f"message:{message_id}", "Spring",
        "https://example.org/2?utm_source=mail&utm_campaign=c2", "mail", "c2", "192.0.2.0", "Chrome", "Windows",
        "desktop", 1, 0,
    )  # fmt: skip
    moment = rows("SELECT at FROM hit")[0]
    assert rows("SELECT email_last_clicked_at FROM contact")[0] == moment
    assert rows("SELECT last_interacted_at FROM contact")[0] == moment
    assert rows("SELECT verified_at FROM channel")[0] == moment


def test_repeated_opens_count_once(home: Home) -> None:
    """All 50 hits are stored, one event is recorded, and the last time is kept."""
    (message_id,) = send_campaign(home)
    for index in range(50):
        record_hits(build_hit(message_id, after=index))
    assert (
        len(stored_hits()) == 50
        and tracking_events() == [("email_opened", None, "human")]
        and contact_counts() == (1, 0)
    )
    assert message_flags(message_id) == (1, 0)
    assert rows("SELECT email_last_opened_at FROM contact") == rows("SELECT max(at) FROM hit")
    assert rows("SELECT verified_at FROM channel") == [(None,)]


def test_each_clicked_link_gives_one_event(home: Home) -> None:
    """Repeated clicks on a link give one event; a contact's click count is of messages."""
    (message_id,) = send_campaign(home)
    record_hits(build_hit(message_id, 1), build_hit(message_id, 1, after=5_000), build_hit(message_id, 2, after=9_000))
    assert tracking_events() == [("email_clicked", 1, "human"), ("email_clicked", 2, "human")]
    assert contact_counts() == (1, 1) and len(stored_hits()) == 3


def test_machine_hits_are_not_counted(home: Home) -> None:
    """Hits of machines are stored and recorded as events with the verdict `machine`."""
    (message_id,) = send_campaign(home)
    record_hits(
        build_hit(message_id, 1, "HEAD"),
        build_hit(message_id, agent="Mozilla/5.0"),
        build_hit(message_id, 2, agent="curl/8"),
    )
    assert {row[2] for row in stored_hits()} == {"machine"} and {row[2] for row in tracking_events()} == {"machine"}
    assert contact_counts() == (0, 0) and message_flags(message_id) == (0, 0)
    assert rows("SELECT last_interacted_at, email_last_opened_at FROM contact") == [(None, None)]


def test_an_image_proxy_counts_as_an_open(home: Home) -> None:
    """A hit of an image proxy is counted as an open, but does not verify the address."""
    (message_id,) = send_campaign(home)
    record_hits(build_hit(message_id, agent=GMAIL))
    assert (
        stored_hits() == [("open", None, "unsure", "image_proxy")]
        and contact_counts() == (1, 0)
        and message_flags(message_id) == (1, 0)
    )
    record_hits(build_hit(message_id, 1, agent="SomeMailer/2.1"))
    assert contact_counts() == (1, 1) and rows("SELECT verified_at FROM channel") == [(None,)]


@pytest.mark.parametrize("together", [True, False])
def test_a_scanner_recognized_late_is_corrected(together: bool, home: Home) -> None:
    """After the fourth quick click all hits are judged as a scanner's, and counters are reset."""
    (message_id,) = send_campaign(home)
    scanner_hits = [build_hit(message_id, n, after=n * 100) for n in range(1, 5)]
    if together:
        record_hits(*scanner_hits)
    else:
        for hit in scanner_hits[:3]:
            record_hits(hit)
        assert contact_counts() == (1, 1) and message_flags(message_id) == (1, 1)
        record_hits(scanner_hits[3])
    assert [row[2:] for row in stored_hits()] == [("machine", "many_links")] * 4
    assert {row[2] for row in tracking_events()} == {"machine"} and len(tracking_events()) == 4
    assert contact_counts() == (0, 0) and message_flags(message_id) == (0, 0)
    assert rows("SELECT last_interacted_at, email_last_opened_at, email_last_clicked_at FROM contact") == [(None,) * 3]
    assert rows("SELECT verified_at FROM channel") == [(None,)]


def test_a_click_after_a_scanner_is_counted(home: Home) -> None:
    """A later click from another client is human and gives its own event."""
    (message_id,) = send_campaign(home)
    for n in range(1, 5):
        record_hits(build_hit(message_id, n, after=n * 100))
    record_hits(build_hit(message_id, 2, agent=PHONE, ip="198.51.100.9", after=90_000))
    assert (
        stored_hits()[-1] == ("click", 2, "human", None)
        and message_flags(message_id) == (1, 1)
        and contact_counts() == (1, 1)
    )
    assert tracking_events()[-1][2] == "human" and len(tracking_events()) == 5
    assert rows("SELECT email_last_clicked_at FROM contact") == rows("SELECT max(at) FROM hit")


def test_a_click_hidden_by_a_scanner_gets_its_own_event(home: Home) -> None:
    """Once the first click is judged as a scanner's, the human click of the same link gets an event."""
    (message_id,) = send_campaign(home)
    record_hits(build_hit(message_id, 1))
    record_hits(build_hit(message_id, 1, agent=PHONE, ip="198.51.100.9", after=1_500))
    assert len(tracking_events()) == 1
    for n in range(2, 6):
        record_hits(build_hit(message_id, n, after=4_000 + n * 100))
    human_events = [row for row in tracking_events() if row[2] == "human"]
    assert len(human_events) == 1 and message_flags(message_id) == (1, 1) and contact_counts() == (1, 1)
    assert rows("SELECT resource_url FROM event WHERE data ->> 'verdict' = 'human' AND event = 'email_clicked'") == [
        ("https://example.org/1?utm_source=mail&utm_campaign=c1",)
    ]
    assert rows("SELECT clicked_at FROM message") == rows("SELECT at FROM hit WHERE verdict = 'human'")


def test_aggregate_tracking_is_anonymous(home: Home) -> None:
    """With `aggregate` the campaign counts the hit, without message, client data, event or contact counters."""
    (message_id,) = send_campaign(home, tracking="aggregate")
    record_hits(build_hit(message_id, 1), build_hit(message_id))
    assert rows("SELECT campaign_id, message_id, ip, user_agent, referrer, event_id FROM hit") == [(1, *[None] * 5)] * 2
    assert (
        {row[2] for row in stored_hits()} == {"human"}
        and tracking_events() == []
        and contact_counts() == (0, 0)
        and message_flags(message_id) == (0, 0)
    )


def test_tracking_none_applies_to_earlier_messages(home: Home) -> None:
    """After a contact chose `none`, hits of earlier messages are not recorded."""
    (message_id,) = send_campaign(home)
    home.patch(1, tracking="none")
    record_hits(build_hit(message_id, 1), build_hit(message_id))
    assert stored_hits() == [] and tracking_events() == [] and contact_counts() == (0, 0)


@pytest.mark.parametrize(
    ("privacy", "ip", "stored"),
    [
        ("truncated", "192.0.2.77", "192.0.2.0"), ("truncated", "2001:db8:1:2:3::4", "2001:db8:1::"),
        ("full", "192.0.2.77", "192.0.2.77"), ("none", "192.0.2.77", None),
    ],
)  # fmt: skip
def test_hits_store_the_ip_as_privacy_ip_says(privacy: str, ip: str, stored: str | None, home: Home) -> None:
    """Hit and event have the IP address in full, truncated or not at all."""
    (message_id,) = send_campaign(home)
    transactions.write(run, "UPDATE account SET privacy_ip = ?", (privacy,))
    record_hits(build_hit(message_id, 1, ip=ip))
    assert rows("SELECT ip FROM hit") == rows("SELECT ip FROM event WHERE event = 'email_clicked'") == [(stored,)]


def test_hits_of_a_message_are_limited() -> None:
    """Hits beyond MAX_HITS_PER_MESSAGE are dropped; other messages are not affected."""
    limit = HitLimiter()
    assert [limit.allows(1) for _ in range(MAX_HITS_PER_MESSAGE + 2)][-3:] == [True, False, False]
    assert limit.allows(2)


def test_hits_are_judged_after_a_delay(home: Home) -> None:
    """Hits are stored at once and judged a moment later with those that followed."""
    (message_id,) = send_campaign(home)
    store_hits(build_hit(message_id, 1))
    judge_after(home, 1)
    assert (
        stored_hits() == [("click", 1, None, None)]
        and tracking_events() == []
        and contact_counts() == (0, 0)
        and not hits.has_due_hits()
    )
    store_hits(*(build_hit(message_id, n) for n in range(2, 5)))
    judge_after(home, 1.6)
    assert stored_hits()[0] == ("click", 1, "machine", "many_links") and [row[2] for row in tracking_events()] == [
        "machine"
    ]
    judge_after(home)
    assert {row[2:] for row in stored_hits()} == {("machine", "many_links")} and contact_counts() == (0, 0)
    store_hits(build_hit(message_id, 1, agent=PHONE, ip="198.51.100.9"))
    assert not hits.has_due_hits()
    judge_after(home)
    assert contact_counts() == (1, 1) and not hits.has_due_hits()


def test_many_stored_hits_are_judged_once(home: Home) -> None:
    """Hits of many messages are each judged once, with the URL of their link."""
    message_ids = send_campaign(home, *(f"p{n}" for n in range(30)))
    for step in range(5):
        store_hits(*(build_hit(number, step or None, after=step * 15_000) for number in message_ids))
    judge_after(home, 100)
    assert rows("SELECT kind, verdict, count(*) FROM hit GROUP BY 1, 2") == [
        ("click", "human", 120),
        ("open", "human", 30),
    ]
    assert rows("SELECT count(*), count(DISTINCT resource_url) FROM event WHERE event = 'email_clicked'") == [(120, 4)]
    assert rows("SELECT DISTINCT email_open_count, email_click_count FROM contact") == [(1, 1)]
    judge_after(home)
    assert rows("SELECT count(*) FROM event WHERE event = 'email_clicked'") == [(120,)]


def test_a_failing_hit_does_not_stop_others(home: Home) -> None:
    """A hit that cannot be judged is marked `not_judged` and not tried again; others are judged."""
    first, second = send_campaign(home, "ann", "bea")
    condition = f"NEW.resource_uid = 'message:{first}'"
    transactions.write(
        run, f"CREATE TRIGGER odd BEFORE INSERT ON event WHEN {condition} BEGIN SELECT raise(ABORT, 'odd'); END"
    )
    store_hits(build_hit(first, 1), build_hit(second, 1))
    judge_after(home)
    assert rows("SELECT verdict, reason FROM hit ORDER BY id") == [("unsure", "not_judged"), ("human", None)]
    assert rows("SELECT email_click_count FROM contact ORDER BY id") == [(0,), (1,)] and not hits.has_due_hits()


def test_a_damaged_link_list_does_not_stop_others(home: Home) -> None:
    """A hit whose links cannot be read is neither resolved nor judged; others are."""
    first, second = send_campaign(home, "ann", "bea")
    store_hits(build_hit(first, 1), build_hit(second, 1))
    transactions.write(run, "UPDATE message SET campaign_id = NULL WHERE id = ?", (first,))
    content = (
        "INSERT INTO message_content (message_id, headers, data, links, has_attachments, tracks_opens) "
        "VALUES (?, '{}', '{}', '[damaged', 0, 0)"
    )
    transactions.write(run, content, (first,))
    requests = [LinkRequest(first, 1), LinkRequest(second, 1)]
    assert [*LinkResolver().resolve(requests)] == requests[1:]
    judge_after(home)
    assert rows("SELECT verdict, reason FROM hit ORDER BY id") == [("unsure", "not_judged"), ("human", None)]


def test_tracking_choices_apply_to_stored_hits(home: Home) -> None:
    """Hits not yet judged are deleted or made anonymous if the contact opts out or is erased."""
    first, second, third = send_campaign(home, "ann", "bea", "cid")
    store_hits(build_hit(first, 1), build_hit(second, 1), build_hit(third, 1))
    home.patch(1, tracking="none")
    home.patch(2, tracking="aggregate")
    transactions.write(removal.erase, home.account_id, 3, BY_API)
    judge_after(home)
    assert rows("SELECT message_id, ip, user_agent, verdict FROM hit ORDER BY id") == [
        (None, None, None, "human"), (None, None, None, "unsure"),
    ]  # fmt: skip
    assert tracking_events() == [] and rows("SELECT DISTINCT email_click_count FROM contact") == [(0,)]


def test_hits_dated_in_the_future_are_judged(home: Home) -> None:
    """A hit an hour ahead of the clock is judged now."""
    (message_id,) = send_campaign(home)
    store_hits(build_hit(message_id, 1, after=3_600_000))
    assert hits.has_due_hits()
    judge_after(home, 1)
    assert stored_hits() == [("click", 1, "human", None)]


def test_hits_of_test_messages_are_not_counted(home: Home) -> None:
    """Events of test messages are marked as test, and contact counters stay unchanged."""
    (message_id,) = send_campaign(home)
    transactions.write(run, "UPDATE message SET test = 1")
    record_hits(build_hit(message_id, 1))
    assert contact_counts() == (0, 0) and rows("SELECT test FROM event WHERE event = 'email_clicked'") == [(1,)]


def test_links_of_erased_contacts_still_work(home: Home) -> None:
    """The link keeps its target and the click is counted for the campaign, without message or IP."""
    first, second = send_campaign(home, "ann", "bea")
    record_hits(build_hit(first, 1), build_hit(second, 1))
    transactions.write(removal.erase, home.account_id, 1, BY_API)
    assert (
        rows("SELECT message_id, ip, user_agent, event_id FROM hit WHERE campaign_id = 1 ORDER BY id")[0] == (None,) * 4
    )
    hit = build_hit(first, 2)
    assert hit.message.url == "https://example.org/2?utm_source=mail&utm_campaign=c2"
    record_hits(hit)
    assert rows("SELECT message_id, ip FROM hit ORDER BY id DESC LIMIT 1") == [(None, None)]
    assert rows("SELECT count(*) FROM hit WHERE campaign_id = 1") == [(3,)]


def test_hits_of_many_messages_are_judged_separately(home: Home) -> None:
    """Hits of several messages in one batch are judged per message."""
    message_ids = send_campaign(home, *(f"p{n}" for n in range(6)))
    record_hits(
        *(
            build_hit(number, n, after=n * 100 + index)
            for index, number in enumerate(message_ids[:3])
            for n in range(1, 5)
        )
    )
    record_hits(*(build_hit(number, 1) for number in message_ids[3:]))
    assert rows("SELECT email_click_count FROM contact ORDER BY id") == [(0,)] * 3 + [(1,)] * 3
    assert rows("SELECT verdict, count(*) FROM hit GROUP BY 1 ORDER BY 1") == [("human", 3), ("machine", 12)]


def test_rejudge_all_corrects_old_verdicts(home: Home) -> None:
    """Wrong verdicts are corrected with events and counters; a second run changes nothing."""
    first, second, third = send_campaign(home, "ann", "bea", "cid")
    record_hits(*(build_hit(first, n, after=n * 100) for n in range(1, 5)), build_hit(second, 1), build_hit(third))
    before = rows("SELECT id, verdict, reason FROM hit ORDER BY id")
    transactions.write(run, "UPDATE hit SET verdict = 'human', reason = NULL WHERE message_id = ?", (first,))
    transactions.write(run, "UPDATE hit SET verdict = 'machine', reason = 'old' WHERE message_id = ?", (second,))
    assert hits.rejudge_all() == (3, 5)
    assert rows("SELECT id, verdict, reason FROM hit ORDER BY id") == before
    assert rows("SELECT data ->> 'verdict' FROM event WHERE resource_uid = ?", (f"message:{second}",))[-1] == ("human",)
    assert (message_flags(first), message_flags(second), message_flags(third)) == ((0, 0), (1, 1), (1, 0))
    assert hits.rejudge_all() == (3, 0)
