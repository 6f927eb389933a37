"""D22: a campaign from a new domain spreads over days, over restarts and a kill, and says so."""

from collections import Counter

from tests.direct.conftest import Starts, ended, post, send_to
from tests.kit.clock import TestClock
from tests.kit.patience import comes_to_rest
from tests.kit.recipients import completed
from tests.kit.world import World


def test_a_campaign_spreads_over_days(direct: Starts, world: World, clock: TestClock) -> None:
    """Fifty on the first day, whatever is killed; the page says why and until when; the rest on the next; no copies."""
    mx = world.mail("mx.people.example", "people.example")
    # Noon, so that no midnight comes by itself
    clock.advance(86_400 - (clock.now() + 43_200) % 86_400)
    server = direct(clock=clock, direct__warm_up="true")
    api = server.client()
    people = [f"p{n}@people.example" for n in range(120)]
    path = send_to(api, *people)
    mx.wait_for(20)
    server.kill()
    server.start()
    mx.wait_for(50)
    row = api.wait(path, lambda row: (row["waiting"] or {}).get("reason") == "warm_up")
    status = api.get("/delivery/status").expect(200)
    ended(api, post(api, "bo@people.example"), "sent")
    first = Counter(message.to for message in mx.messages)

    # Who was in hand when it was killed may get a copy, never more than are under way at a time (P3)
    assert 50 <= sum(first.values()) - first["bo@people.example"] <= 58
    assert "day 1 of 13" in row["waiting"]["text"] and "50" in row["waiting"]["text"]
    assert status["open"] and [one["code"] for one in status["obstacles"]] == ["warm_up"]
    assert [(one["domain"], one["cap"], one["day"]) for one in status["warm_up"]] == [("bakery.example", 50, 1)]
    clock.advance(days=1)
    done = completed(api, path)
    found = Counter(message.to for message in mx.messages)
    assert done["stats"]["sent"] == 120 and set(people) <= set(found)
    assert sum(found.values()) <= 121 + 8


def test_waiting_for_the_next_day_costs_nothing(direct: Starts, world: World) -> None:
    """More people than a day has room for, all of one provider: the process sleeps until there is something to do."""
    mx = world.mail("mx.patient.example", "patient.example")
    server = direct(direct__warm_up="true", connections="20")
    api = server.client()
    path = send_to(api, *[f"p{n}@patient.example" for n in range(700)])
    mx.wait_for(50)
    api.wait(path, lambda row: (row["waiting"] or {}).get("reason") == "warm_up")
    assert comes_to_rest(server.pid)
