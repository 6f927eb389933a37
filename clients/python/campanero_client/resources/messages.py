"""Single messages, and all messages with their content and status.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Messages:
    """Single messages, and all messages with their content and status."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListMessagesQuery]) -> Paginator[types.Message]:
        """List messages of every kind and status, newest first.

        Scope: `messages:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/messages", query)

    def create(self, /, **body: Unpack[types.MessageWrite]) -> types.SentMessage:
        """Send a single message.

        Each recipient of an email (`to`, `cc`, `bcc`) gets a message of its own, with its own id and outcome; a
        suppressed recipient gets none (`recipients`). If all recipients are suppressed, the response is 422
        `recipient_suppressed`. In the rate limit, each recipient counts as a request. Scope: `messages:send`.
        """
        result: types.SentMessage = self._transport.call("POST", "/v1/my/messages", body=body)
        return result

    def create_batch(
        self, /, *, idempotency_key: str | None = None, **body: Unpack[types.MessageBatch]
    ) -> types.MessageBatchResult:
        """Send up to 500 messages, each with a result of its own.

        Every message that the response reports as queued is on disk. In the rate limit, each recipient counts as
        a request. After a broken connection, repeat the request with the same `Idempotency-Key`: messages that
        were queued are not queued again. Scope: `messages:send`.
        """
        result: types.MessageBatchResult = self._transport.call(
            "POST", "/v1/my/messages/batch", body=body, idempotency_key=idempotency_key
        )
        return result

    def get(self, id: int) -> types.MessageDetail:
        """Get a message with its content and events.

        Without the scope `contacts:read`, `html` and `text` of a message to a contact are null. Without
        `contacts:write`, links with which the recipient can change their preferences are replaced. Scope:
        `messages:read`.
        """
        result: types.MessageDetail = self._transport.call("GET", f"/v1/my/messages/{id:d}")
        return result

    def retry(self, id: int) -> types.Message:
        """Retry a rejected or uncertain message.

        Scope: `messages:send`.
        """
        result: types.Message = self._transport.call("POST", f"/v1/my/messages/{id:d}/retry")
        return result

    def cancel(self, id: int) -> types.Message:
        """Cancel a queued message.

        Scope: `messages:send`.
        """
        result: types.Message = self._transport.call("POST", f"/v1/my/messages/{id:d}/cancel")
        return result

    def assume_sent(self, id: int) -> types.Message:
        """Mark an uncertain message as sent.

        Scope: `messages:send`.
        """
        result: types.Message = self._transport.call("POST", f"/v1/my/messages/{id:d}/assume_sent")
        return result


class AsyncMessages:
    """Single messages, and all messages with their content and status."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListMessagesQuery]) -> AsyncPaginator[types.Message]:
        """List messages of every kind and status, newest first.

        Scope: `messages:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/messages", query)

    async def create(self, /, **body: Unpack[types.MessageWrite]) -> types.SentMessage:
        """Send a single message.

        Each recipient of an email (`to`, `cc`, `bcc`) gets a message of its own, with its own id and outcome; a
        suppressed recipient gets none (`recipients`). If all recipients are suppressed, the response is 422
        `recipient_suppressed`. In the rate limit, each recipient counts as a request. Scope: `messages:send`.
        """
        result: types.SentMessage = await self._transport.call("POST", "/v1/my/messages", body=body)
        return result

    async def create_batch(
        self, /, *, idempotency_key: str | None = None, **body: Unpack[types.MessageBatch]
    ) -> types.MessageBatchResult:
        """Send up to 500 messages, each with a result of its own.

        Every message that the response reports as queued is on disk. In the rate limit, each recipient counts as
        a request. After a broken connection, repeat the request with the same `Idempotency-Key`: messages that
        were queued are not queued again. Scope: `messages:send`.
        """
        result: types.MessageBatchResult = await self._transport.call(
            "POST", "/v1/my/messages/batch", body=body, idempotency_key=idempotency_key
        )
        return result

    async def get(self, id: int) -> types.MessageDetail:
        """Get a message with its content and events.

        Without the scope `contacts:read`, `html` and `text` of a message to a contact are null. Without
        `contacts:write`, links with which the recipient can change their preferences are replaced. Scope:
        `messages:read`.
        """
        result: types.MessageDetail = await self._transport.call("GET", f"/v1/my/messages/{id:d}")
        return result

    async def retry(self, id: int) -> types.Message:
        """Retry a rejected or uncertain message.

        Scope: `messages:send`.
        """
        result: types.Message = await self._transport.call("POST", f"/v1/my/messages/{id:d}/retry")
        return result

    async def cancel(self, id: int) -> types.Message:
        """Cancel a queued message.

        Scope: `messages:send`.
        """
        result: types.Message = await self._transport.call("POST", f"/v1/my/messages/{id:d}/cancel")
        return result

    async def assume_sent(self, id: int) -> types.Message:
        """Mark an uncertain message as sent.

        Scope: `messages:send`.
        """
        result: types.Message = await self._transport.call("POST", f"/v1/my/messages/{id:d}/assume_sent")
        return result
