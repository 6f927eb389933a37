"""Lets the running verb write over what it deletes: a database otherwise keeps the bytes until the space is needed."""

from appliance.db.open import connection, run
from appliance.db.work import after_commit, writing


def overwriting() -> None:
    """Overwrite what is deleted until the running transaction is on disk."""
    writing()
    run("PRAGMA secure_delete = 1")
    after_commit(_keep_again)


def _keep_again() -> None:
    run("PRAGMA secure_delete = fast")


def forget_words(pages: int = 250) -> bool:
    """Take some of the words of people who are gone out of the search index; answers whether there may be more.

    The index keeps a word until the part it stands in is written anew, which may be never.
    """
    overwriting()
    before = connection().total_changes()
    run("INSERT INTO contact_search (contact_search, rank) VALUES ('merge', ?)", (-pages,))
    return bool(connection().total_changes() - before > 1)
