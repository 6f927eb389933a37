"""Limits of an account: what waits, what is counted, and until when."""

from datetime import datetime
from zoneinfo import ZoneInfo

from appliance.accounts import limits
from appliance.accounts.audit import Actor
from appliance.accounts.limits import AccountLimits
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home
from tests.domain.test_flow_messages import create_email_flow
from tests.domain.test_flow_run import advance_until_idle, start_runs


def set_limits(home: Home, **values: int) -> None:
    """Set the limits of the account."""
    transactions.write(limits.update, home.account_id, AccountLimits(**values), Actor("cli"))


def test_messages_of_flows_wait_for_the_next_day(home: Home) -> None:
    """What exceeds the limit is held until midnight of the account, and what is skipped is not counted."""
    transactions.write(run, "UPDATE account SET time_zone = 'Asia/Tokyo'")
    set_limits(home, messages_per_day=2)
    flow = create_email_flow(home)
    people = [home.contact(f"p{number}@acme.test").id for number in range(3)]
    skipped = home.contact("no@acme.test", opt_in=False).id
    for contact_id in (skipped, *people):
        start_runs(home, flow, contact_id)
        advance_until_idle()
    states = rows("SELECT contact_id, status, due_at FROM message ORDER BY id")
    assert [(contact_id, status) for contact_id, status, _ in states] == [
        (skipped, "skipped"), (people[0], "queued"), (people[1], "queued"), (people[2], "held"),
    ]  # fmt: skip
    midnight = datetime.fromtimestamp(states[-1][2] / 1000, ZoneInfo("Asia/Tokyo"))
    assert (midnight.hour, midnight.minute, midnight.second) == (0, 0, 0)
    home.advance(86_400)
    assert limits.find_hold(home.account_id, 2) is None


def test_uses_are_told_once_for_each_level_and_period(home: Home) -> None:
    """At 80 % and at 100 %, again in the next period, and after a change of the limit."""
    set_limits(home, contacts=5)

    def tell() -> list[int]:
        uses = limits.list_notices(home.account_id)
        transactions.write(limits.mark_notified, home.account_id, uses)
        return [use.used for use in uses]

    seen = []
    for number in range(5):
        home.contact(f"p{number}@acme.test")
        seen.append(tell())
    assert seen == [[], [], [], [4], [5]]
    assert tell() == []
    set_limits(home, contacts=6)
    assert tell() == [5]


def test_no_limits_cost_nothing_and_stop_nothing(home: Home) -> None:
    """An account without limits has no uses, and nothing of it waits."""
    assert limits.list_uses(home.account_id) == [] and limits.count_messages_left(home.account_id) is None
    assert limits.find_hold(home.account_id, 10**9) is None
    limits.require_contacts(home.account_id, 10**9)
    limits.require_messages(home.account_id, 10**9)
    limits.require_picture(home.account_id, 10**15)
