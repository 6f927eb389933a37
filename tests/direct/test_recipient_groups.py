"""Recipient groups: domains that share servers share limits, and a throttled group does not slow others (D19, D21)."""

import time
from collections import Counter

import pytest

from tests.direct.conftest import StartDirect, post, send_to, wait_for_status
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.mail_network import MailNetwork
from tests.kit.recipients import wait_until_completed
from tests.kit.smtp import SmtpServer

RATE_REPLY = "4.7.28 Gmail has detected an unusual rate of mail originating from your IP address"


def providers(world: MailNetwork, **options: float) -> tuple[SmtpServer, SmtpServer, SmtpServer]:
    """Start the servers of three large providers; Google's also has a hosted domain."""
    google = world.mail("gmail-smtp-in.l.google.com", "gmail.com", "hosted.example")
    microsoft = world.mail("outlook-com.olc.protection.outlook.com", "outlook.com")
    shop = world.mail("shop-example.mail.protection.outlook.com", "shop.example")
    return google, microsoft, shop


def wait_until_sent(api: Client, path: str, count: int) -> None:
    """Wait until at least `count` messages of a campaign are sent."""
    api.wait(path, lambda row: row["stats"]["sent"] >= count)


def test_domains_of_one_provider_share_its_limit(direct: StartDirect, world: MailNetwork) -> None:
    """Google gets two connections for all its domains, whatever the limit of others; connections are reused."""
    google, microsoft, shop = providers(world)
    for smtp in (google, microsoft, shop):
        smtp.rules.delay("body", 0.03)
    api = direct(connections="12", recipient_limits="google 2 connections").client()
    domains = ("gmail.com", "hosted.example", "outlook.com", "shop.example")
    wait_until_completed(api, send_to(api, *[f"p{n}@{domains[n % 4]}" for n in range(80)]))

    assert len(google.messages) == 40 and google.open_peak <= 2
    assert google.connections <= 6 and len(microsoft.messages) == len(shop.messages) == 20
    assert microsoft.open_peak + shop.open_peak > 2
    assert {"hosted.example", "gmail.com"} == {m.to.partition("@")[2] for m in google.messages}


def test_a_throttled_group_pauses_and_recovers(direct: StartDirect, world: MailNetwork, clock: TestClock) -> None:
    """After 421 4.7.28 Google gets nothing for ten minutes and then one connection; other groups go on."""
    google, microsoft, _ = providers(world)
    rule = google.rules.reject("rcpt", code=421, text=f"{RATE_REPLY}\n{RATE_REPLY}", times=1)
    google.rules.delay("body", 0.02)
    server = direct(clock=clock)
    api = server.client()
    addresses = [f"g{n}@gmail.com" for n in range(10)] + [f"h{n}@hosted.example" for n in range(10)]
    path = send_to(api, *addresses, *[f"o{n}@outlook.com" for n in range(30)])
    microsoft.wait_for(30)
    google.wait_until(lambda: rule.used == 1)
    api.wait("/delivery/status", lambda row: any(group["group"] == "google" for group in row["groups"]))
    clock.advance(minutes=9)
    time.sleep(2)
    taken = len(google.messages)
    waiting = api.get(path).expect(200)["waiting"]
    groups = {group["group"]: group for group in api.get("/delivery/status").expect(200)["groups"]}

    # Transactions that were open when the reply came still end
    assert taken <= 4 and set(groups) == {"google"}
    assert "4.7.28" in groups["google"]["text"] and waiting["reason"] == "group" and "google" in waiting["text"]
    google.log.clear()
    google.open_peak = google.open_now
    clock.advance(minutes=2.5)
    campaign = wait_until_completed(api, path)
    assert (campaign["stats"]["sent"], campaign["stats"]["failed"], google.open_peak) == (50, 0, 1)
    assert {row["attempts"] for row in api.all("/messages", campaign_id=campaign["id"])} == {1}
    assert max(Counter(message.to for message in google.messages).values()) == 1


def test_kills_lose_no_message(direct: StartDirect, world: MailNetwork) -> None:
    """After two kills each recipient got the message or is uncertain, and copies stay within the concurrency (P3).

    A message in flight at a kill may or may not have been accepted: it is uncertain until a user decides.
    """
    servers = providers(world)
    for smtp in servers:
        smtp.rules.delay("body", 0.02)
    server = direct()
    api = server.client()
    addresses = [f"p{n}@{('gmail.com', 'outlook.com', 'shop.example')[n % 3]}" for n in range(90)]
    path = send_to(api, *addresses)
    for count in (15, 40):
        wait_until_sent(api, path, count)
        server.kill()
        server.start()
    campaign_id = wait_until_completed(api, path)["id"]
    received = Counter(message.to for smtp in servers for message in smtp.messages)
    uncertain = {row["to"] for row in api.all("/messages", campaign_id=campaign_id, status="uncertain")}

    assert received.keys() <= set(addresses) and set(addresses) - received.keys() <= uncertain and len(uncertain) <= 8
    assert sum(received.values()) - len(addresses) <= 16 and max(received.values()) <= 2


def test_a_single_message_overtakes_a_slow_campaign(direct: StartDirect, world: MailNetwork) -> None:
    """A message to one provider does not wait for a campaign to another, slow provider."""
    google, microsoft, _ = providers(world)
    google.rules.delay("body", 1)
    api = direct(connections="4").client()
    send_to(api, *[f"g{n}@gmail.com" for n in range(40)])
    google.wait_for(2)
    wait_for_status(api, post(api, "bo@outlook.com"), "sent")

    assert len(google.messages) < 40 and len(microsoft.messages) == 1


def test_the_rate_limit_applies_to_all_servers_together(direct: StartDirect, world: MailNetwork) -> None:
    """At 20 messages a second over three providers, no second has more than twice that (D23)."""
    servers = providers(world)
    api = direct(rate_per_second="20").client()
    domains = ("gmail.com", "outlook.com", "shop.example")
    wait_until_completed(api, send_to(api, *[f"p{n}@{domains[n % 3]}" for n in range(40)]))
    times = sorted(message.time for smtp in servers for message in smtp.messages)

    assert max(sum(start <= other < start + 1 for other in times) for start in times) <= 40
    assert times[-1] - times[0] >= 1.5


def test_a_group_begins_with_few_connections(api: Client, shared_world: MailNetwork) -> None:
    """A new group starts with four connections at most, which are reused (D19)."""
    mx = shared_world.mail("mx.few.example", "few.example")
    mx.rules.delay("body", 0.05)
    wait_until_completed(api, send_to(api, *[f"p{n}@few.example" for n in range(40)]))

    assert 2 <= mx.open_peak <= 4 and mx.connections <= 8


def test_a_421_greeting_defers_the_group(api: Client, shared_world: MailNetwork) -> None:
    """After a 421 greeting the group waits, no attempt is counted, and other groups go on."""
    busy = shared_world.mail("mx.busydoor.example", "busydoor.example")
    other = shared_world.mail("mx.opendoor.example", "opendoor.example")
    rule = busy.rules.reject("connect", code=421, text="4.7.0 try again later, too many connections")
    addresses = [f"g{n}@busydoor.example" for n in range(9)] + [f"o{n}@opendoor.example" for n in range(20)]
    path = send_to(api, *addresses)
    other.wait_for(20)
    campaign_id = path.rpartition("/")[2]
    rows = api.wait(
        "/messages", lambda rows: any(row["error"] for row in rows), status="queued", limit=100, campaign_id=campaign_id
    )
    busy.rules.clear()
    wait_until_completed(api, path)

    assert {row["attempts"] for row in rows} == {0} and 1 <= rule.used <= 12
    assert {row["error"]["code"] for row in rows if row["error"]} == {"throttled"}


@pytest.mark.parametrize(("name", "text"), [("strict", "5.1.8 sender rejected"), ("odd", "5.1.1 no such user")])
def test_a_sender_rejection_by_one_server(name: str, text: str, api: Client, shared_world: MailNetwork) -> None:
    """A 550 to MAIL by one server fails its messages without a suppression; the others are sent."""
    strict = shared_world.mail(f"mx.{name}.example", f"{name}.example")
    shared_world.mail(f"mx.beside-{name}.example", f"beside-{name}.example")
    strict.rules.reject("mail", code=550, text=text)
    addresses = [f"g{n}@{name}.example" for n in range(5)] + [f"o{n}@beside-{name}.example" for n in range(9)]
    campaign = wait_until_completed(api, send_to(api, *addresses))

    assert (campaign["stats"]["sent"], campaign["stats"]["failed"]) == (9, 5)
    assert not [row for row in api.all("/suppressions") if row["address"].endswith(f"@{name}.example")]


def test_a_sender_rejection_by_all_servers_pauses(api: Client, shared_world: MailNetwork) -> None:
    """If every server replies 550 to MAIL, the campaign pauses with that text after a few failures."""
    for number in range(8):
        smtp = shared_world.mail(f"mx.refuser{number}.example", f"refuser{number}.example")
        smtp.rules.reject("mail", code=550, text="5.1.8 sender rejected")
    path = send_to(api, *[f"p{n}@refuser{n % 8}.example" for n in range(64)])
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=40)

    assert row["pause_reason"] == "transport" and "sender rejected" in row["data"]["pause_detail"]
    assert row["stats"]["failed"] <= 20 and row["stats"]["pending"] >= 40


def test_an_authentication_rejection_pauses_the_campaign(api: Client, shared_world: MailNetwork) -> None:
    """Rejections as unauthenticated (5.7.26, 5.7.515) pause the campaign; the reason names the DNS record to add."""
    google, microsoft, _ = providers(shared_world)
    google.rules.reject(
        "body", code=550, text="5.7.26 This mail has been blocked because the sender is unauthenticated"
    )
    microsoft.rules.reject(
        "body", code=550, text="5.7.515 Access denied, sending domain does not meet the required authentication level"
    )
    yahoo = shared_world.mail("mta5.am0.yahoodns.net", "yahoo.com")
    yahoo.rules.reject("rcpt", code=421, text="4.7.0 [TSS04] Messages temporarily deferred; see TS03", times=1)
    domains = ("gmail.com", "outlook.com", "yahoo.com")
    path = send_to(api, *[f"p{n}@{domains[n % 3]}" for n in range(60)])
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=40)
    rows = api.all("/messages", status="queued", campaign_id=row["id"])

    assert row["pause_reason"] == "transport" and "_dmarc" in row["data"]["pause_detail"]
    assert len([row for row in rows if row["error"] and row["error"]["smtp"] == 550]) <= 12
    assert not [row for row in api.all("/suppressions") if row["address"].endswith(domains)]
