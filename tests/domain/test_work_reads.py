"""Readers see what was stored, whatever became of those who read before them."""

import asyncio

from appliance.storage import transactions
from appliance.storage.database import connection
from tests.domain.home import Home
from tests.domain.test_work import Broken, note, notes, writer

__all__ = ["writer"]


def cut_off() -> None:
    """Stop in the middle of reading rows, as something that cannot be decoded does."""
    found = connection().execute("SELECT text FROM note")
    found.fetchone()
    raise Broken


def test_a_read_that_broke_off_makes_no_later_one_see_what_was(writer: Home) -> None:
    """While somebody still holds the exception, and so the half-read statement, every reader sees what is new."""

    async def use() -> list[list[str]]:
        for text in "ab":
            await transactions.commit(note, text)
        broken = await asyncio.gather(*(transactions.fetch(cut_off) for _ in range(8)), return_exceptions=True)
        assert all(isinstance(one, Broken) for one in broken)
        await transactions.commit(note, "c")
        return await asyncio.gather(*(transactions.fetch(notes) for _ in range(8)))

    assert asyncio.run(use()) == [["a", "b", "c"]] * 8
