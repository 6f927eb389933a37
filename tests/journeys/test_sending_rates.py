"""Sending rates as the relay sees them: even rates, hourly limits, single messages first, and recipient groups."""

import time
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.journeys.test_sending import completed, send
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import extend_timeout

SINGLE = {"subject": "Receipt", "body": "<p>Thanks</p>", "from_email": "ana@bakery.example"}
RATE_REPLY = "4.7.28 an unusual rate of mail"


def create_address_list(server: Server, *addresses: str, name: str = "People") -> int:
    """Create a list of contacts with these addresses."""
    api = server.client(validate=False, keep_alive=True)
    list_id: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for address in addresses:
        api.post("/contacts", {"email": address, "list_ids": [list_id]}).expect(201)
    return list_id


def start_limited(
    fresh_server: FreshServer, smtp: SmtpServer, clock: TestClock | None = None, **settings: str
) -> Server:
    """Start a server with these `email` settings."""
    env = {f"CAMPANERO_EMAIL__{name.upper()}": value for name, value in settings.items()}
    return fresh_server(relay=smtp.port, env=env, clock=clock)


def busiest_second(times: list[float]) -> int:
    """Return the highest number of times within one second."""
    return max(sum(start <= other < start + 1 for other in times) for start in times)


def peak_concurrency(smtp: SmtpServer, domain: str) -> int:
    """Return the highest number of concurrent transactions to a domain, from RCPT until the message is stored."""
    starts = [(entry.time, 1) for entry in smtp.phases("rcpt") if entry.rcpt_to[0].endswith(domain)]
    since = min(moment for moment, _ in starts)
    ends = [(message.time, -1) for message in smtp.messages if message.to.endswith(domain) and message.time >= since]
    open_now = peak = 0
    for _, step in sorted(starts + ends):
        open_now += step
        peak = max(peak, open_now)
    return peak


@pytest.mark.full
def test_an_even_rate(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """At 20 messages a second, no second has more than twice that."""
    server = start_limited(fresh_server, smtp_server, rate_per_second="20")
    campaign = send(server.client(), create_address_list(server, *[f"p{n}@people.example" for n in range(80)]))
    completed(server.client(), campaign)
    times = sorted(message.time for message in smtp_server.messages)

    assert busiest_second(times) <= 40
    assert times[-1] - times[0] >= 3.2


@pytest.mark.parametrize("rate", ["1", "0"])
def test_a_single_message_overtakes_a_campaign(
    rate: str, fresh_server: FreshServer, smtp_server: SmtpServer, full: bool
) -> None:
    """Behind a large campaign a single message is sent next, with and without a rate limit."""
    smtp_server.rules.delay("body", 0.02)
    server = start_limited(fresh_server, smtp_server, rate_per_second=rate)
    api = server.client()
    send(api, create_list(api, 100_000 if full else 800))
    smtp_server.wait_for(2)
    started = time.time()
    api.post("/messages", {"to": "bo@single.example", **SINGLE}).expect(201)
    smtp_server.wait_until(lambda: bool(smtp_server.to("bo@single.example")), "the single message")

    position = [message.to for message in smtp_server.messages].index("bo@single.example")

    assert position < 400, "it is before the middle of the campaign"
    if rate == "1":
        assert len([message for message in smtp_server.messages if started + 0.2 < message.time]) <= 2


def test_an_hourly_limit_survives_a_restart(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """At five an hour, nothing more leaves after five messages, also after a restart, until an hour has passed."""
    server = start_limited(fresh_server, smtp_server, clock, rate_per_hour="5")
    api = server.client()
    campaign = send(api, create_address_list(server, *[f"p{n}@people.example" for n in range(12)]))
    smtp_server.wait_for(5)
    time.sleep(1.5)
    started = time.monotonic()
    server.stop()
    stopped = time.monotonic() - started
    server.start()
    time.sleep(2)
    stats = api.get(f"/campaigns/{campaign['id']}").json["stats"]

    assert (len(smtp_server.messages), stats["pending"], stats["failed"]) == (5, 7, 0)
    assert stopped < extend_timeout(2), "waiting for a limit delays the stop"
    clock.advance(hours=1, minutes=1)
    smtp_server.wait_for(10)
    time.sleep(1)
    assert len(smtp_server.messages) == 10
    clock.advance(hours=1, minutes=1)
    completed(api, campaign)
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1


def test_limits_of_senders_and_recipients(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """A provider gets two connections for all its domains, a sending domain its rate, and others are not limited."""
    smtp_server.rules.delay("body", 0.1)
    server = start_limited(
        fresh_server, smtp_server, connections="8", recipient_limits="google 2 connections",
        sender_limits="slow.example 4/s",
    )  # fmt: skip
    api = server.client()
    addresses = [f"g{n}@{'gmail.com' if n % 2 else 'googlemail.com'}" for n in range(24)]
    addresses += [f"o{n}@other.example" for n in range(24)]
    mixed_campaign = send(api, create_address_list(server, *addresses))
    slow_campaign = send(
        api, create_address_list(server, *[f"s{n}@people.example" for n in range(12)], name="Slow"),
        template_attributes={"subject": "x", "body": "<p>x</p>", "from_email": "ana@slow.example"},
    )  # fmt: skip
    completed(api, mixed_campaign)
    completed(api, slow_campaign)

    assert peak_concurrency(smtp_server, "mail.com") <= 2 < peak_concurrency(smtp_server, "other.example")
    times = sorted(message.time for message in smtp_server.messages if message.mail_from == "ana@slow.example")
    assert busiest_second(times) <= 8 and times[-1] - times[0] >= 2
    assert len(smtp_server.messages) == 60


def test_a_421_throttles_the_recipient_group(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """After a 421 the recipient group pauses while others are sent; then it continues without counted attempts."""
    rule = smtp_server.rules.reject("rcpt", "*@gmail.com", code=421, text="4.7.0 try again later, too much")
    server = start_limited(fresh_server, smtp_server, slow_down="2s")
    api = server.client()
    addresses = [f"g{n}@gmail.com" for n in range(300)] + [f"o{n}@other.example" for n in range(60)]
    campaign = send(api, create_address_list(server, *addresses))
    smtp_server.wait_until(lambda: sum(m.to.endswith("other.example") for m in smtp_server.messages) == 60)
    # The ledger follows the log of sent messages after some tenths of a second
    api.wait(f"/campaigns/{campaign['id']}", lambda row: row["stats"]["sent"] == 60)
    waiting = api.all("/messages", campaign_id=campaign["id"], status="queued")
    rejected = [row for row in waiting if row["error"]]

    assert len(waiting) == 300 and {row["attempts"] for row in waiting} == {0}
    assert 1 <= rule.used <= 12 and rejected
    assert {(row["error"]["code"], row["error"]["smtp"]) for row in rejected} == {("throttled", 421)}
    smtp_server.rules.clear()
    completed_row = completed(api, campaign)
    assert (completed_row["stats"]["sent"], completed_row["stats"]["failed"]) == (360, 0)
    assert {row["attempts"] for row in api.all("/messages", campaign_id=campaign["id"])} == {1}
    assert Counter(message.to for message in smtp_server.messages).most_common(1)[0][1] == 1


def _wait_for_rejection(api: Client, campaign_id: int) -> dict[str, Any]:
    """Return the only rejected queued message, once its rejection is stored."""
    deadline = time.monotonic() + extend_timeout(10)
    while True:
        rejected = [row for row in api.all("/messages", campaign_id=campaign_id, status="queued") if row["error"]]
        if rejected or time.monotonic() > deadline:
            [row] = rejected
            return row
        time.sleep(0.1)


@pytest.mark.full
def test_an_unusual_rate_reply_pauses_the_group(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """After 4.7.28 the group gets nothing for ten minutes, then one connection; the rejected message says when."""
    rule = smtp_server.rules.reject("body", "*@gmail.com", code=421, text=RATE_REPLY, times=1)
    smtp_server.rules.delay("body", 0.05)
    server = start_limited(fresh_server, smtp_server, clock)
    api = server.client()
    campaign = send(
        api,
        create_address_list(
            server, *[f"g{n}@gmail.com" for n in range(20)], *[f"o{n}@other.example" for n in range(9)]
        ),
    )
    smtp_server.wait_until(lambda: sum(m.to.endswith("other.example") for m in smtp_server.messages) == 9)
    before = {message.to for message in smtp_server.messages if message.to.endswith("gmail.com")}
    rejected = _wait_for_rejection(api, campaign["id"])
    minutes = _minutes_until(rejected["next_attempt_at"], clock)
    clock.advance(minutes=8)
    time.sleep(6)
    after = {message.to for message in smtp_server.messages if message.to.endswith("gmail.com")}

    # Transactions that were open when the reply came still end
    assert rule.used == 1 and len(before) <= 4 and after == before
    assert 9.5 <= minutes <= 11.5
    smtp_server.log.clear()
    clock.advance(minutes=3.5)
    completed_row = completed(api, campaign)
    assert peak_concurrency(smtp_server, "gmail.com") == 1
    assert (completed_row["stats"]["sent"], completed_row["stats"]["failed"]) == (29, 0)


def _minutes_until(moment: str, clock: TestClock) -> float:
    return (datetime.fromisoformat(moment).timestamp() - clock.now()) / 60


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_421_to_mail_opens_a_new_connection(fresh_server: FreshServer, pipelining: bool) -> None:
    """After a 421 to MAIL the next message uses a new connection at once, and no attempt is counted."""
    with SmtpServer(pipelining=pipelining) as smtp:
        smtp.rules.delay("body", 0.02)
        server = start_limited(fresh_server, smtp, slow_down="60s", connections="2")
        api = server.client()
        list_id = create_address_list(server, *[f"p{n}@people.example" for n in range(40)])
        campaign = send(api, list_id)
        for count in (10, 20):
            smtp.wait_for(count)
            rule = smtp.rules.reject("mail", code=421, text="4.7.0 too many messages", times=1)
        completed_row = completed(api, campaign, 20)

    rows: list[dict[str, Any]] = api.all("/messages", campaign_id=campaign["id"])
    assert (rule.used, completed_row["stats"]["sent"], {row["attempts"] for row in rows}) == (1, 40, {1})
    assert len(smtp.messages) == 40


def test_a_throttling_relay(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """After a 454 to the data all messages wait, no attempt is counted, and then all are sent."""
    rule = smtp_server.rules.reject("body", code=454, text="Throttling failure: Maximum sending rate exceeded", times=6)
    server = start_limited(fresh_server, smtp_server, slow_down="1s")
    api: Client = server.client()
    campaign = send(api, create_address_list(server, *[f"p{n}@d{n}.example" for n in range(20)]))
    completed_row = completed(api, campaign, 60)

    assert (rule.used, completed_row["stats"]["sent"], completed_row["stats"]["failed"]) == (6, 20, 0)
    assert {row["attempts"] for row in api.all("/messages", campaign_id=campaign["id"])} == {1}
    # Rejected in few batches, not one by one
    times = sorted(entry.time for entry in smtp_server.phases("body"))
    assert times[-1] - times[0] >= 1


@pytest.mark.full
def test_combined_limits_send_one_copy_each(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Under limits, throttling, rejections and stops together, each recipient gets exactly one copy."""
    server = start_limited(
        fresh_server, smtp_server, slow_down="1s", connections="6", messages_per_connection="7",
        recipient_limits="yahoo 40/s 2 connections,google 3 connections", sender_limits="bakery.example 150/s",
    )  # fmt: skip
    api = server.client()
    domains = ("gmail.com", "yahoo.com", "outlook.com", "one.example", "two.example")
    addresses = [f"p{n}@{domains[n % 5]}" for n in range(300)]
    campaign = send(api, create_address_list(server, *addresses))
    for phase, recipient, code, text, times in (
        ("rcpt", "*@gmail.com", 421, "4.7.0 too much", 3), ("mail", "*", 421, "4.7.0 enough", 1),
        ("body", "*", 454, "Throttling failure: Maximum sending rate exceeded", 1),
        ("body", "*@outlook.com", 451, "4.7.650 rate limited", 2),
        ("rcpt", "*@one.example", 450, "4.2.0 greylisted", 3),
    ):  # fmt: skip
        smtp_server.rules.reject(phase, recipient, code=code, text=text, times=times)
        time.sleep(0.3)
        (server.data / "STOP").touch()
        time.sleep(0.2)
        (server.data / "STOP").unlink()
    completed_row = completed(api, campaign, 90)

    assert completed_row["stats"]["sent"] == 300 and completed_row["stats"]["failed"] == 0
    assert Counter(message.to for message in smtp_server.messages) == dict.fromkeys(addresses, 1)
