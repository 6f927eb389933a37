"""Storage that cannot be written: full, read-only, locked or gone, and nobody's request at fault."""

import apsw

from appliance.errors import Unavailable

_STORAGE = (
    apsw.FullError,
    apsw.ReadOnlyError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.IOError,
    apsw.CantOpenError,
)


class StorageError(Unavailable):
    """The database cannot be written; nothing was done."""


def storage_error(error: BaseException) -> StorageError | None:
    """Answer the refusal for an error that says the storage is full, read-only or locked; None for any other."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _STORAGE):
            return StorageError(f"the database cannot be written: {cause}")
        cause = cause.__cause__ or cause.__context__
    return None
