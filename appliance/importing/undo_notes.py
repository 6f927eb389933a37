"""What was there before a chunk, as little of it as taking the chunk back needs."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from appliance.importing.bulk_insert import Made
from appliance.importing.rules import Standing

_FIELDS = ("first_name", "last_name", "source", "country_code", "tracking")
_encode = msgspec.msgpack.Encoder().encode


class Change(msgspec.Struct, array_like=True):
    """A contact that was there: its fields and data keys as (before, after), and when it was last changed."""

    contact_id: int
    updated_at: int
    fields: dict[str, tuple[Any, Any]]
    data: dict[str, tuple[Any, Any]]  # a list of one value, or empty where there was none


class Notes(msgspec.Struct, array_like=True):
    """All that a chunk changed."""

    at: int
    # Contacts as runs of ids, (first, count): most chunks make one run
    created: list[tuple[int, int]] = []
    changes: list[Change] = []
    channels: list[tuple[int, list[Any], int | None, int]] = []
    added: list[tuple[str, str]] = []
    opt_outs: list[tuple[str, bytes, str, int]] = []
    suppressions: list[tuple[str, bytes, str]] = []
    joined: dict[int, list[tuple[int, int]]] = {}


def runs(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return some ids as runs of neighbours: (first, count)."""
    found: list[tuple[int, int]] = []
    for one in sorted(ids):
        if found and one == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((one, 1))
    return found


def ids(found: Iterable[tuple[int, int]]) -> list[int]:
    """Return the ids of runs."""
    return [one for first, count in found for one in range(first, first + count)]


class Before:
    """Takes notes while a chunk is worked."""

    def __init__(self, now: int, made: Made | None = None) -> None:
        self.notes = Notes(now)
        self._created = list(range(made.first, made.first + made.number)) if made is not None else []
        self._joined: dict[int, list[int]] = defaultdict(list)
        self.created = self._created.append

    def line(self, contact_id: int, old: Any, new: Any, updated_at: int) -> None:
        """Note a contact that was there."""
        fields = {name: (a, b) for name in _FIELDS if (a := getattr(old, name)) != (b := getattr(new, name))}
        data = {}
        if old.data != new.data:
            before, after = msgspec.json.decode(old.data), msgspec.json.decode(new.data)
            for key in before.keys() | after.keys():
                pair = ([before[key]] if key in before else [], [after[key]] if key in after else [])
                if pair[0] != pair[1]:
                    data[key] = pair
        self.notes.changes.append(Change(contact_id, updated_at, fields, data))

    def channel(self, number: int, standing: Standing, verified_at: int | None, updated_at: int) -> None:
        """Note an address that was there."""
        self.notes.channels.append((number, list(standing), verified_at, updated_at))

    def channel_added(self, kind: str, key: str) -> None:
        """Note an address that a contact who was there got."""
        self.notes.added.append((kind, key))

    def forgot(self, kind: str, hashed: bytes, by: str, when: int) -> None:
        """Note a remembered opt-out that was lifted."""
        self.notes.opt_outs.append((kind, hashed, by, when))

    def suppressed(self, kind: str, hashed: bytes, reason: str) -> None:
        """Note a new suppression."""
        self.notes.suppressions.append((kind, hashed, reason))

    def joined(self, list_id: int, contact_ids: Iterable[int]) -> None:
        """Note who joined a list."""
        self._joined[list_id] += contact_ids

    def packed(self) -> bytes:
        """Return the notes for storage."""
        self.notes.created = runs(self._created)
        self.notes.joined = {list_id: runs(members) for list_id, members in self._joined.items()}
        return _encode(self.notes)
