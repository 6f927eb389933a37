"""What a promotion holds, although a clock is wrong: messages that the former machine may have sent."""

import pytest

from appliance.core import clock
from appliance.ops.fencing import record as records
from appliance.ops.fencing.record import Node
from appliance.ops.standby import holding
from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.home import Home


@pytest.mark.parametrize(
    ("offset_seconds", "lease_seconds"), [(300, None), (300, -3600), (3 * 365 * 86_400, None), (25, -20)]
)
def test_a_former_machine_whose_clock_was_ahead(offset_seconds: int, lease_seconds: int | None, home: Home) -> None:
    """It sent what is due later by the clock here, and what it sent before its clock was set back: these are held.

    `lease_seconds` is the last renewal of its lease, after its last heartbeat; None if there is no lease.
    """
    members = home.list_of(home.contact("a@acme.test").id)
    home.send(home.campaign(members.id))
    heartbeat = clock.now_ms() + offset_seconds * 1000
    transactions.write(run, "UPDATE message SET due_at = ?", (heartbeat + 5_000,))
    lease = None
    if lease_seconds is not None:
        lease = records.renew(
            records.make_first(Node("one"), 20), renewed_at=heartbeat + lease_seconds * 1000, blocks=[(0, 9)],
            kept_seconds=900,
        )  # fmt: skip
    assert transactions.write(holding.hold, lease, heartbeat).message_count == 1
