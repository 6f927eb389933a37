"""A28, D19 to D21: domains that share mail servers share limits; who asks for less gets less, the others go on."""

import time
from collections import Counter

from tests.direct.conftest import Starts, ended, post, send_to
from tests.kit.clock import TestClock
from tests.kit.recipients import completed
from tests.kit.smtp import SmtpServer
from tests.kit.world import World

SILENCE = "4.7.28 Gmail has detected an unusual rate of mail originating from your IP address"


def providers(world: World, **options: float) -> tuple[SmtpServer, SmtpServer, SmtpServer]:
    """Start servers as three large providers have them, each for its own domain and one that is only hosted there."""
    google = world.mail("gmail-smtp-in.l.google.com", "gmail.com", "hosted.example")
    microsoft = world.mail("outlook-com.olc.protection.outlook.com", "outlook.com")
    shop = world.mail("shop-example.mail.protection.outlook.com", "shop.example")
    return google, microsoft, shop


def test_domains_of_one_provider_share_its_limit(direct: Starts, world: World) -> None:
    """Two at a time to Google, whichever domain it is for, and whatever the others may have; connections are reused."""
    google, microsoft, shop = providers(world)
    for one in (google, microsoft, shop):
        one.rules.delay("body", 0.03)
    api = direct(connections="12", recipient_limits="google 2 connections").client()
    domains = ("gmail.com", "hosted.example", "outlook.com", "shop.example")
    completed(api, send_to(api, *[f"p{n}@{domains[n % 4]}" for n in range(80)]))

    assert len(google.messages) == 40 and google.open_peak <= 2
    assert google.connections <= 6 and len(microsoft.messages) == len(shop.messages) == 20
    assert microsoft.open_peak + shop.open_peak > 2
    assert {"hosted.example", "gmail.com"} == {m.to.partition("@")[2] for m in google.messages}


def test_a_group_begins_with_few_connections(direct: Starts, world: World) -> None:
    """Four at first, whatever there may be in all (D19)."""
    google, _, _ = providers(world)
    google.rules.delay("body", 0.1)
    api = direct(connections="30").client()
    completed(api, send_to(api, *[f"p{n}@gmail.com" for n in range(40)]))

    assert 2 <= google.open_peak <= 4 and google.connections <= 8


def test_silence_for_one_provider(direct: Starts, world: World, clock: TestClock) -> None:
    """421-4.7.28: ten minutes nothing to Google, then one connection, one more for each good while; others go on."""
    google, microsoft, _ = providers(world)
    rule = google.rules.refuse("rcpt", code=421, text=f"{SILENCE}\n{SILENCE}", times=1)
    google.rules.delay("body", 0.02)
    server = direct(clock=clock)
    api = server.client()
    people = [f"g{n}@gmail.com" for n in range(10)] + [f"h{n}@hosted.example" for n in range(10)]
    path = send_to(api, *people, *[f"o{n}@outlook.com" for n in range(30)])
    microsoft.wait_for(30)
    google.wait_until(lambda: rule.used == 1)
    api.wait("/delivery/status", lambda row: any(one["group"] == "google" for one in row["groups"]))
    clock.advance(minutes=9)
    time.sleep(2)
    taken = len(google.messages)
    waiting = api.get(path).expect(200)["waiting"]
    spared = {one["group"]: one for one in api.get("/delivery/status").expect(200)["groups"]}

    # What was under way when the answer came still ended
    assert taken <= 4 and set(spared) == {"google"}
    assert "4.7.28" in spared["google"]["text"] and waiting["reason"] == "group" and "google" in waiting["text"]
    google.log.clear()
    google.open_peak = google.open_now
    clock.advance(minutes=2.5)
    done = completed(api, path)
    assert (done["stats"]["sent"], done["stats"]["failed"], google.open_peak) == (50, 0, 1)
    assert {row["attempts"] for row in api.all("/messages", campaign_id=done["id"])} == {1}
    assert max(Counter(message.to for message in google.messages).values()) == 1


def test_a_provider_that_is_busy_at_the_door(direct: Starts, world: World) -> None:
    """421 before anybody is named: that group waits, it is nobody's attempt, and the others go on."""
    google, microsoft, _ = providers(world)
    rule = google.rules.refuse("connect", code=421, text="4.7.0 try again later, too many connections")
    server = direct(slow_down="1s")
    api = server.client()
    path = send_to(api, *[f"g{n}@gmail.com" for n in range(9)], *[f"o{n}@outlook.com" for n in range(20)])
    microsoft.wait_for(20)
    rows = api.wait("/messages", lambda rows: any(row["error"] for row in rows), status="queued", limit=100)
    google.rules.clear()
    completed(api, path)

    assert {row["attempts"] for row in rows} == {0} and 1 <= rule.used <= 12
    assert {row["error"]["code"] for row in rows if row["error"]} == {"throttled"}


def test_one_server_that_refuses_our_sender_stops_nobody(direct: Starts, world: World) -> None:
    """550 to MAIL by one server ends its messages without suppressing anybody; the campaign goes on."""
    google, microsoft, _ = providers(world)
    google.rules.refuse("mail", code=550, text="5.1.8 sender rejected")
    api = direct().client()
    done = completed(
        api, send_to(api, *[f"g{n}@gmail.com" for n in range(5)], *[f"o{n}@outlook.com" for n in range(9)])
    )

    assert (done["stats"]["sent"], done["stats"]["failed"]) == (9, 5)
    assert not api.all("/suppressions") and len(microsoft.messages) == 9


def test_all_servers_refuse_our_sender(direct: Starts, world: World) -> None:
    """550 to MAIL wherever we come: after a few the campaign pauses with these words, and who is left waits."""
    for number in range(8):
        one = world.mail(f"mx.s{number}.example", f"s{number}.example")
        one.rules.refuse("mail", code=550, text="5.1.8 sender rejected")
    api = direct(probe_after="1s").client()
    path = send_to(api, *[f"p{n}@s{n % 8}.example" for n in range(64)])
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=40)

    assert row["pause_reason"] == "transport" and "sender rejected" in row["data"]["pause_detail"]
    assert row["stats"]["failed"] <= 20 and row["stats"]["pending"] >= 40


def test_connections_are_reused_and_end(direct: Starts, world: World) -> None:
    """So many messages on one connection as the setting says, then another."""
    mx = world.mail("mx.many.example", "many.example")
    api = direct(connections="2", messages_per_connection="10").client()
    completed(api, send_to(api, *[f"p{n}@many.example" for n in range(40)]))
    for_each = Counter(message.connection for message in mx.messages)

    assert max(for_each.values()) == 10 and mx.connections <= 6


def test_a_kill_forgets_nobody(direct: Starts, world: World) -> None:
    """Killed twice while it delivers to three groups: everybody gets it, copies stay within what was under way (P3)."""
    servers = providers(world)
    for one in servers:
        one.rules.delay("body", 0.02)
    server = direct()
    api = server.client()
    people = [f"p{n}@{('gmail.com', 'outlook.com', 'shop.example')[n % 3]}" for n in range(150)]
    path = send_to(api, *people)
    for count in (20, 60):
        api.wait(path, lambda row, count=count: row["stats"]["sent"] >= count)  # type: ignore[misc]
        server.kill()
        server.start()
    completed(api, path)
    found = Counter(message.to for one in servers for message in one.messages)

    assert set(found) == set(people) and sum(found.values()) - len(people) <= 16 and max(found.values()) <= 2


def test_a_single_message_goes_beside_a_large_campaign(direct: Starts, world: World) -> None:
    """A receipt to one provider does not wait behind a campaign to another that is slow."""
    google, microsoft, _ = providers(world)
    google.rules.delay("body", 1)
    api = direct(connections="4").client()
    send_to(api, *[f"g{n}@gmail.com" for n in range(40)])
    google.wait_for(2)
    began = time.monotonic()
    ended(api, post(api, "bo@outlook.com"), "sent")

    assert time.monotonic() - began < 5 and len(microsoft.messages) == 1


def test_who_cannot_tell_that_it_is_ours_pauses_the_campaign(direct: Starts, world: World) -> None:
    """550 5.7.26 and 5.7.515 name our DNS: the campaign pauses with the record to enter, nobody is suppressed."""
    google, microsoft, _ = providers(world)
    google.rules.refuse(
        "body", code=550, text="5.7.26 This mail has been blocked because the sender is unauthenticated"
    )
    microsoft.rules.refuse(
        "body", code=550, text="5.7.515 Access denied, sending domain does not meet the required authentication level"
    )
    yahoo = world.mail("mta5.am0.yahoodns.net", "yahoo.com")
    rule = yahoo.rules.refuse("rcpt", code=421, text="4.7.0 [TSS04] Messages temporarily deferred; see TS03", times=1)
    api = direct(slow_down="1s").client()
    domains = ("gmail.com", "outlook.com", "yahoo.com")
    path = send_to(api, *[f"p{n}@{domains[n % 3]}" for n in range(60)])
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=40)
    refused = [one for one in api.all("/messages", status="queued") if one["error"] and one["error"]["smtp"] == 550]

    assert row["pause_reason"] == "transport" and "_dmarc" in row["data"]["pause_detail"]
    assert len(refused) <= 12 and not api.all("/suppressions") and rule.used <= 1


def test_a_rate_is_even_over_all_servers(direct: Starts, world: World) -> None:
    """Twenty a second over three providers: in no second more than twice that (D23)."""
    servers = providers(world)
    api = direct(rate_per_second="20").client()
    domains = ("gmail.com", "outlook.com", "shop.example")
    completed(api, send_to(api, *[f"p{n}@{domains[n % 3]}" for n in range(60)]))
    times = sorted(message.time for one in servers for message in one.messages)

    assert max(sum(at <= other < at + 1 for other in times) for at in times) <= 40
    assert times[-1] - times[0] >= 2.4
