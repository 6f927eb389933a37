"""Many contacts at once, written straight into the database of a server that was set up and is not running."""

import time
from pathlib import Path

import apsw

from tests.kit.audience_data import draw, person, whole


def fill(path: Path, contacts: int, share: float = 0.94) -> None:
    """Write contacts with an address each, and list 1 of all; that share of them has consent."""
    now = int(time.time() * 1000)
    here = apsw.Connection(str(path))
    here.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -400000; BEGIN").fetchall()
    everybody = range(1, contacts + 1)
    contact = (
        "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
        "email_sent_count, email_open_count, created_at, updated_at) "
        "VALUES (?, 1, ?, ?, ?, ?, ?, ?, 'full', 3, 1, ?, ?)"
    )
    channel = (
        "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, opt_in_at, data, created_at, "
        "updated_at) VALUES (1, ?, 'email', ?, ?, ?, ?, '{}', ?, ?)"
    )
    listed = (
        "INSERT INTO contact_list (id, account_id, name, name_key, contacts_count, created_at, updated_at) "
        "VALUES (?, 1, ?, ?, ?, ?, ?)"
    )
    here.executemany(whole(here, contact), (person(n, contacts, now) for n in everybody))
    address = ((n, f"person{n}@example.org", f"person{n}@example.org", draw(n, 12) < share) for n in everybody)
    here.executemany(whole(here, channel), ((*one, now, now, now) for one in address))
    here.execute(whole(here, listed), (1, "Everybody", "everybody", contacts, now, now))
    here.execute("INSERT INTO membership SELECT 1, id, created_at FROM contact")
    here.execute("COMMIT; ANALYZE; PRAGMA journal_mode = wal").fetchall()
    here.close()
