"""The test of a store before its settings are saved: a small object is written, read and deleted."""

import hashlib
import io
import secrets
from contextlib import closing

from appliance.ops.stores import open_store
from appliance.ops.stores.base import (
    Conflict,
    Damaged,
    Missing,
    NotSupported,
    Refused,
    StoreError,
    StoreFull,
    Unreachable,
)
from appliance.settings.copies import Copies

_PREFIX = "test"
_CODES: tuple[tuple[type[StoreError], str], ...] = (
    (Unreachable, "unreachable"), (Refused, "refused"), (StoreFull, "store_full"), (Missing, "missing"),
    (Damaged, "damaged"), (Conflict, "conflict"), (NotSupported, "not_supported"),
)  # fmt: skip


def check_store(copies: Copies) -> None:
    """Write, read and delete a small object in the store. Raises StoreError with the reason in the store's words."""
    content, key = secrets.token_bytes(32), f"{_PREFIX}/{secrets.token_hex(8)}"
    with closing(open_store(copies.store, copies)) as store:
        store.put(key, io.BytesIO(content), len(content), hashlib.sha256(content).digest())
        try:
            with store.open(key) as stream:
                if stream.read(len(content) + 1) != content:
                    raise Damaged("the store returned another content than it was given")
        finally:
            store.delete(key)


def name_error(error: StoreError) -> str:
    """Return the code of an error of a store: `unreachable`, `refused`, `store_full`, `missing` and others."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "store")
