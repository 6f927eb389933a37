"""People with their addresses, consent, consent records and history.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Contacts:
    """People with their addresses, consent, consent records and history."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_conversation(
        self, id: int, /, **query: Unpack[types.ListContactConversationQuery]
    ) -> Paginator[types.ConversationMessage]:
        """List SMS exchanged with a contact, newest first.

        Scope: `contacts:read`.
        """
        return Paginator(self._transport, f"/v1/my/contacts/{id:d}/conversation", query)

    def list(self, /, **query: Unpack[types.ListContactsQuery]) -> Paginator[types.Contact]:
        """List contacts, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/contacts", query)

    def create(self, /, **body: Unpack[types.ContactWrite]) -> types.ContactWritten:
        """Create a contact, or update the contact that has the address (then 200).

        Scope: `contacts:write`.
        """
        result: types.ContactWritten = self._transport.call("POST", "/v1/my/contacts", body=body)
        return result

    def search(self, /, **query: Unpack[types.SearchContactsQuery]) -> Paginator[types.Contact]:
        """Search contacts, best match first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/contacts/search", query)

    def get(self, id: int) -> types.Contact:
        """Get a contact.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.Contact = self._transport.call("GET", f"/v1/my/contacts/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.ContactPatch]) -> types.ContactWritten:
        """Update a contact.

        Scope: `contacts:write`.
        """
        result: types.ContactWritten = self._transport.call("PATCH", f"/v1/my/contacts/{id:d}", body=body)
        return result

    def delete(self, id: int, /, **query: Unpack[types.DeleteContactQuery]) -> types.Contact:
        """Delete a contact permanently; `erase` also removes all personal data. Opt-outs are kept as hashes.

        Scope: `contacts:write`.
        """
        result: types.Contact = self._transport.call("DELETE", f"/v1/my/contacts/{id:d}", query=query)
        return result

    def list_timeline(
        self, id: int, /, **query: Unpack[types.ListContactTimelineQuery]
    ) -> Paginator[types.TimelineEntry]:
        """List events and messages of a contact, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/contacts/{id:d}/timeline", query)

    def list_consents(self, id: int, /, **query: Unpack[types.ListContactConsentsQuery]) -> Paginator[types.ConsentRow]:
        """List consent records of a contact, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/contacts/{id:d}/consents", query)

    def export(self, id: int) -> types.ContactExport:
        """Get all stored data about a contact as one document.

        Scope: `contacts:read`.
        """
        result: types.ContactExport = self._transport.call("GET", f"/v1/my/contacts/{id:d}/export")
        return result

    def merge(self, id: int, /, **body: Unpack[types.MergeWrite]) -> types.Contact:
        """Merge another contact into this one. If the consents of the two contacts differ, the stricter consent is
        kept.

        Scope: `contacts:write`.
        """
        result: types.Contact = self._transport.call("POST", f"/v1/my/contacts/{id:d}/merge", body=body)
        return result

    def list_runs(self, id: int, /, **query: Unpack[types.ListContactRunsQuery]) -> Paginator[types.FlowRun]:
        """List runs of a contact, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/contacts/{id:d}/runs", query)


class AsyncContacts:
    """People with their addresses, consent, consent records and history."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list_conversation(
        self, id: int, /, **query: Unpack[types.ListContactConversationQuery]
    ) -> AsyncPaginator[types.ConversationMessage]:
        """List SMS exchanged with a contact, newest first.

        Scope: `contacts:read`.
        """
        return AsyncPaginator(self._transport, f"/v1/my/contacts/{id:d}/conversation", query)

    def list(self, /, **query: Unpack[types.ListContactsQuery]) -> AsyncPaginator[types.Contact]:
        """List contacts, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/contacts", query)

    async def create(self, /, **body: Unpack[types.ContactWrite]) -> types.ContactWritten:
        """Create a contact, or update the contact that has the address (then 200).

        Scope: `contacts:write`.
        """
        result: types.ContactWritten = await self._transport.call("POST", "/v1/my/contacts", body=body)
        return result

    def search(self, /, **query: Unpack[types.SearchContactsQuery]) -> AsyncPaginator[types.Contact]:
        """Search contacts, best match first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/contacts/search", query)

    async def get(self, id: int) -> types.Contact:
        """Get a contact.

        Scope: `contacts:read`. Open to agents.
        """
        result: types.Contact = await self._transport.call("GET", f"/v1/my/contacts/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.ContactPatch]) -> types.ContactWritten:
        """Update a contact.

        Scope: `contacts:write`.
        """
        result: types.ContactWritten = await self._transport.call("PATCH", f"/v1/my/contacts/{id:d}", body=body)
        return result

    async def delete(self, id: int, /, **query: Unpack[types.DeleteContactQuery]) -> types.Contact:
        """Delete a contact permanently; `erase` also removes all personal data. Opt-outs are kept as hashes.

        Scope: `contacts:write`.
        """
        result: types.Contact = await self._transport.call("DELETE", f"/v1/my/contacts/{id:d}", query=query)
        return result

    def list_timeline(
        self, id: int, /, **query: Unpack[types.ListContactTimelineQuery]
    ) -> AsyncPaginator[types.TimelineEntry]:
        """List events and messages of a contact, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/contacts/{id:d}/timeline", query)

    def list_consents(
        self, id: int, /, **query: Unpack[types.ListContactConsentsQuery]
    ) -> AsyncPaginator[types.ConsentRow]:
        """List consent records of a contact, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/contacts/{id:d}/consents", query)

    async def export(self, id: int) -> types.ContactExport:
        """Get all stored data about a contact as one document.

        Scope: `contacts:read`.
        """
        result: types.ContactExport = await self._transport.call("GET", f"/v1/my/contacts/{id:d}/export")
        return result

    async def merge(self, id: int, /, **body: Unpack[types.MergeWrite]) -> types.Contact:
        """Merge another contact into this one. If the consents of the two contacts differ, the stricter consent is
        kept.

        Scope: `contacts:write`.
        """
        result: types.Contact = await self._transport.call("POST", f"/v1/my/contacts/{id:d}/merge", body=body)
        return result

    def list_runs(self, id: int, /, **query: Unpack[types.ListContactRunsQuery]) -> AsyncPaginator[types.FlowRun]:
        """List runs of a contact, newest first.

        Scope: `contacts:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/contacts/{id:d}/runs", query)
