"""What was there before a chunk, as little of it as taking the chunk back needs."""

from typing import Any

import msgspec

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
    created: list[int] = []
    changes: list[Change] = []
    channels: list[tuple[int, list[Any], int | None, int]] = []
    added: list[tuple[str, str]] = []
    opt_outs: list[tuple[str, bytes, str, int]] = []
    suppressions: list[tuple[str, bytes, str]] = []
    joined: dict[int, list[int]] = {}


class Before:
    """Takes notes while a chunk is worked."""

    def __init__(self, now: int) -> None:
        self.notes = Notes(now)
        self.created = self.notes.created.append

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

    def joined(self, list_id: int, contact_ids: list[int]) -> None:
        """Note who joined a list."""
        self.notes.joined[list_id] = contact_ids

    def packed(self) -> bytes:
        """Answer the notes for storage."""
        return _encode(self.notes)
