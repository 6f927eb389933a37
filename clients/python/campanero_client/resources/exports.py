"""Downloads of contacts, events and messages.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncDownload, AsyncTransport, Download, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Exports:
    """Downloads of contacts, events and messages."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def contacts_csv(self, /, **query: Unpack[types.ExportContactsCsvQuery]) -> Download:
        """Export contacts as CSV that can be imported again without loss.

        Scope: `contacts:read`.
        """
        return Download(self._transport, "/v1/my/exports/contacts.csv", query)

    def contacts_jsonl(self, /, **query: Unpack[types.ExportContactsJsonlQuery]) -> Download:
        """Export contacts as JSON lines.

        Scope: `contacts:read`.
        """
        return Download(self._transport, "/v1/my/exports/contacts.jsonl", query)

    def events_csv(self, /, **query: Unpack[types.ExportEventsCsvQuery]) -> Download:
        """Export events as CSV.

        Scope: `events:read`.
        """
        return Download(self._transport, "/v1/my/exports/events.csv", query)

    def events_jsonl(self, /, **query: Unpack[types.ExportEventsJsonlQuery]) -> Download:
        """Export events as JSON lines.

        Scope: `events:read`.
        """
        return Download(self._transport, "/v1/my/exports/events.jsonl", query)

    def messages_csv(self, /, **query: Unpack[types.ExportMessagesCsvQuery]) -> Download:
        """Export messages as CSV.

        Scope: `messages:read`.
        """
        return Download(self._transport, "/v1/my/exports/messages.csv", query)

    def messages_jsonl(self, /, **query: Unpack[types.ExportMessagesJsonlQuery]) -> Download:
        """Export messages as JSON lines.

        Scope: `messages:read`.
        """
        return Download(self._transport, "/v1/my/exports/messages.jsonl", query)


class AsyncExports:
    """Downloads of contacts, events and messages."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def contacts_csv(self, /, **query: Unpack[types.ExportContactsCsvQuery]) -> AsyncDownload:
        """Export contacts as CSV that can be imported again without loss.

        Scope: `contacts:read`.
        """
        return AsyncDownload(self._transport, "/v1/my/exports/contacts.csv", query)

    def contacts_jsonl(self, /, **query: Unpack[types.ExportContactsJsonlQuery]) -> AsyncDownload:
        """Export contacts as JSON lines.

        Scope: `contacts:read`.
        """
        return AsyncDownload(self._transport, "/v1/my/exports/contacts.jsonl", query)

    def events_csv(self, /, **query: Unpack[types.ExportEventsCsvQuery]) -> AsyncDownload:
        """Export events as CSV.

        Scope: `events:read`.
        """
        return AsyncDownload(self._transport, "/v1/my/exports/events.csv", query)

    def events_jsonl(self, /, **query: Unpack[types.ExportEventsJsonlQuery]) -> AsyncDownload:
        """Export events as JSON lines.

        Scope: `events:read`.
        """
        return AsyncDownload(self._transport, "/v1/my/exports/events.jsonl", query)

    def messages_csv(self, /, **query: Unpack[types.ExportMessagesCsvQuery]) -> AsyncDownload:
        """Export messages as CSV.

        Scope: `messages:read`.
        """
        return AsyncDownload(self._transport, "/v1/my/exports/messages.csv", query)

    def messages_jsonl(self, /, **query: Unpack[types.ExportMessagesJsonlQuery]) -> AsyncDownload:
        """Export messages as JSON lines.

        Scope: `messages:read`.
        """
        return AsyncDownload(self._transport, "/v1/my/exports/messages.jsonl", query)
