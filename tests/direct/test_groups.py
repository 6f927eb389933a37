"""D19, D21: domains that share mail servers share limits; who asks for less gets less, the others go on."""

import time
from collections import Counter

import pytest

from tests.direct.conftest import Starts, ended, post, send_to
from tests.kit.client import Client
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


def sent_at_least(api: Client, path: str, count: int) -> None:
    """Wait until so many of a campaign are sent."""
    api.wait(path, lambda row: row["stats"]["sent"] >= count)


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


def test_a_kill_forgets_nobody(direct: Starts, world: World) -> None:
    """Killed twice while it delivers to three groups: everybody gets it, copies stay within what was under way (P3).

    Who was in hand at both kills may have got nothing: that is known of them, and a person decides.
    """
    servers = providers(world)
    for one in servers:
        one.rules.delay("body", 0.02)
    server = direct()
    api = server.client()
    people = [f"p{n}@{('gmail.com', 'outlook.com', 'shop.example')[n % 3]}" for n in range(90)]
    path = send_to(api, *people)
    for count in (15, 40):
        sent_at_least(api, path, count)
        server.kill()
        server.start()
    number = completed(api, path)["id"]
    found = Counter(message.to for one in servers for message in one.messages)
    doubtful = {row["to"] for row in api.all("/messages", campaign_id=number, status="uncertain")}

    assert found.keys() <= set(people) and set(people) - found.keys() <= doubtful and len(doubtful) <= 8
    assert sum(found.values()) - len(people) <= 16 and max(found.values()) <= 2


def test_a_single_message_goes_beside_a_large_campaign(direct: Starts, world: World) -> None:
    """A receipt to one provider does not wait behind a campaign to another that is slow."""
    google, microsoft, _ = providers(world)
    google.rules.delay("body", 1)
    api = direct(connections="4").client()
    send_to(api, *[f"g{n}@gmail.com" for n in range(40)])
    google.wait_for(2)
    ended(api, post(api, "bo@outlook.com"), "sent")

    assert len(google.messages) < 40 and len(microsoft.messages) == 1


def test_a_rate_is_even_over_all_servers(direct: Starts, world: World) -> None:
    """Twenty a second over three providers: in no second more than twice that (D23)."""
    servers = providers(world)
    api = direct(rate_per_second="20").client()
    domains = ("gmail.com", "outlook.com", "shop.example")
    completed(api, send_to(api, *[f"p{n}@{domains[n % 3]}" for n in range(40)]))
    times = sorted(message.time for one in servers for message in one.messages)

    assert max(sum(at <= other < at + 1 for other in times) for at in times) <= 40
    assert times[-1] - times[0] >= 1.5


def test_a_group_begins_with_few_connections(api: Client, shared_world: World) -> None:
    """Four at first, of the eight there may be in all, and reused (D19)."""
    mx = shared_world.mail("mx.few.example", "few.example")
    mx.rules.delay("body", 0.05)
    completed(api, send_to(api, *[f"p{n}@few.example" for n in range(40)]))

    assert 2 <= mx.open_peak <= 4 and mx.connections <= 8


def test_a_provider_that_is_busy_at_the_door(api: Client, shared_world: World) -> None:
    """421 before anybody is named: that group waits, it is nobody's attempt, and the others go on."""
    busy = shared_world.mail("mx.busydoor.example", "busydoor.example")
    other = shared_world.mail("mx.opendoor.example", "opendoor.example")
    rule = busy.rules.refuse("connect", code=421, text="4.7.0 try again later, too many connections")
    people = [f"g{n}@busydoor.example" for n in range(9)] + [f"o{n}@opendoor.example" for n in range(20)]
    path = send_to(api, *people)
    other.wait_for(20)
    number = path.rpartition("/")[2]
    rows = api.wait(
        "/messages", lambda rows: any(row["error"] for row in rows), status="queued", limit=100, campaign_id=number
    )
    busy.rules.clear()
    completed(api, path)

    assert {row["attempts"] for row in rows} == {0} and 1 <= rule.used <= 12
    assert {row["error"]["code"] for row in rows if row["error"]} == {"throttled"}


@pytest.mark.parametrize(("name", "words"), [("strict", "5.1.8 sender rejected"), ("odd", "5.1.1 no such user")])
def test_one_server_that_refuses_our_sender_stops_nobody(
    name: str, words: str, api: Client, shared_world: World
) -> None:
    """550 to MAIL by one server, whatever it says, ends its messages without suppressing anybody; the others go on."""
    strict = shared_world.mail(f"mx.{name}.example", f"{name}.example")
    shared_world.mail(f"mx.beside-{name}.example", f"beside-{name}.example")
    strict.rules.refuse("mail", code=550, text=words)
    people = [f"g{n}@{name}.example" for n in range(5)] + [f"o{n}@beside-{name}.example" for n in range(9)]
    done = completed(api, send_to(api, *people))

    assert (done["stats"]["sent"], done["stats"]["failed"]) == (9, 5)
    assert not [row for row in api.all("/suppressions") if row["address"].endswith(f"@{name}.example")]


def test_all_servers_refuse_our_sender(api: Client, shared_world: World) -> None:
    """550 to MAIL wherever we come: after a few the campaign pauses with these words, and who is left waits."""
    for number in range(8):
        one = shared_world.mail(f"mx.refuser{number}.example", f"refuser{number}.example")
        one.rules.refuse("mail", code=550, text="5.1.8 sender rejected")
    path = send_to(api, *[f"p{n}@refuser{n % 8}.example" for n in range(64)])
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=40)

    assert row["pause_reason"] == "transport" and "sender rejected" in row["data"]["pause_detail"]
    assert row["stats"]["failed"] <= 20 and row["stats"]["pending"] >= 40


def test_who_cannot_tell_that_it_is_ours_pauses_the_campaign(api: Client, shared_world: World) -> None:
    """550 5.7.26 and 5.7.515 name our DNS: the campaign pauses with the record to enter, nobody is suppressed."""
    google, microsoft, _ = providers(shared_world)
    google.rules.refuse(
        "body", code=550, text="5.7.26 This mail has been blocked because the sender is unauthenticated"
    )
    microsoft.rules.refuse(
        "body", code=550, text="5.7.515 Access denied, sending domain does not meet the required authentication level"
    )
    yahoo = shared_world.mail("mta5.am0.yahoodns.net", "yahoo.com")
    yahoo.rules.refuse("rcpt", code=421, text="4.7.0 [TSS04] Messages temporarily deferred; see TS03", times=1)
    domains = ("gmail.com", "outlook.com", "yahoo.com")
    path = send_to(api, *[f"p{n}@{domains[n % 3]}" for n in range(60)])
    row = api.wait(path, lambda row: row["status"] == "paused", timeout=40)
    found = api.all("/messages", status="queued", campaign_id=row["id"])

    assert row["pause_reason"] == "transport" and "_dmarc" in row["data"]["pause_detail"]
    assert len([one for one in found if one["error"] and one["error"]["smtp"] == 550]) <= 12
    assert not [one for one in api.all("/suppressions") if one["address"].endswith(domains)]
