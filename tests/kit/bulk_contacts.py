"""Write many contacts directly into the database of a server that is set up and not running."""

import time
from pathlib import Path

import apsw

from tests.kit.audience_data import add_missing_columns, contact_row, pseudo_random


def insert_contacts(path: Path, contacts: int, share: float = 0.94) -> None:
    """Insert contacts with one email address each, and list 1 with all of them; a `share` of them is subscribed."""
    now = int(time.time() * 1000)
    database = apsw.Connection(str(path))
    database.execute(
        "PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -400000; BEGIN"
    ).fetchall()
    contact_ids = range(1, contacts + 1)
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
    database.executemany(add_missing_columns(database, contact), (contact_row(n, contacts, now) for n in contact_ids))
    channels = (
        (n, f"person{n}@example.org", f"person{n}@example.org", pseudo_random(n, 12) < share) for n in contact_ids
    )
    database.executemany(add_missing_columns(database, channel), ((*row, now, now, now) for row in channels))
    database.execute(add_missing_columns(database, listed), (1, "Everybody", "everybody", contacts, now, now))
    database.execute("INSERT INTO membership SELECT 1, id, created_at FROM contact")
    database.execute("COMMIT; ANALYZE; PRAGMA journal_mode = wal").fetchall()
    database.close()
