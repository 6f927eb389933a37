"""How fast mail leaves, as the next hop sees it: even rates, limits of an hour, single messages first, groups apart."""

import time
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.journeys.test_sending import completed, send
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.patience import soon
from tests.kit.recipients import crowd
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

SINGLE = {"subject": "Receipt", "body": "<p>Thanks</p>", "from_email": "ana@bakery.example"}
SILENCE = "4.7.28 an unusual rate of mail"


def listed(server: Server, *addresses: str, name: str = "People") -> int:
    """Make a list of these people, quickly."""
    api = server.client(validate=False, keep_alive=True)
    number: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for address in addresses:
        api.post("/contacts", {"email": address, "list_ids": [number]}).expect(201)
    return number


def limited(fresh_server: FreshServer, smtp: SmtpServer, clock: TestClock | None = None, **settings: str) -> Server:
    """Start a server with these settings of `email`."""
    env = {f"CAMPANERO_EMAIL__{name.upper()}": value for name, value in settings.items()}
    return fresh_server(relay=smtp.port, env=env, clock=clock)


def busiest_second(times: list[float]) -> int:
    """Return how many there were at most within a second."""
    return max(sum(at <= other < at + 1 for other in times) for at in times)


def at_once(smtp: SmtpServer, domain: str) -> int:
    """Return how many messages to a domain were under way at the same time: asked for, and not yet stored."""
    begun = [(entry.time, 1) for entry in smtp.phases("rcpt") if entry.rcpt_to[0].endswith(domain)]
    since = min(at for at, _ in begun)
    ended = [(one.time, -1) for one in smtp.messages if one.to.endswith(domain) and one.time >= since]
    open_now = peak = 0
    for _, step in sorted(begun + ended):
        open_now += step
        peak = max(peak, open_now)
    return peak


def test_a_rate_is_kept_evenly(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Twenty a second is twenty a second, and in no second more than twice that."""
    server = limited(fresh_server, smtp_server, rate_per_second="20")
    made = send(server.client(), listed(server, *[f"p{n}@people.example" for n in range(80)]))
    completed(server.client(), made)
    times = sorted(message.time for message in smtp_server.messages)

    assert busiest_second(times) <= 40
    assert times[-1] - times[0] >= 3.2


@pytest.mark.parametrize("rate", ["1", "0"])
def test_a_single_message_takes_the_next_turn(
    rate: str, fresh_server: FreshServer, smtp_server: SmtpServer, full: bool
) -> None:
    """Behind a large campaign a single message leaves next, at one a second as without a limit."""
    smtp_server.rules.delay("body", 0.02)
    server = limited(fresh_server, smtp_server, rate_per_second=rate)
    api = server.client()
    send(api, crowd(api, 100_000 if full else 800))
    smtp_server.wait_for(2)
    begun = time.time()
    api.post("/messages", {"to": "bo@single.example", **SINGLE}).expect(201)
    smtp_server.wait_until(lambda: bool(smtp_server.to("bo@single.example")), "the single message")

    place = [message.to for message in smtp_server.messages].index("bo@single.example")

    assert place < 400, "it is before the middle of the campaign"
    if rate == "1":
        assert len([one for one in smtp_server.messages if begun + 0.2 < one.time]) <= 2


def test_a_limit_of_an_hour_outlives_the_process(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """Five an hour: five leave, then nothing, not after a restart either, until the first is an hour old."""
    server = limited(fresh_server, smtp_server, clock, rate_per_hour="5")
    api = server.client()
    made = send(api, listed(server, *[f"p{n}@people.example" for n in range(12)]))
    smtp_server.wait_for(5)
    time.sleep(1.5)
    begun = time.monotonic()
    server.stop()
    stopped = time.monotonic() - begun
    server.start()
    time.sleep(2)
    stats = api.get(f"/campaigns/{made['id']}").json["stats"]

    assert (len(smtp_server.messages), stats["pending"], stats["failed"]) == (5, 7, 0)
    assert stopped < soon(2), "whoever waits for a limit does not hold up the end"
    clock.advance(hours=1, minutes=1)
    smtp_server.wait_for(10)
    time.sleep(1)
    assert len(smtp_server.messages) == 10
    clock.advance(hours=1, minutes=1)
    completed(api, made)
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1


def test_limits_of_senders_and_recipients(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A large provider gets two at a time, over all its domains; a sending domain its rate; the others go freely."""
    smtp_server.rules.delay("body", 0.1)
    server = limited(
        fresh_server, smtp_server, connections="8", recipient_limits="google 2 connections",
        sender_limits="slow.example 4/s",
    )  # fmt: skip
    api = server.client()
    mixed = [f"g{n}@{'gmail.com' if n % 2 else 'googlemail.com'}" for n in range(24)]
    mixed += [f"o{n}@other.example" for n in range(24)]
    quick = send(api, listed(server, *mixed))
    slow = send(
        api, listed(server, *[f"s{n}@people.example" for n in range(12)], name="Slow"),
        template_attributes={"subject": "x", "body": "<p>x</p>", "from_email": "ana@slow.example"},
    )  # fmt: skip
    completed(api, quick)
    completed(api, slow)

    assert at_once(smtp_server, "mail.com") <= 2 < at_once(smtp_server, "other.example")
    times = sorted(message.time for message in smtp_server.messages if message.mail_from == "ana@slow.example")
    assert busiest_second(times) <= 8 and times[-1] - times[0] >= 2
    assert len(smtp_server.messages) == 60


def test_a_group_that_asks_for_less_gets_less(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """421 to one group: it pauses, the others finish; then it goes on, nobody failed, no attempt was counted."""
    rule = smtp_server.rules.refuse("rcpt", "*@gmail.com", code=421, text="4.7.0 try again later, too much")
    server = limited(fresh_server, smtp_server, slow_down="2s")
    api = server.client()
    people = [f"g{n}@gmail.com" for n in range(300)] + [f"o{n}@other.example" for n in range(60)]
    made = send(api, listed(server, *people))
    smtp_server.wait_until(lambda: sum(m.to.endswith("other.example") for m in smtp_server.messages) == 60)
    waiting = api.all("/messages", campaign_id=made["id"], status="queued")
    refused = [row for row in waiting if row["error"]]

    assert len(waiting) == 300 and {row["attempts"] for row in waiting} == {0}
    assert 1 <= rule.used <= 12 and refused
    assert {(row["error"]["code"], row["error"]["smtp"]) for row in refused} == {("throttled", 421)}
    smtp_server.rules.clear()
    done = completed(api, made)
    assert (done["stats"]["sent"], done["stats"]["failed"]) == (360, 0)
    assert {row["attempts"] for row in api.all("/messages", campaign_id=made["id"])} == {1}
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1


def _wait_for_refused(api: Client, campaign_id: int) -> dict[str, Any]:
    """Return the one queued message that was refused, as soon as its refusal is stored."""
    deadline = time.monotonic() + soon(10)
    while True:
        refused = [row for row in api.all("/messages", campaign_id=campaign_id, status="queued") if row["error"]]
        if refused or time.monotonic() > deadline:
            [row] = refused
            return row
        time.sleep(0.1)


def test_silence_for_ten_minutes(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """4.7.28: ten minutes nothing to the group, then one at a time; what was refused says when it is tried again."""
    rule = smtp_server.rules.refuse("body", "*@gmail.com", code=421, text=SILENCE, times=1)
    smtp_server.rules.delay("body", 0.05)
    server = limited(fresh_server, smtp_server, clock)
    api = server.client()
    made = send(
        api, listed(server, *[f"g{n}@gmail.com" for n in range(20)], *[f"o{n}@other.example" for n in range(9)])
    )
    smtp_server.wait_until(lambda: sum(m.to.endswith("other.example") for m in smtp_server.messages) == 9)
    before = {message.to for message in smtp_server.messages if message.to.endswith("gmail.com")}
    refused = _wait_for_refused(api, made["id"])
    minutes = _minutes_until(refused["next_attempt_at"], clock)
    clock.advance(minutes=8)
    time.sleep(6)
    still = {message.to for message in smtp_server.messages if message.to.endswith("gmail.com")}

    # What was under way when the answer came still ends
    assert rule.used == 1 and len(before) <= 4 and still == before
    assert 9.5 <= minutes <= 11.5
    smtp_server.log.clear()
    clock.advance(minutes=3.5)
    done = completed(api, made)
    assert at_once(smtp_server, "gmail.com") == 1
    assert (done["stats"]["sent"], done["stats"]["failed"]) == (29, 0)


def _minutes_until(moment: str, clock: TestClock) -> float:
    return (datetime.fromisoformat(moment).timestamp() - clock.now()) / 60


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_connection_that_had_enough(fresh_server: FreshServer, pipelining: bool) -> None:
    """421 to the next MAIL of a connection means a new connection: nobody waits for it, and it is nobody's attempt."""
    with SmtpServer(pipelining=pipelining) as smtp:
        smtp.rules.delay("body", 0.02)
        server = limited(fresh_server, smtp, slow_down="60s", connections="2")
        api = server.client()
        people = listed(server, *[f"p{n}@people.example" for n in range(40)])
        made = send(api, people)
        for count in (10, 20):
            smtp.wait_for(count)
            rule = smtp.rules.refuse("mail", code=421, text="4.7.0 too many messages", times=1)
        done = completed(api, made, 20)

    rows: list[dict[str, Any]] = api.all("/messages", campaign_id=made["id"])
    assert (rule.used, done["stats"]["sent"], {row["attempts"] for row in rows}) == (1, 40, {1})
    assert len(smtp.messages) == 40


def test_a_relay_that_is_throttling(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """454 after the dot is about all that comes from here: everybody waits, nobody is blamed, then all go."""
    rule = smtp_server.rules.refuse("body", code=454, text="Throttling failure: Maximum sending rate exceeded", times=6)
    server = limited(fresh_server, smtp_server, slow_down="1s")
    api: Client = server.client()
    made = send(api, listed(server, *[f"p{n}@d{n}.example" for n in range(20)]))
    done = completed(api, made, 60)

    assert (rule.used, done["stats"]["sent"], done["stats"]["failed"]) == (6, 20, 0)
    assert {row["attempts"] for row in api.all("/messages", campaign_id=made["id"])} == {1}
    # Refused in few steps, not one by one
    times = sorted(entry.time for entry in smtp_server.phases("body"))
    assert times[-1] - times[0] >= 1


def test_whatever_asks_for_less_everybody_gets_one(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Limits, groups that ask for less, a relay that throttles, full connections and stops: one copy for each."""
    server = limited(
        fresh_server, smtp_server, slow_down="1s", connections="6", messages_per_connection="7",
        recipient_limits="yahoo 40/s 2 connections,google 3 connections", sender_limits="bakery.example 150/s",
    )  # fmt: skip
    api = server.client()
    domains = ("gmail.com", "yahoo.com", "outlook.com", "one.example", "two.example")
    people = [f"p{n}@{domains[n % 5]}" for n in range(300)]
    made = send(api, listed(server, *people))
    for phase, who, code, text, times in (
        ("rcpt", "*@gmail.com", 421, "4.7.0 too much", 3), ("mail", "*", 421, "4.7.0 enough", 1),
        ("body", "*", 454, "Throttling failure: Maximum sending rate exceeded", 1),
        ("body", "*@outlook.com", 451, "4.7.650 rate limited", 2),
        ("rcpt", "*@one.example", 450, "4.2.0 greylisted", 3),
    ):  # fmt: skip
        smtp_server.rules.refuse(phase, who, code=code, text=text, times=times)
        time.sleep(0.3)
        (server.data / "STOP").touch()
        time.sleep(0.2)
        (server.data / "STOP").unlink()
    done = completed(api, made, 90)

    assert done["stats"]["sent"] == 300 and done["stats"]["failed"] == 0
    assert Counter(message.to for message in smtp_server.messages) == dict.fromkeys(people, 1)
