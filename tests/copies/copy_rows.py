"""An installation whose data changes from copy to copy, and what the tests ask of its copies."""

from contextlib import closing
from pathlib import Path

import apsw

from appliance.ops import stores
from appliance.ops.copies import catalog, create, fetch, keys
from appliance.ops.copies.keys import ReadingKeys
from appliance.ops.copies.manifest import CopyManifest
from appliance.ops.stores.base import Store
from appliance.settings.copies import Copies
from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.home import Home


class CopyHome(Home):
    """An installation with a recipient for its copies, whose identity is at hand."""

    def __init__(self, directory: Path, store: Path) -> None:
        super().__init__(directory)
        self.identity, recipient = keys.create_identity()
        self.settings = Copies(store=store.as_uri(), recipients=[recipient])
        (directory / "attachments").mkdir()
        (directory / "attachments" / "offer.pdf").write_bytes(b"an offer " * 5000)

    @property
    def reader(self) -> ReadingKeys:
        """The keys of the operator."""
        return ReadingKeys([self.identity], [keys.own_signer()])

    def open_store(self) -> Store:
        """Return the store."""
        return stores.open_store(self.settings.store, self.settings)

    def add_lists(self, count: int, name: str) -> None:
        """Add rows to the database."""
        transactions.write(
            run,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO contact_list (account_id, name, name_key, contacts_count, stale, seen_event_id, "
            "double_opt_in, public, created_at, updated_at) "
            "SELECT ?, ? || i || hex(randomblob(100)), ? || i, 0, 0, 0, 0, 0, 1, 1 FROM n",
            (count, self.account_id, name, name),
        )

    def create_copy(self) -> CopyManifest:
        """Make a copy."""
        return create.create_copy(self.directory, self.settings)

    def copies(self) -> list[CopyManifest]:
        """Return the usable copies, newest first, as the operator reads them."""
        with closing(self.open_store()) as store:
            return [entry.manifest for entry in catalog.list_copies(store, self.reader) if entry.manifest]

    def fetch(self, manifest: CopyManifest, into: Path, reader: ReadingKeys | None = None) -> Path:
        """Fetch a copy into a new directory."""
        into.mkdir()
        with closing(self.open_store()) as store:
            fetch.fetch_copy(store, manifest, into, reader or self.reader)
        return into


def list_names(path: Path) -> list[str]:
    """Return the rows that `add_lists` added, of a database file."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        assert database.execute("PRAGMA integrity_check").get == "ok"
        return [name for (name,) in database.execute("SELECT name FROM contact_list ORDER BY id").fetchall()]
    finally:
        database.close()
