"""Reads see committed rows, even after an earlier read failed."""

import asyncio

from appliance.storage import transactions
from appliance.storage.database import connection
from tests.domain.home import Home
from tests.domain.test_write_transactions import VerbFailed, insert_note, list_notes, writer

__all__ = ["writer"]


def fail_while_reading() -> None:
    """Raise an error in the middle of reading rows."""
    cursor = connection().execute("SELECT text FROM note")
    cursor.fetchone()
    raise VerbFailed


def test_a_failed_read_does_not_keep_an_old_snapshot(writer: Home) -> None:
    """While the exception still refers to the unfinished statement, all readers see new rows."""

    async def use() -> list[list[str]]:
        for text in "ab":
            await transactions.commit(insert_note, text)
        errors = await asyncio.gather(
            *(transactions.fetch(fail_while_reading) for _ in range(8)), return_exceptions=True
        )
        assert all(isinstance(error, VerbFailed) for error in errors)
        await transactions.commit(insert_note, "c")
        return await asyncio.gather(*(transactions.fetch(list_notes) for _ in range(8)))

    assert asyncio.run(use()) == [["a", "b", "c"]] * 8
