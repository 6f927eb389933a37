"""What SQL conditions on contacts may cost, counted so that a busy machine does not change the result.

A condition may count the events of a contact, so its cost grows with what the account has recorded. The cost is counted
in steps of SQLite's virtual machine. It is also counted in processor time of the thread, because a single step may read
a long text. Who may use how much is decided by the callers: the flows (`flows.condition_limits`), the sections of
emails (`sending.messages.merge_tags`) and the mirrors of segments (`audience.mirrors`).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import apsw

from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.storage.database import connection


class Cost(NamedTuple):
    """A cost: `steps` of SQLite's virtual machine, and `seconds` of processor time."""

    steps: int
    seconds: float

    def minus(self, other: "Cost") -> "Cost":
        """Return this cost less another one."""
        return Cost(self.steps - other.steps, self.seconds - other.seconds)

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum of this cost and another one."""
        return Cost(self.steps + other.steps, self.seconds + other.seconds)

    def exceeds(self, limit: "Cost") -> bool:
        """Return whether the steps or the seconds are above those of a limit."""
        return self.steps > limit.steps or self.seconds > limit.seconds


NOTHING = Cost(0, 0.0)
# For the check of a segment in all contacts of an account, which has a thread of its own: about as long as a count.
MAX_SEGMENT = Cost(500_000_000, 20.0)
# How many times a statement is interrupted at most to measure its cost, and the steps between two measurements.
_MEASUREMENTS, _MAX_INTERVAL = 1_200, 50_000


class ConditionsTooSlow(Invalid):
    """Conditions cost more than they may."""

    def __init__(self) -> None:
        super().__init__({"filters": [gettext("takes too long to check: use fewer conditions on events")]})


class _Spent(threading.local):
    """The cost of all limited statements of this thread."""

    cost = NOTHING


_spent = _Spent()


def get_spent() -> Cost:
    """Return the cost of all statements of this thread in `limit_statement` so far; compare it with an earlier one."""
    return _spent.cost


@contextmanager
def limit_statement(limit: Cost) -> Iterator["Meter"]:
    """Measure the SQL statements in the `with` block, and interrupt them with ConditionsTooSlow above a limit.

    The block must not write, because an interrupted write would roll back the whole transaction. The limit applies only
    to the database connection of this thread.
    """
    meter = Meter(limit)
    db = connection()
    db.set_progress_handler(meter.measure, meter.interval, id=meter)
    try:
        yield meter
    except apsw.InterruptError:
        if not meter.is_exceeded:
            raise
        raise ConditionsTooSlow from None
    finally:
        db.set_progress_handler(None, id=meter)
        _spent.cost = _spent.cost.plus(meter.cost())


class Meter:
    """The measured cost of statements; `measure` is called each time they have made `interval` steps."""

    def __init__(self, limit: Cost) -> None:
        self.is_exceeded = False
        self.interval = min(max(limit.steps // _MEASUREMENTS, 1_000), _MAX_INTERVAL)
        self._limit, self._steps, self._started_at = limit, 0, time.thread_time()

    def measure(self) -> bool:
        """Return whether the statement must be interrupted, because it has cost more than it may."""
        self._steps += self.interval
        self.is_exceeded = self.cost().exceeds(self._limit)
        return self.is_exceeded

    def check(self) -> None:
        """Raise ConditionsTooSlow if the block has cost more than it may, even without a statement."""
        if self.cost().exceeds(self._limit):
            raise ConditionsTooSlow

    def cost(self) -> Cost:
        """Return the cost so far."""
        return Cost(self._steps, time.thread_time() - self._started_at)
