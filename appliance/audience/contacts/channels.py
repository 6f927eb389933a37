"""The addresses of a contact: added, changed and removed, with their consent."""

from typing import Any

from msgspec import UNSET

from appliance.audience.contacts import consent
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.records import CHANNELS
from appliance.audience.contacts.requests import ChannelWrite
from appliance.core import addresses, clock
from appliance.core.addresses import Address
from appliance.core.errors import Faults
from appliance.storage.models import Channel, Contact
from appliance.storage.open import run, scalar


class Plan:
    """What a request asks of a contact's addresses, checked before anything is written.

    Somebody who is only made up may have the addresses of others.
    """

    def __init__(self, account_id: int, contact: Contact | None, made_up: bool = False) -> None:
        self.made_up = made_up
        self.account_id = account_id
        self.contact_id = contact.id if contact else None
        self.have: list[Channel] = list(contact.channels) if contact else []
        self.faults = Faults()
        self.steps: list[tuple[str, Channel | None, Address | None, bool | None]] = []
        self.wishes: dict[str, bool | None] = {}

    def plain(self, kind: str, text: str | None | Any, opt_in: bool | None | Any, field: str) -> None:
        """Plan `email` or `phone` of a request: the address alone, or with `opt_in`."""
        if text is UNSET or text == "":
            return
        first = next((channel for channel in self.have if channel.kind == kind), None)
        if text is None:
            if first is not None:
                self.steps.append(("remove", first, None, None))
            return
        address = addresses.read(kind, text)
        desired = opt_in if isinstance(opt_in, bool) else None
        same = self._mine(address)
        if same is not None:
            self.steps.append(("keep", same, None, desired))
        elif self._free(address, field):
            self.steps.append(("move" if first else "add", first, address, desired))

    def entries(self, entries: list[ChannelWrite] | None | Any, wishes: dict[str, bool | None]) -> None:
        """Plan `channels_attributes`; `wishes` says, by kind, what holds for an entry that says nothing itself."""
        self.wishes = wishes
        for index, entry in enumerate(entries or [] if entries is not UNSET else []):
            path = f"channels_attributes[{index}]"
            channel = None
            if entry.id is not UNSET:
                channel = next((one for one in self.have if one.id == entry.id), None)
                if channel is None:
                    self.faults.add(f"{path}.id", "must exist")
                    continue
            self._entry(entry, channel, path)

    def _entry(self, entry: ChannelWrite, channel: Channel | None, path: str) -> None:
        if entry.destroy is True:
            if channel is None:
                self.faults.add(f"{path}.id", "can't be blank")
            else:
                self.steps.append(("remove", channel, None, None))
            return
        desired = entry.subscribed if isinstance(entry.subscribed, bool) else None
        if not isinstance(entry.value, str) or not entry.value:
            if channel is None:
                self.faults.add(f"{path}.value", "can't be blank")
            elif desired is not None:
                self.steps.append(("keep", channel, None, desired))
            return
        kind = entry.kind if isinstance(entry.kind, str) else ("email" if "@" in entry.value else "phone")
        try:
            address = addresses.read(kind, entry.value)
        except ValueError as error:
            self.faults.add(f"{path}.value", str(error))
            return
        if desired is None:
            desired = self.wishes.get(kind)
        same = self._mine(address)
        if same is not None and (channel is None or channel.id == same.id):
            self.steps.append(("keep", same, None, desired))
        elif channel is None and self._planned(address, desired):
            return
        elif self._free(address, f"{path}.value"):
            self.steps.append(("move" if channel else "add", channel, address, desired))

    def _planned(self, address: Address, desired: bool | None) -> bool:
        """Return whether an address is being added already: naming it twice is allowed; the clearer word counts."""
        for index, (act, channel, planned, before) in enumerate(self.steps):
            if act in ("add", "move") and planned == address:
                self.steps[index] = (act, channel, planned, before if desired is None else desired)
                return True
        return False

    def everywhere(self, kind: str | None, desired: bool) -> None:
        """Plan a wish for every address of a kind, or of all kinds."""
        self.steps += [("keep", channel, None, desired) for channel in self.have if kind in (None, channel.kind)]

    def _mine(self, address: Address) -> Channel | None:
        return next((one for one in self.have if (one.kind, one.key) == (address.kind, address.key)), None)

    def _free(self, address: Address, field: str) -> bool:
        taken = None if self.made_up else owner(self.account_id, address)
        doubled = any(step[2] and step[2].key == address.key and step[2].kind == address.kind for step in self.steps)
        if (taken is not None and taken != self.contact_id) or doubled:
            self.faults.add(field, "has already been taken")
            return False
        return True

    def apply(self, contact: Contact, evidence: Evidence) -> list[str]:
        """Carry out the plan and answer the addresses whose opt-out was kept."""
        kept = []
        for act, channel, address, desired in self.steps:
            if act == "remove":
                assert channel is not None
                consent.remember(channel)
                run("DELETE FROM channel WHERE id = ?", (channel.id,))
                continue
            if act == "add":
                assert address is not None
                channel = _add(contact, address)
            elif act == "move":
                assert channel is not None and address is not None
                _move(channel, address)
            assert channel is not None
            if consent.wish(channel, desired, evidence):
                kept.append(channel.value)
        return list(dict.fromkeys(kept))


def owner(account_id: int, address: Address) -> int | None:
    """Return the contact who has an address, or None."""
    found: int | None = scalar(
        "SELECT contact_id FROM channel WHERE account_id = ? AND kind = ? AND key = ?",
        (account_id, address.kind, address.key),
    )
    return found


def _add(contact: Contact, address: Address) -> Channel:
    now = clock.now_ms()
    channel = Channel(
        account=contact.account_id, contact=contact.id, kind=address.kind, value=address.value, key=address.key,
        created_at=now, updated_at=now,
    )  # fmt: skip
    consent.adopt(channel)
    CHANNELS.insert(channel)
    return channel


def _move(channel: Channel, address: Address) -> None:
    """Give a channel another address: consent belongs to addresses, so the old one's stays behind."""
    consent.remember(channel)
    channel.value, channel.key, channel.updated_at = address.value, address.key, clock.now_ms()
    consent.adopt(channel)
    CHANNELS.save(channel)
