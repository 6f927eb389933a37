"""Create and change contacts with their addresses, tags, lists and custom data."""

import uuid
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from appliance.accounts import limits
from appliance.audience import consent, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import search, store
from appliance.audience.contacts.store import ChannelWrite, ContactPatch, ContactWrite
from appliance.core import addresses, clock
from appliance.core.addresses import Address
from appliance.core.errors import Faults
from appliance.core.i18n import gettext
from appliance.core.validation import MAX_DATA_BYTES
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage.database import fold_case, run, scalar
from appliance.storage.models import Channel, Contact
from appliance.storage.models.account import CHANNELS, CONTACTS
from appliance.storage.transactions import require_write_transaction


class ChannelPlan:
    """The changes that a request makes to the addresses of a contact, validated before anything is written.

    Each entry of `steps` is (act, channel, address, subscribed). The acts are `add`, `move` (the channel gets another
    address), `keep` and `remove`. `faults` collects the errors. A simulated contact may have addresses of existing
    contacts.
    """

    def __init__(self, account_id: int, contact: Contact | None, is_simulated: bool = False) -> None:
        self.is_simulated = is_simulated
        self.account_id = account_id
        self.contact_id = contact.id if contact else None
        self.channels: list[Channel] = list(contact.channels) if contact else []
        self.faults = Faults()
        self.steps: list[tuple[str, Channel | None, Address | None, bool | None]] = []
        self.consent_by_kind: dict[str, bool | None] = {}

    def plan_address(self, kind: str, text: str | None | Any, opt_in: bool | None | Any, field: str) -> None:
        """Plan the change that the field `email` or `phone` of a request makes, with the consent `opt_in`.

        A `text` of None removes the contact's first address of the kind. UNSET and an empty text change nothing.
        """
        if text is UNSET or text == "":
            return
        existing = next((channel for channel in self.channels if channel.kind == kind), None)
        if text is None:
            if existing is not None:
                self.steps.append(("remove", existing, None, None))
            return
        address = addresses.parse(kind, text)
        desired = opt_in if isinstance(opt_in, bool) else None
        channel = self._find_channel(address)
        if channel is not None:
            self.steps.append(("keep", channel, None, desired))
        elif self._is_available(address, field):
            self.steps.append(("move" if existing else "add", existing, address, desired))

    def plan_entries(self, entries: list[ChannelWrite] | None | Any, default_consents: dict[str, bool | None]) -> None:
        """Plan the entries of `channels_attributes`, with errors at their paths.

        An entry without `subscribed` gets the consent of its kind from `default_consents`.
        """
        self.consent_by_kind = default_consents
        for index, entry in enumerate(entries or [] if entries is not UNSET else []):
            path = f"channels_attributes[{index}]"
            channel = None
            if entry.id is not UNSET:
                channel = next(
                    (stored_channel for stored_channel in self.channels if stored_channel.id == entry.id), None
                )
                if channel is None or channel.id in self._planned_ids("remove"):
                    self.faults.add(f"{path}.id", gettext("must exist"))
                    continue
            self._plan_entry(entry, channel, path)

    def _plan_entry(self, entry: ChannelWrite, channel: Channel | None, path: str) -> None:
        if entry.destroy is True:
            if channel is None:
                self.faults.add(f"{path}.id", gettext("can't be blank"))
            else:
                self.steps.append(("remove", channel, None, None))
            return
        desired = entry.subscribed if isinstance(entry.subscribed, bool) else None
        if not isinstance(entry.value, str) or not entry.value:
            if channel is None:
                self.faults.add(f"{path}.value", gettext("can't be blank"))
            elif desired is not None:
                self.steps.append(("keep", channel, None, desired))
            return
        if channel is not None:
            kind = channel.kind
        else:
            kind = entry.kind if isinstance(entry.kind, str) else ("email" if "@" in entry.value else "phone")
        if isinstance(entry.kind, str) and entry.kind != kind:
            self.faults.add(f"{path}.kind", gettext("is invalid"))
            return
        try:
            address = addresses.parse(kind, entry.value)
        except ValueError as error:
            self.faults.add(f"{path}.value", str(error))
            return
        if desired is None:
            desired = self.consent_by_kind.get(kind)
        existing = self._find_channel(address)
        if existing is not None and (channel is None or channel.id == existing.id):
            self.steps.append(("keep", existing, None, desired))
        elif channel is None and self._is_planned(address, desired):
            return
        elif self._is_available(address, f"{path}.value"):
            self.steps.append(("move" if channel else "add", channel, address, desired))

    def _is_planned(self, address: Address, desired: bool | None) -> bool:
        """Return whether an earlier step adds this address or moves a channel to it.

        If `desired` is not None, it replaces the consent of that step.
        """
        for index, (act, channel, planned, earlier) in enumerate(self.steps):
            if act in ("add", "move") and planned == address:
                self.steps[index] = (act, channel, planned, earlier if desired is None else desired)
                return True
        return False

    def plan_consent(self, kind: str | None, desired: bool) -> None:
        """Plan an opt-in, or an opt-out if not `desired`, for each address of a kind that the contact has.

        If `kind` is None, addresses of every kind are meant.
        """
        removed_ids = self._planned_ids("remove")
        self.steps += [
            ("keep", channel, None, desired)
            for channel in self.channels
            if kind in (None, channel.kind) and channel.id not in removed_ids
        ]

    def check_count(self) -> None:
        """Add an error if the plan adds addresses and the contact then has more than `MAX_ADDRESSES`."""
        added = sum(step[0] == "add" for step in self.steps)
        if added and len(self.channels) - len(self._planned_ids("remove")) + added > addresses.MAX_ADDRESSES:
            text = gettext("is too long (maximum is %(limit)s entries)", limit=addresses.MAX_ADDRESSES)
            self.faults.add("channels_attributes", text)

    def _planned_ids(self, *acts: str) -> set[int]:
        """Return the ids of the channels for which one of these acts is planned."""
        return {channel.id for act, channel, _, _ in self.steps if act in acts and channel is not None}

    def _find_channel(self, address: Address) -> Channel | None:
        """Return the contact's channel with this address, or None.

        A channel that an earlier step removes, or to which it gives another address, does not count.
        """
        freed_ids = self._planned_ids("remove", "move")
        return next(
            (
                channel
                for channel in self.channels
                if (channel.kind, channel.key) == (address.kind, address.key) and channel.id not in freed_ids
            ),
            None,
        )

    def _is_available(self, address: Address, field: str) -> bool:
        owner = None if self.is_simulated else find_owner(self.account_id, address)
        is_repeated = any(
            step[2] and step[2].key == address.key and step[2].kind == address.kind for step in self.steps
        )
        is_taken = owner is not None and (owner != self.contact_id or self._find_channel(address) is not None)
        if is_taken or is_repeated:
            self.faults.add(field, gettext("has already been taken"))
            return False
        return True

    def apply(self, contact: Contact, evidence: Evidence) -> list[str]:
        """Write the planned changes, and return the addresses that an opt-out or suppression still blocks."""
        kept_opt_outs = []
        for act, channel, address, desired in self.steps:
            if act == "remove":
                assert channel is not None
                consent.remember_opt_out(channel)
                run("DELETE FROM channel WHERE id = ?", (channel.id,))
                continue
            if act == "add":
                assert address is not None
                channel = _add_channel(contact, address)
            elif act == "move":
                assert channel is not None and address is not None
                _change_address(channel, address)
            assert channel is not None
            if consent.apply_operator_choice(channel, desired, evidence):
                kept_opt_outs.append(channel.value)
        return list(dict.fromkeys(kept_opt_outs))


def find_owner(account_id: int, address: Address) -> int | None:
    """Return the id of the contact who has an address, or None."""
    contact_id: int | None = scalar(
        "SELECT contact_id FROM channel WHERE account_id = ? AND kind = ? AND key = ?",
        (account_id, address.kind, address.key),
    )
    return contact_id


def _add_channel(contact: Contact, address: Address) -> Channel:
    now = clock.now_ms()
    channel = Channel(
        account=contact.account_id, contact=contact.id, kind=address.kind, value=address.value, key=address.key,
        created_at=now, updated_at=now,
    )  # fmt: skip
    consent.inherit_address_state(channel)
    CHANNELS.insert(channel)
    return channel


def _change_address(channel: Channel, address: Address) -> None:
    """Change the address of a channel.

    Consent belongs to an address: an opt-out is kept for the old address, and the state of the new one applies.
    """
    consent.remember_opt_out(channel)
    channel.value, channel.key, channel.updated_at = address.value, address.key, clock.now_ms()
    consent.inherit_address_state(channel)
    CHANNELS.save(channel)


MAX_TAGS, MAX_TAG_CHARACTERS = 100, 64
_encode = msgspec.json.Encoder().encode


def check_data(data: dict[str, Any], field: str, faults: Faults) -> dict[str, Any]:
    """Return custom data, without `tags` if they are null, and add errors of its size and of `tags` to `faults`.

    `tags` must be a list of up to `MAX_TAGS` texts of up to `MAX_TAG_CHARACTERS` characters.
    """
    if len(_encode(data)) > MAX_DATA_BYTES:
        faults.add(field, gettext("is too long (maximum is %(limit)s bytes)", limit=MAX_DATA_BYTES))
    tags = data.get("tags")
    if tags is None:
        return {key: value for key, value in data.items() if key != "tags"}
    path = f"{field}.tags"
    if not isinstance(tags, list):
        faults.add(path, gettext("is invalid"))
    elif len(tags) > MAX_TAGS:
        faults.add(path, gettext("is too long (maximum is %(limit)s entries)", limit=MAX_TAGS))
    else:
        for index, tag in enumerate(tags):
            error = find_tag_error(tag)
            if error:
                faults.add(f"{path}[{index}]", error)
    return data


def find_tag_error(tag: Any) -> str | None:
    """Return the error message of an invalid tag, or None."""
    if not isinstance(tag, str):
        return gettext("is invalid")
    if not tag.strip():
        return gettext("can't be blank")
    return (
        gettext("is too long (maximum is %(limit)s characters)", limit=MAX_TAG_CHARACTERS)
        if len(tag) > MAX_TAG_CHARACTERS
        else None
    )


def tags_of(data: dict[str, Any]) -> list[str]:
    """Return the tags in the custom data of a contact, without entries that are not texts."""
    tags = data.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def record_tag_changes(contact: Contact, previous_tags: list[str]) -> None:
    """Record an event for each tag that was added or removed since `previous_tags`, regardless of case."""
    now = tags_of(contact.data)
    old_tags, new_tags = {fold_case(tag): tag for tag in previous_tags}, {fold_case(tag): tag for tag in now}
    log.record_many(
        [
            NewEvent(contact.account_id, "tag_add", contact.id, {"tag": new_tags[key]})
            for key in new_tags
            if key not in old_tags
        ]
        + [
            NewEvent(contact.account_id, "tag_remove", contact.id, {"tag": old_tags[key]})
            for key in old_tags
            if key not in new_tags
        ]
    )


_FIELDS = ("first_name", "last_name", "source", "country_code", "language", "tracking")


class WriteResult(NamedTuple):
    """A written contact, whether it is new, and what an opt-out or suppression still blocks.

    `kept_opt_out` contains the addresses that stay blocked, and `list:N` for each list that the contact had left.
    """

    contact: Contact
    created: bool
    kept_opt_out: list[str]


def upsert(account_id: int, request: ContactWrite, evidence: Evidence) -> WriteResult:
    """Create a contact, or update the contact that already has the email address or the phone number of the request.

    If one contact has the email address and another has the phone number, Invalid is raised (docs/decisions.md#9), as
    for all other errors of the request. Raises Conflict (`account_limit`) if the API or a page would create a contact
    that the account has no room for; a sign-up by a form is never refused.
    """
    require_write_transaction()
    existing_id, faults = _find_existing(account_id, request)
    contact = store.get(account_id, existing_id) if existing_id else None
    plan = _plan_channels(account_id, contact, request)
    plan.merge(faults)
    plan.merge(
        lists.find_list_errors(account_id, request.list_ids or [] if request.list_ids is not UNSET else [], existing_id)
    )
    data = _merge_data(contact, request, plan.faults)
    plan.check()
    now = clock.now_ms()
    created = contact is None
    if created and evidence.source in ("api", "ui"):
        limits.require_contacts(account_id)
    if contact is None:
        contact = Contact(account=account_id, uuid=str(uuid.uuid4()), data={}, created_at=now, updated_at=now)
    old_tags = tags_of(contact.data)
    changed_fields = _fill_contact(contact, request, data)
    contact.updated_at = now
    if created:
        CONTACTS.insert(contact)
        limits.note_contacts(account_id, 1)
    else:
        CONTACTS.save(contact)
    if created:
        log.record(NewEvent(account_id, "contact_add", contact.id, {"source": contact.source or evidence.source}))
    kept_opt_outs = plan.apply(contact, evidence)
    for list_id in dict.fromkeys(request.list_ids or [] if request.list_ids is not UNSET else []):
        kept_opt_outs += lists.add_members(account_id, list_id, [contact.id]).kept_opt_outs
    record_tag_changes(contact, old_tags)
    return WriteResult(
        _index_and_record(contact, [] if created else changed_fields + plan.changes(), evidence), created, kept_opt_outs
    )


def check(account_id: int, request: ContactWrite, contact_id: int | None = None) -> None:
    """Raise Invalid with all errors of a contact that the types of its fields do not catch; nothing is written.

    Without `contact_id`, the request is checked as for `upsert`. Raises NotFound for an unknown `contact_id`.
    """
    existing_id, faults = (contact_id, {}) if contact_id else _find_existing(account_id, request)
    contact = store.get(account_id, existing_id) if existing_id else None
    plan = _plan_channels(account_id, contact, request)
    plan.merge(faults)
    plan.merge(
        lists.find_list_errors(account_id, request.list_ids or [] if request.list_ids is not UNSET else [], existing_id)
    )
    if contact is not None and isinstance(request, ContactPatch):
        _patch_data(contact, request, plan.faults)
    else:
        _merge_data(contact, request, plan.faults)
    plan.check()


def check_simulated(account_id: int, request: ContactWrite) -> None:
    """Raise Invalid with all errors of a simulated contact, which may have the address of an existing one."""
    plan = _plan_channels(account_id, None, request, is_simulated=True)
    plan.merge(lists.find_list_errors(account_id, request.list_ids or [] if request.list_ids is not UNSET else []))
    _merge_data(None, request, plan.faults)
    plan.check()


def update(account_id: int, contact_id: int, request: ContactPatch, evidence: Evidence) -> WriteResult:
    """Change a contact; raises NotFound, or Invalid with all errors."""
    require_write_transaction()
    contact = store.get(account_id, contact_id)
    plan = _plan_channels(account_id, contact, request)
    plan.merge(
        lists.find_list_errors(account_id, request.list_ids or [] if request.list_ids is not UNSET else [], contact.id)
    )
    data = _patch_data(contact, request, plan.faults)
    plan.check()
    old_tags = tags_of(contact.data)
    changed_fields = _fill_contact(contact, request, data)
    contact.updated_at = clock.now_ms()
    CONTACTS.save(contact)
    kept_opt_outs = plan.apply(contact, evidence)
    if request.list_ids is not UNSET:
        kept_opt_outs += lists.replace_lists_of_contact(account_id, contact.id, request.list_ids or [])
    record_tag_changes(contact, old_tags)
    return WriteResult(_index_and_record(contact, changed_fields + plan.changes(), evidence), False, kept_opt_outs)


def _find_existing(account_id: int, request: ContactWrite) -> tuple[int | None, dict[str, list[str]]]:
    """Return (contact id, errors by field) for the email address and the phone number of a request.

    The id belongs to the contact with the email address, else to the contact with the phone number, else it is None.
    There is an error if the address and the number belong to different contacts.
    """
    owners: list[int | None] = []
    for kind, text in (("email", request.email), ("phone", request.phone)):
        address = addresses.parse(kind, text) if isinstance(text, str) and text else None
        owners.append(find_owner(account_id, address) if address else None)
    by_email, by_phone = owners
    if by_email and by_phone and by_email != by_phone:
        return by_email, {"phone": [gettext("has already been taken")]}
    return by_email or by_phone, {}


class _Plan(ChannelPlan):
    def merge(self, fields: dict[str, list[str]]) -> None:
        self.faults.merge(fields)

    def check(self) -> None:
        self.faults.check()

    def changes(self) -> list[str]:
        return ["channels"] if any(step[0] != "keep" for step in self.steps) else []


def _plan_channels(
    account_id: int, contact: Contact | None, request: ContactWrite, is_simulated: bool = False
) -> _Plan:
    plan = _Plan(account_id, contact, is_simulated)
    # `subscribed_email`, or else `opt_in`, applies to every email address, including those that this request adds. The
    # same holds for phone numbers.
    general = request.opt_in if isinstance(request.opt_in, bool) else None
    wishes = {
        kind: value if isinstance(value, bool) else general
        for kind, value in (("email", request.subscribed_email), ("phone", request.subscribed_phone))
    }
    plan.plan_address("email", request.email, wishes["email"], "email")
    plan.plan_address("phone", request.phone, wishes["phone"], "phone")
    plan.plan_entries(request.channels_attributes, wishes)
    plan.check_count()
    addressed = isinstance(request.email, str) or isinstance(request.phone, str)
    if general is not None and not addressed:
        plan.plan_consent(None, general)
    for kind, value in (("email", request.subscribed_email), ("phone", request.subscribed_phone)):
        if isinstance(value, bool):
            plan.plan_consent(kind, value)
    return plan


def _merge_data(contact: Contact | None, request: ContactWrite, faults: Faults) -> dict[str, Any] | None:
    """Return the contact's custom data with the keys of the request replaced, or None if the request has no data."""
    if request.data is UNSET or request.data is None:
        return None
    return check_data({**(contact.data if contact else {}), **request.data}, "data", faults)


def _patch_data(contact: Contact, request: ContactPatch, faults: Faults) -> dict[str, Any] | None:
    data = None if request.data is UNSET else dict(request.data or {})
    if request.data_merge is not UNSET:
        data = merge_patch(contact.data if data is None else data, request.data_merge)
    field = "data" if request.data_merge is UNSET else "data_merge"
    return None if data is None else check_data(data, field, faults)


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with a JSON merge patch applied (RFC 7396, section 2)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _fill_contact(contact: Contact, request: ContactWrite, data: dict[str, Any] | None) -> list[str]:
    """Set the given fields of a contact, without saving it, and return the names of the fields that changed.

    A contact without a country gets the country of the phone number. `data=None` leaves the custom data unchanged.
    """
    changed_fields = []
    for name in _FIELDS:
        value = getattr(request, name)
        if value is not UNSET and getattr(contact, name) != (value or None):
            setattr(contact, name, value or None)
            changed_fields.append(name)
    if data is not None and data != contact.data:
        contact.data = data
        changed_fields.append("data")
    if not contact.country_code and isinstance(request.phone, str) and request.phone:
        contact.country_code = addresses.country_of_phone(addresses.parse_phone(request.phone).value)
    return changed_fields


def _index_and_record(contact: Contact, changed_fields: list[str], evidence: Evidence) -> Contact:
    """Update the search index, record an event if fields changed, and return the contact with its relations."""
    store.load_relations([contact])
    search.index_contact(contact, contact.channels)
    if changed_fields:
        data = {"source": evidence.source, "fields": changed_fields}
        log.record(NewEvent(contact.account_id, "contact_update", contact.id, data))
    return contact
