"""What may be written about a contact, and how contacts are asked for."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.core.fields import (
    Country,
    Data,
    DayOrWhen,
    EmailText,
    Id,
    Line,
    ListId,
    PageQuery,
    Phone,
    SegmentId,
    Short,
)


class ChannelWrite(Struct):
    """One address: `id` edits, no `id` adds, `_destroy` removes."""

    id: Id | UnsetType = UNSET
    value: Annotated[str, Meta(max_length=254)] | UnsetType = UNSET
    kind: Literal["email", "phone"] | UnsetType = UNSET
    subscribed: bool | UnsetType = UNSET
    destroy: bool | UnsetType = field(default=UNSET, name="_destroy")


class ContactWrite(Struct):
    """A contact as created, updated by address, or patched; absent keeps, null clears."""

    first_name: Line | None | UnsetType = UNSET
    last_name: Line | None | UnsetType = UNSET
    email: EmailText | None | UnsetType = UNSET
    phone: Phone | None | UnsetType = UNSET
    source: Line | None | UnsetType = UNSET
    country_code: Country | None | UnsetType = UNSET
    list_ids: Annotated[list[Id], Meta(max_length=500)] | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    channels_attributes: Annotated[list[ChannelWrite], Meta(max_length=50)] | None | UnsetType = UNSET
    opt_in: bool | None | UnsetType = UNSET
    # Where and to which words they agreed, kept as evidence with each opt-in of this write
    consent_source: Annotated[str, Meta(max_length=1000)] | None | UnsetType = UNSET
    subscribed_email: bool | UnsetType = UNSET
    subscribed_phone: bool | UnsetType = UNSET
    tracking: Literal["full", "aggregate", "none"] | UnsetType = UNSET


class ContactPatch(ContactWrite):
    """A change of a contact; beside the fields of creation it takes a JSON merge patch (RFC 7396) of `data`."""

    data_merge: Data | UnsetType = UNSET


class ContactQuery(PageQuery):
    """Filters of the contact list; `search`, `q` and `query` mean the same."""

    search: Short | UnsetType = UNSET
    q: Short | UnsetType = UNSET
    query: Short | UnsetType = UNSET
    list_id: ListId | UnsetType = UNSET
    tag: Short | UnsetType = UNSET
    segment_id: SegmentId | UnsetType = UNSET
    source: Short | UnsetType = UNSET
    subscribed_email: bool | UnsetType = UNSET
    subscribed_phone: bool | UnsetType = UNSET
    created_after: DayOrWhen | UnsetType = UNSET
    created_before: DayOrWhen | UnsetType = UNSET
    updated_after: DayOrWhen | UnsetType = UNSET
    updated_before: DayOrWhen | UnsetType = UNSET

    def text(self) -> str | None:
        """Return the words searched for, or None."""
        for value in (self.search, self.q, self.query):
            if isinstance(value, str) and value.strip():
                return value
        return None


class SearchQuery(PageQuery, kw_only=True):
    """The words of `/contacts/search`."""

    q: Annotated[str, Meta(max_length=255, extra={"filled": True})]


class MergeWrite(Struct):
    """The contact that is merged into another one, and is gone then."""

    contact_id: Id


class DeleteQuery(Struct):
    """How a contact is deleted: with `erase` nothing that names the person stays, and the addresses are suppressed."""

    erase: bool = False
