"""Opens and clicks as they are kept: what they count, what they tell, and what becomes of it when more is known."""

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
from tests.domain.home import BY_API, Home, turn
from tests.domain.test_robots import CHROME, GMAIL, PHONE

BODY = "".join(f'<a href="https://example.org/{n}?utm_source=mail&amp;utm_campaign=c{n}">{n}</a> ' for n in range(1, 7))


def sent(home: Home, *names: str, **person: Any) -> list[int]:
    """Send a campaign with six links, hand all of it over, and let a minute pass; returns the messages' ids."""
    people = [home.contact(f"{name}@example.org", **person).id for name in names or ("ann",)]
    campaign = home.send(home.campaign(home.list_of(*people).id, body=f"<p>{BODY}</p>"))
    claim = turn(None, True)
    while claim is not None:
        claim = turn(Outcome(claim, subject="S", sender="a@example.org", internet_message_id="i"), True)
    home.advance(60)
    return [row[0] for row in rows("SELECT id FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))]


def ask(
    message_id: int, number: int | None = None, method: str = "GET", agent: str | None = CHROME,
    ip: str = "192.0.2.77", after: int = 0,
) -> Hit:  # fmt: skip
    """A hit, so many milliseconds from now."""
    wanted = LinkRequest(message_id, number)
    return Hit(
        HitRequest(number, method, ip, agent, None, clock.now_ms() + after), LinkResolver().resolve([wanted])[wanted]
    )


def record(*found: Hit) -> None:
    """Write hits with all that follows; whose contact wants none is not handed in."""
    transactions.write(hits.record_hits, [hit for hit in found if hits.is_tracked(hit.message)])


def keep(*found: Hit) -> None:
    """Write hits as the door does: as they came, to be judged later."""
    transactions.write(hits.store_hits, [hit for hit in found if hits.is_tracked(hit.message)])


def settle(home: Home, seconds: float = 5) -> None:
    """Let some time pass, and have judged what is due by then."""
    home.advance(seconds)
    HitJudge().run()


def kept() -> list[Any]:
    """Return all hits."""
    return rows("SELECT kind, number, verdict, reason FROM hit ORDER BY at, id")


def told() -> list[Any]:
    """Return the events of opens and clicks."""
    return rows(
        "SELECT event, data ->> 'link', data ->> 'verdict' FROM event WHERE event GLOB 'email_[oc]*' ORDER BY id"
    )


def counts() -> Any:
    """Return the counts of the one contact there is."""
    return fetch_one("SELECT email_open_count, email_click_count FROM contact")


def marks(message_id: int) -> Any:
    """Return whether a message is opened and clicked."""
    return fetch_one("SELECT opened_at IS NOT NULL, clicked_at IS NOT NULL FROM message WHERE id = ?", (message_id,))


def test_a_click_counts_everywhere(home: Home) -> None:
    """Message, contact, channel and event say it, with where it led and what that says of the campaign."""
    (number,) = sent(home)
    record(ask(number, 2))
    assert kept() == [("click", 2, "human", None)] and marks(number) == (1, 1) and counts() == (1, 1)
    event = fetch_one(
        "SELECT event, contact_id, resource_uid, resource_name, resource_url, utm_source, utm_campaign, ip, browser, "
        "os, device_type, generated, test FROM event WHERE event = 'email_clicked'"
    )
    assert event == (
        "email_clicked", 1, f"message:{number}", "Spring",
        "https://example.org/2?utm_source=mail&utm_campaign=c2", "mail", "c2", "192.0.2.0", "Chrome", "Windows",
        "desktop", 1, 0,
    )  # fmt: skip
    moment = rows("SELECT at FROM hit")[0]
    assert rows("SELECT email_last_clicked_at FROM contact")[0] == moment
    assert rows("SELECT last_interacted_at FROM contact")[0] == moment
    assert rows("SELECT verified_at FROM channel")[0] == moment


def test_fifty_looks_are_one_open(home: Home) -> None:
    """Each is kept as it came, one is told and counted; the last look is remembered."""
    (number,) = sent(home)
    for n in range(50):
        record(ask(number, after=n))
    assert len(kept()) == 50 and told() == [("email_opened", None, "human")] and counts() == (1, 0)
    assert marks(number) == (1, 0)
    assert rows("SELECT email_last_opened_at FROM contact") == rows("SELECT max(at) FROM hit")
    assert rows("SELECT verified_at FROM channel") == [(None,)]


def test_a_click_again_is_told_once_and_another_link_is_told(home: Home) -> None:
    """An event for each link somebody follows; a contact's count is of messages."""
    (number,) = sent(home)
    record(ask(number, 1), ask(number, 1, after=5_000), ask(number, 2, after=9_000))
    assert told() == [("email_clicked", 1, "human"), ("email_clicked", 2, "human")]
    assert counts() == (1, 1) and len(kept()) == 3


def test_a_machine_counts_nothing(home: Home) -> None:
    """It is kept and told as what it is; filters and figures leave it out."""
    (number,) = sent(home)
    record(ask(number, 1, "HEAD"), ask(number, agent="Mozilla/5.0"), ask(number, 2, agent="curl/8"))
    assert {row[2] for row in kept()} == {"machine"} and {row[2] for row in told()} == {"machine"}
    assert counts() == (0, 0) and marks(number) == (0, 0)
    assert rows("SELECT last_interacted_at, email_last_opened_at FROM contact") == [(None, None)]


def test_a_proxy_opens_for_a_person(home: Home) -> None:
    """It is counted as an open, and proves no address."""
    (number,) = sent(home)
    record(ask(number, agent=GMAIL))
    assert kept() == [("open", None, "unsure", "image_proxy")] and counts() == (1, 0) and marks(number) == (1, 0)
    record(ask(number, 1, agent="SomeMailer/2.1"))
    assert counts() == (1, 1) and rows("SELECT verified_at FROM channel") == [(None,)]


@pytest.mark.parametrize("together", [True, False])
def test_what_shows_itself_late_is_taken_back(together: bool, home: Home) -> None:
    """The first three links looked like a person's; at the fourth all are a scanner's, and nothing is left of it."""
    (number,) = sent(home)
    tour = [ask(number, n, after=n * 100) for n in range(1, 5)]
    if together:
        record(*tour)
    else:
        for hit in tour[:3]:
            record(hit)
        assert counts() == (1, 1) and marks(number) == (1, 1)
        record(tour[3])
    assert [row[2:] for row in kept()] == [("machine", "many_links")] * 4
    assert {row[2] for row in told()} == {"machine"} and len(told()) == 4
    assert counts() == (0, 0) and marks(number) == (0, 0)
    assert rows("SELECT last_interacted_at, email_last_opened_at, email_last_clicked_at FROM contact") == [(None,) * 3]
    assert rows("SELECT verified_at FROM channel") == [(None,)]


def test_a_person_beside_a_scanner_is_counted(home: Home) -> None:
    """Whoever comes later, from elsewhere, is themselves; their click is told though the link was told before."""
    (number,) = sent(home)
    for n in range(1, 5):
        record(ask(number, n, after=n * 100))
    record(ask(number, 2, agent=PHONE, ip="198.51.100.9", after=90_000))
    assert kept()[-1] == ("click", 2, "human", None) and marks(number) == (1, 1) and counts() == (1, 1)
    assert told()[-1][2] == "human" and len(told()) == 5
    assert rows("SELECT email_last_clicked_at FROM contact") == rows("SELECT max(at) FROM hit")


def test_a_person_who_was_told_in_the_scanners_stead_is_told(home: Home) -> None:
    """The scanner's click was the first of its link and had the event; once it is known, the person's has its own."""
    (number,) = sent(home)
    record(ask(number, 1))
    record(ask(number, 1, agent=PHONE, ip="198.51.100.9", after=1_500))
    assert len(told()) == 1
    for n in range(2, 6):
        record(ask(number, n, after=4_000 + n * 100))
    human = [row for row in told() if row[2] == "human"]
    assert len(human) == 1 and marks(number) == (1, 1) and counts() == (1, 1)
    assert rows("SELECT resource_url FROM event WHERE data ->> 'verdict' = 'human' AND event = 'email_clicked'") == [
        ("https://example.org/1?utm_source=mail&utm_campaign=c1",)
    ]
    assert rows("SELECT clicked_at FROM message") == rows("SELECT at FROM hit WHERE verdict = 'human'")


def test_who_wants_to_be_counted_and_not_known(home: Home) -> None:
    """`aggregate`: the campaign counts it; no message, person, address or program is kept, and nothing is told."""
    (number,) = sent(home, tracking="aggregate")
    record(ask(number, 1), ask(number))
    assert rows("SELECT campaign_id, message_id, ip, user_agent, referrer, event_id FROM hit") == [(1, *[None] * 5)] * 2
    assert {row[2] for row in kept()} == {"human"} and told() == [] and counts() == (0, 0) and marks(number) == (0, 0)


def test_who_withdraws_leaves_no_trace_in_old_mail(home: Home) -> None:
    """`none`, chosen after the mail was sent: its picture and its links record nothing any more."""
    (number,) = sent(home)
    home.patch(1, tracking="none")
    record(ask(number, 1), ask(number))
    assert kept() == [] and told() == [] and counts() == (0, 0)


@pytest.mark.parametrize(
    ("privacy", "ip", "stored"),
    [
        ("truncated", "192.0.2.77", "192.0.2.0"), ("truncated", "2001:db8:1:2:3::4", "2001:db8:1::"),
        ("full", "192.0.2.77", "192.0.2.77"), ("none", "192.0.2.77", None),
    ],
)  # fmt: skip
def test_as_much_of_an_address_as_the_account_keeps(privacy: str, ip: str, stored: str | None, home: Home) -> None:
    """In the hit and in its event."""
    (number,) = sent(home)
    transactions.write(run, "UPDATE account SET privacy_ip = ?", (privacy,))
    record(ask(number, 1, ip=ip))
    assert rows("SELECT ip FROM hit") == rows("SELECT ip FROM event WHERE event = 'email_clicked'") == [(stored,)]


def test_too_many_of_a_message_are_not_kept() -> None:
    """A thousand times; then no more, for nobody reads like that. Others are kept."""
    limit = HitLimiter()
    assert [limit.allows(1) for _ in range(MAX_HITS_PER_MESSAGE + 2)][-3:] == [True, False, False]
    assert limit.allows(2)


def test_nothing_is_believed_before_a_scanner_had_time_to_show_itself(home: Home) -> None:
    """Kept at once, judged a moment later with all that came with it: the first link never was a person's."""
    (number,) = sent(home)
    keep(ask(number, 1))
    settle(home, 1)
    assert kept() == [("click", 1, None, None)] and told() == [] and counts() == (0, 0) and not hits.has_due_hits()
    keep(*(ask(number, n) for n in range(2, 5)))
    settle(home, 1.6)
    assert kept()[0] == ("click", 1, "machine", "many_links") and [row[2] for row in told()] == ["machine"]
    settle(home)
    assert {row[2:] for row in kept()} == {("machine", "many_links")} and counts() == (0, 0)
    keep(ask(number, 1, agent=PHONE, ip="198.51.100.9"))
    assert not hits.has_due_hits()
    settle(home)
    assert counts() == (1, 1) and not hits.has_due_hits()


def test_what_waits_to_be_judged_is_not_lost(home: Home) -> None:
    """Many of many messages, some opened and some followed: each is judged once, with where its links led."""
    ids = sent(home, *(f"p{n}" for n in range(30)))
    for step in range(5):
        keep(*(ask(number, step or None, after=step * 15_000) for number in ids))
    settle(home, 100)
    assert rows("SELECT kind, verdict, count(*) FROM hit GROUP BY 1, 2") == [
        ("click", "human", 120),
        ("open", "human", 30),
    ]
    assert rows("SELECT count(*), count(DISTINCT resource_url) FROM event WHERE event = 'email_clicked'") == [(120, 4)]
    assert rows("SELECT DISTINCT email_open_count, email_click_count FROM contact") == [(1, 1)]
    settle(home)
    assert rows("SELECT count(*) FROM event WHERE event = 'email_clicked'") == [(120,)]


def test_one_that_cannot_be_judged_keeps_no_other_waiting(home: Home) -> None:
    """What breaks on one message is said and left; its neighbours are judged, and nobody comes back to it for ever."""
    first, second = sent(home, "ann", "bea")
    when = f"NEW.resource_uid = 'message:{first}'"
    transactions.write(
        run, f"CREATE TRIGGER odd BEFORE INSERT ON event WHEN {when} BEGIN SELECT raise(ABORT, 'odd'); END"
    )
    keep(ask(first, 1), ask(second, 1))
    settle(home)
    assert rows("SELECT verdict, reason FROM hit ORDER BY id") == [("unsure", "not_judged"), ("human", None)]
    assert rows("SELECT email_click_count FROM contact ORDER BY id") == [(0,), (1,)] and not hits.has_due_hits()


def test_one_that_cannot_be_found_again_keeps_no_other_waiting(home: Home) -> None:
    """Neither at the door nor when it is judged."""
    first, second = sent(home, "ann", "bea")
    keep(ask(first, 1), ask(second, 1))
    transactions.write(run, "UPDATE message SET campaign_id = NULL WHERE id = ?", (first,))
    content = "INSERT INTO message_content (message_id, headers, data, links) VALUES (?, '{}', '{}', '[damaged')"
    transactions.write(run, content, (first,))
    wanted = [LinkRequest(first, 1), LinkRequest(second, 1)]
    assert [*LinkResolver().resolve(wanted)] == wanted[1:]
    settle(home)
    assert rows("SELECT verdict, reason FROM hit ORDER BY id") == [("unsure", "not_judged"), ("human", None)]


def test_who_withdraws_before_it_is_judged(home: Home) -> None:
    """What was kept a moment ago is forgotten, or becomes nobody's; of the erased nothing tells any more."""
    first, second, third = sent(home, "ann", "bea", "cid")
    keep(ask(first, 1), ask(second, 1), ask(third, 1))
    home.patch(1, tracking="none")
    home.patch(2, tracking="aggregate")
    transactions.write(removal.erase, home.account_id, 3, BY_API)
    settle(home)
    assert rows("SELECT message_id, ip, user_agent, verdict FROM hit ORDER BY id") == [
        (None, None, None, "human"), (None, None, None, "unsure"),
    ]  # fmt: skip
    assert told() == [] and rows("SELECT DISTINCT email_click_count FROM contact") == [(0,)]


def test_a_clock_that_steps_back_keeps_nothing_waiting(home: Home) -> None:
    """A hit of a far future is judged now."""
    (number,) = sent(home)
    keep(ask(number, 1, after=3_600_000))
    assert hits.has_due_hits()
    settle(home, 1)
    assert kept() == [("click", 1, "human", None)]


def test_a_test_is_told_and_counted_for_nobody(home: Home) -> None:
    """Of what a test key sent, events say so, and no contact's figures move."""
    (number,) = sent(home)
    transactions.write(run, "UPDATE message SET test = 1")
    record(ask(number, 1))
    assert counts() == (0, 0) and rows("SELECT test FROM event WHERE event = 'email_clicked'") == [(1,)]


def test_a_person_who_is_gone_is_still_led_on(home: Home) -> None:
    """Deleted: the link leads where it led, the click is counted and nobody's; erased: nothing of them is left."""
    first, second = sent(home, "ann", "bea")
    record(ask(first, 1), ask(second, 1))
    transactions.write(removal.erase, home.account_id, 1, BY_API)
    assert (
        rows("SELECT message_id, ip, user_agent, event_id FROM hit WHERE campaign_id = 1 ORDER BY id")[0] == (None,) * 4
    )
    hit = ask(first, 2)
    assert hit.message.url == "https://example.org/2?utm_source=mail&utm_campaign=c2"
    record(hit)
    assert rows("SELECT message_id, ip FROM hit ORDER BY id DESC LIMIT 1") == [(None, None)]
    assert rows("SELECT count(*) FROM hit WHERE campaign_id = 1") == [(3,)]


def test_many_of_many_messages_in_one_go(home: Home) -> None:
    """Each is judged with its own; the result is that of one by one."""
    ids = sent(home, *(f"p{n}" for n in range(6)))
    record(*(ask(number, n, after=n * 100 + index) for index, number in enumerate(ids[:3]) for n in range(1, 5)))
    record(*(ask(number, 1) for number in ids[3:]))
    assert rows("SELECT email_click_count FROM contact ORDER BY id") == [(0,)] * 3 + [(1,)] * 3
    assert rows("SELECT verdict, count(*) FROM hit GROUP BY 1 ORDER BY 1") == [("human", 3), ("machine", 12)]


def test_all_are_judged_again_by_todays_rules(home: Home) -> None:
    """What was taken for a person's, or for a machine's, by other rules is corrected with all that it counted."""
    first, second, third = sent(home, "ann", "bea", "cid")
    record(*(ask(first, n, after=n * 100) for n in range(1, 5)), ask(second, 1), ask(third))
    before = rows("SELECT id, verdict, reason FROM hit ORDER BY id")
    transactions.write(run, "UPDATE hit SET verdict = 'human', reason = NULL WHERE message_id = ?", (first,))
    transactions.write(run, "UPDATE hit SET verdict = 'machine', reason = 'old' WHERE message_id = ?", (second,))
    assert hits.rejudge_all() == (3, 5)
    assert rows("SELECT id, verdict, reason FROM hit ORDER BY id") == before
    assert rows("SELECT data ->> 'verdict' FROM event WHERE resource_uid = ?", (f"message:{second}",))[-1] == ("human",)
    assert (marks(first), marks(second), marks(third)) == ((0, 0), (1, 1), (1, 0))
    assert hits.rejudge_all() == (3, 0)
