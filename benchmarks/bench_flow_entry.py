"""Measures how people come into flows: `python -m benchmarks.bench_flow_entry [--people 100000]`; not a test.

In one process with its writer: events taken in behind the cursor, the dates of a day, a watched segment, enrolment.
For each the whole time, and the longest that one transaction kept the writer.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from appliance.audience.segments import store
from appliance.audience.segments.store import SegmentCreate
from appliance.core import clock, validation
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows import date_events, enrollment, segment_events
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from tests.domain.flows_home import live_flow
from tests.domain.home import Home

_PEOPLE = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2) INSERT INTO contact ({columns}) "
    "SELECT {values} FROM n"
)


def fill(home: Home, people: int) -> None:
    """Create contacts, a 365th of them born on each day, a quarter with a tag."""
    document = {
        "account_id": "?1", "uuid": "'u' || i", "created_at": "?3", "updated_at": "?3", "source": "'api'",
        "data": "json_object('birthday', date('1990-01-01', (i % 365) || ' days'), "
        "'tags', json_array(iif(i % 4, 'guest', 'vip')))",
    }  # fmt: skip
    for _, name, kind, needed, default, key in rows("PRAGMA table_info(contact)"):
        if needed and default is None and not key and name not in document:
            document[name] = "0" if kind == "INTEGER" else "''"
    sql = _PEOPLE.format(columns=", ".join(document), values=", ".join(document.values()))
    transactions.write(run, sql, (home.account_id, people, clock.now_ms()))


@contextmanager
def measured(what: str, count: Callable[[], int]) -> Iterator[None]:
    """Print how long an operation takes, and its longest transaction."""
    real, longest = transactions.submit, 0.0

    def submit(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        def timed() -> Any:
            nonlocal longest
            begun = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                longest = max(longest, time.perf_counter() - begun)

        return real(timed)

    transactions.submit = submit
    begun, before = time.perf_counter(), count()
    try:
        yield
    finally:
        transactions.submit = real
    took, number = time.perf_counter() - begun, count() - before
    print(f"{what}: {number:,} in {took:.2f} s, {number / took:,.0f} a second; longest write {longest * 1000:.0f} ms")


def happened(event: str) -> Callable[[], int]:
    """Count the events with a name."""
    return lambda: int(scalar("SELECT count(*) FROM event WHERE event = ?", (event,)))


def drain() -> None:
    """Process all events."""
    enrollment._cursor_written_at = 0.0
    while enrollment.process_events():
        pass


def look() -> None:
    """Check watched segments, as happens once a minute."""
    segment_events.is_segment_check_due()
    segment_events.check_segments()


def main(people: int) -> None:
    """Measure each way into a flow."""
    directory = Path(tempfile.mkdtemp(prefix="campanero-bench-"))
    home = Home(directory)
    transactions.start()
    try:
        measure(home, people)
    finally:
        home.close()
        shutil.rmtree(directory)


def measure(home: Home, people: int) -> None:
    """Measure how fast contacts enter flows, for each kind of trigger."""
    fill(home, people)
    vip = [{"name": "contact_tag", "predicate": "eq", "value": "vip"}]
    where = [*vip, {"name": "event.total", "predicate": "gt", "value": 3}]
    live_flow(home, {"event": "order_paid", "data": {"where": where}})
    for start in range(0, people, 1_000):
        events = [NewEvent(home.account_id, "order_paid", start + n + 1, {"total": 5}) for n in range(1_000)]
        transactions.write(log.record_many, events)
    with measured("runs started by events, a quarter of which meet the conditions", happened("flow_enter")):
        drain()
    flow = live_flow(home, {"event": "never"})
    chosen = enrollment.resolve_contacts(
        home.account_id, flow, validation.read(enrollment.EnrollWrite, {"contact_ids": [1]})
    )
    with measured("people enrolled", happened("flow_enter")):
        for start in range(0, people, enrollment.BATCH_SIZE):
            chosen = list(range(start + 1, start + 1 + enrollment.BATCH_SIZE))
            transactions.write(enrollment.enroll, flow, chosen, False)
    drain()
    segment = transactions.write(
        store.create, home.account_id, validation.read(SegmentCreate, {"name": "V", "filters": vip})
    ).id
    live_flow(home, {"segment_id": segment})
    with measured("people kept of a segment", lambda: int(scalar("SELECT count(*) FROM segment_member"))):
        look()
    transactions.write(run, "UPDATE contact SET data = json_set(data, '$.tags', json_array('vip')) WHERE id % 100 = 1")
    home.advance(61)
    with measured("people who entered a segment", happened("segment_enter")):
        look()
    live_flow(home, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "00:00"}})
    while date_events.check_dates():
        pass
    night = datetime.fromtimestamp(clock.now(), UTC).replace(hour=0, minute=0, second=1) + timedelta(days=1)
    home.advance(night.timestamp() - clock.now())
    with measured("people whose date came round", happened("date_reached")):
        while date_events.check_dates():
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=100_000)
    main(parser.parse_args().people)
