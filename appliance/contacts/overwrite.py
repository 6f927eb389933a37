"""Lets the running verb write over what it deletes: a database otherwise keeps the bytes until the space is needed."""

from appliance.contacts import search
from appliance.db.dialect import catalogue
from appliance.db.open import connection
from appliance.db.work import after_commit, writing


def overwriting() -> None:
    """Overwrite what is deleted until the running transaction is on disk."""
    writing()
    catalogue.overwrite_deleted(wholly=True)
    after_commit(_keep_again)


def _keep_again() -> None:
    catalogue.overwrite_deleted(wholly=False)


def forget_words(pages: int = 250) -> bool:
    """Take some of the words of people who are gone out of the search index; returns whether there may be more.

    The index keeps a word until the part it stands in is written anew, which may be never.
    """
    overwriting()
    before = connection().total_changes()
    search.write_anew(pages)
    return bool(connection().total_changes() - before > 1)
