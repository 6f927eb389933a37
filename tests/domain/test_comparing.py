"""What stands beside the numbers of a report: what is usual, what came after a click, and who is kept as a segment."""

import pytest
from msgspec import UNSET

from appliance.accounts import users
from appliance.accounts.audit import Actor
from appliance.audience import lists
from appliance.campaigns import audience, results, send, states, store
from appliance.campaigns.recipients import RecipientQuery
from appliance.core import clock, validation
from appliance.core.cache import CostAwareCache
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.home import Home
from tests.domain.test_outcomes import finish, take


def sent(home: Home, people: int, opened: int, clicked: int) -> int:
    """Send a campaign of which so many open and click; answers its id."""
    number = scalar("SELECT count(*) FROM campaign")
    ids = [home.contact(f"c{number}-{one}@example.org").id for one in range(people)]
    campaign = home.send(home.campaign(home.list_of(*ids, name=f"List {number}").id))
    while (claim := take()) is not None:
        finish(claim, "accepted")
    transactions.write(states.complete_finished)
    for column, count in (("opened_at", opened), ("clicked_at", clicked)):
        few = "(SELECT id FROM message WHERE campaign_id = ? LIMIT ?)"
        transactions.write(run, f"UPDATE message SET {column} = sent_at + 1000 WHERE id IN {few}", (campaign.id, count))
    home.advance(60)
    return int(campaign.id)


def test_usual_is_the_average_of_those_before(home: Home) -> None:
    """Shares are averaged, each campaign the same; itself and later ones are left out, one alone says nothing."""
    first = sent(home, 2, 2, 1)
    second = sent(home, 4, 2, 0)
    third = sent(home, 4, 4, 4)
    usual = [results.find_usual_results(store.get(home.account_id, number)) for number in (first, second, third)]

    assert usual[:2] == [None, None]
    assert usual[2] is not None
    assert (usual[2].campaigns, usual[2].opened, usual[2].clicked, usual[2].bounced) == (2, 0.75, 0.25, 0)


def test_what_came_after_a_click(home: Home) -> None:
    """Events of a program within a week after the click count, once for each person; what came before does not."""
    number = sent(home, 3, 3, 2)
    ids = [row[0] for row in rows("SELECT contact_id FROM message WHERE clicked_at NOT NULL")]
    sql = (
        "INSERT INTO event (account_id, contact_id, event, amount, data, test, generated, quiet, chain_depth, "
        "created_at, updated_at) VALUES (?, ?, ?, 20, '{}', 0, 0, 0, 0, ?, 0)"
    )
    now = clock.now_ms()
    late = now + 8 * 86_400_000
    orders = [(one, "order_placed", now) for one in (*ids, ids[0])]
    for contact_id, event, at in [*orders, (ids[0], "seen", 1), (ids[1], "late", late)]:
        transactions.write(run, sql, (home.account_id, contact_id, event, at))

    assert results.list_conversions(store.get(home.account_id, number)) == [results.Conversion("order_placed", 2, 60.0)]


def test_who_paused_is_known(home: Home) -> None:
    """A person is named, a program is not, and the service says that it was itself."""
    ids = [home.contact(f"p{one}@example.org").id for one in range(2)]
    campaign = home.send(home.campaign(home.list_of(*ids).id))
    ana = transactions.write(
        users.create, home.account_id, users.prepare_user("ana@example.org", "correct horse battery", "Ana"), "owner"
    )
    found = []
    for actor in (f"user:{ana.id}", "key:1"):
        paused = transactions.write(states.pause, home.account_id, campaign.id, Actor(actor))
        found.append(states.find_last_action(paused))
        transactions.write(send.resume, home.account_id, campaign.id, Actor(f"user:{ana.id}"))
    found.append(
        states.find_last_action(
            transactions.write(states.pause_by_service, store.get(home.account_id, campaign.id), "transport")
        )
    )

    assert [(one.name, one.is_service) for one in found if one] == [("Ana", False), (None, False), (None, True)]


@pytest.mark.parametrize(
    ("query", "names"),
    [({}, None), ({"opened": "people"}, ["campaign_opened"]), ({"opened": "machines"}, None),
     ({"clicked": "nobody"}, ["campaign_sent", "campaign_clicked"]), ({"link": 2}, ["event"]),
     ({"accepted": True}, ["campaign_sent"]), ({"status": "bounced", "opened": "people"}, None)],
)  # fmt: skip
def test_only_what_a_segment_can_ask_is_kept(query: dict[str, object], names: list[str] | None) -> None:
    """Where a segment would find others than the page shows, none is offered."""
    asked = validation.read(RecipientQuery, query)
    found = audience.build_recipient_filters(3, asked)

    assert (None if found is None else [one["name"] for one in found]) == names
    assert asked.contact_id is UNSET


def test_lists_grow_by_day(home: Home) -> None:
    """Who joined today stands in the last column, who joined before the first one nowhere; the sizes are whole."""
    ids = [home.contact(f"p{one}@example.org").id for one in range(3)]
    made = home.list_of(*ids)
    transactions.write(run, "UPDATE membership SET created_at = 0 WHERE contact_id = ?", (ids[0],))
    [found] = lists._measure_growth(home.account_id, 4, 30)

    assert (found.id, found.size, found.joined[-1], sum(found.joined)) == (made.id, 3, 2, 2)


def test_what_is_dear_rests() -> None:
    """It is made once for all who ask meanwhile, and anew once it was forgotten."""
    calls: list[int] = []
    rested: CostAwareCache[int] = CostAwareCache(min_age_seconds=60)
    first = [rested.get("key", lambda: calls.append(1) or len(calls)) for _ in range(3)]
    rested.invalidate("key")

    assert (first, rested.get("key", lambda: 9), len(calls)) == ([1, 1, 1], 9, 1)
