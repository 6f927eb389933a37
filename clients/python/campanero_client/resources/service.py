"""Health and description of the service.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncDownload, AsyncTransport, Download, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Service:
    """Health and description of the service."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_openapi(self) -> Download:
        """Get this document.

        No credential is required.
        """
        return Download(self._transport, "/openapi.yaml", {})

    def get_healthz(self) -> types.GetHealthzResult:
        """Check the health of the service.

        No credential is required.
        """
        result: types.GetHealthzResult = self._transport.call("GET", "/healthz")
        return result

    def get_readyz(self) -> types.GetReadyzResult:
        """Check whether the service handles requests and sends messages.

        No credential is required. 503 during start and shutdown, while nothing can be stored, and if the queue
        does not run; the message names the missing part in one word.
        """
        result: types.GetReadyzResult = self._transport.call("GET", "/readyz")
        return result

    def get_metrics(self) -> Download:
        """Get metrics in the Prometheus text format.

        A credential of the first account gets the metrics of the whole installation. Any other credential gets
        the metrics of its account: queue, sends, bounces, complaints, imports, flows and webhooks. Counters
        start at zero when the service starts. Scope: `account:read`.
        """
        return Download(self._transport, "/metrics", {})

    def login(self, /, **body: Unpack[types.Login]) -> types.SignedIn:
        """Sign in and get a JWT.

        No credential is required. The token has the permissions of the user's role for 12 hours. It ends earlier
        with a log-out, a change of password or second factor, or when the user is disabled. 401
        `invalid_credentials`: address, password or code are wrong. 401 `otp_required`: the code of the second
        factor is missing. 401 `password_sign_in_off`: the account allows no passwords. After ten failures within
        15 minutes, by address or by client, all attempts get 429.
        """
        result: types.SignedIn = self._transport.call("POST", "/v1/login", body=body)
        return result

    def logout(self) -> None:
        """End the session of the JWT.

        The token becomes invalid. API keys have no session and get 403; revoke the key instead.
        """
        self._transport.call("DELETE", "/v1/logout")


class AsyncService:
    """Health and description of the service."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def get_openapi(self) -> AsyncDownload:
        """Get this document.

        No credential is required.
        """
        return AsyncDownload(self._transport, "/openapi.yaml", {})

    async def get_healthz(self) -> types.GetHealthzResult:
        """Check the health of the service.

        No credential is required.
        """
        result: types.GetHealthzResult = await self._transport.call("GET", "/healthz")
        return result

    async def get_readyz(self) -> types.GetReadyzResult:
        """Check whether the service handles requests and sends messages.

        No credential is required. 503 during start and shutdown, while nothing can be stored, and if the queue
        does not run; the message names the missing part in one word.
        """
        result: types.GetReadyzResult = await self._transport.call("GET", "/readyz")
        return result

    def get_metrics(self) -> AsyncDownload:
        """Get metrics in the Prometheus text format.

        A credential of the first account gets the metrics of the whole installation. Any other credential gets
        the metrics of its account: queue, sends, bounces, complaints, imports, flows and webhooks. Counters
        start at zero when the service starts. Scope: `account:read`.
        """
        return AsyncDownload(self._transport, "/metrics", {})

    async def login(self, /, **body: Unpack[types.Login]) -> types.SignedIn:
        """Sign in and get a JWT.

        No credential is required. The token has the permissions of the user's role for 12 hours. It ends earlier
        with a log-out, a change of password or second factor, or when the user is disabled. 401
        `invalid_credentials`: address, password or code are wrong. 401 `otp_required`: the code of the second
        factor is missing. 401 `password_sign_in_off`: the account allows no passwords. After ten failures within
        15 minutes, by address or by client, all attempts get 429.
        """
        result: types.SignedIn = await self._transport.call("POST", "/v1/login", body=body)
        return result

    async def logout(self) -> None:
        """End the session of the JWT.

        The token becomes invalid. API keys have no session and get 403; revoke the key instead.
        """
        await self._transport.call("DELETE", "/v1/logout")
