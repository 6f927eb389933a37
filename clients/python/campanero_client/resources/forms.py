"""Sign-up forms.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._requests import path_segment
from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Forms:
    """Sign-up forms."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListFormsQuery]) -> Paginator[types.Form]:
        """List forms, newest first.

        Scope: `contacts:read`.
        """
        return Paginator(self._transport, "/v1/my/forms", query)

    def create(self, /, **body: Unpack[types.FormWrite]) -> types.Form:
        """Create a form.

        Scope: `contacts:write`.
        """
        result: types.Form = self._transport.call("POST", "/v1/my/forms", body=body)
        return result

    def get(self, id: int) -> types.Form:
        """Get a form.

        Scope: `contacts:read`.
        """
        result: types.Form = self._transport.call("GET", f"/v1/my/forms/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.FormPatch]) -> types.Form:
        """Update a form.

        Scope: `contacts:write`.
        """
        result: types.Form = self._transport.call("PATCH", f"/v1/my/forms/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.Form:
        """Delete a form; contacts who signed up through it are kept.

        Scope: `contacts:write`.
        """
        result: types.Form = self._transport.call("DELETE", f"/v1/my/forms/{id:d}")
        return result

    def submit(self, public_key: str, /, **body: Unpack[types.SubmitFormBody]) -> types.SubmitFormResult:
        """Submit a form.

        No credential is required. The response does not depend on whether the address is known. `website` must
        be empty. Pages of the form's `origins` may read the response.
        """
        result: types.SubmitFormResult = self._transport.call(
            "POST", f"/v1/public/forms/{path_segment(public_key)}", body=body
        )
        return result


class AsyncForms:
    """Sign-up forms."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListFormsQuery]) -> AsyncPaginator[types.Form]:
        """List forms, newest first.

        Scope: `contacts:read`.
        """
        return AsyncPaginator(self._transport, "/v1/my/forms", query)

    async def create(self, /, **body: Unpack[types.FormWrite]) -> types.Form:
        """Create a form.

        Scope: `contacts:write`.
        """
        result: types.Form = await self._transport.call("POST", "/v1/my/forms", body=body)
        return result

    async def get(self, id: int) -> types.Form:
        """Get a form.

        Scope: `contacts:read`.
        """
        result: types.Form = await self._transport.call("GET", f"/v1/my/forms/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.FormPatch]) -> types.Form:
        """Update a form.

        Scope: `contacts:write`.
        """
        result: types.Form = await self._transport.call("PATCH", f"/v1/my/forms/{id:d}", body=body)
        return result

    async def delete(self, id: int) -> types.Form:
        """Delete a form; contacts who signed up through it are kept.

        Scope: `contacts:write`.
        """
        result: types.Form = await self._transport.call("DELETE", f"/v1/my/forms/{id:d}")
        return result

    async def submit(self, public_key: str, /, **body: Unpack[types.SubmitFormBody]) -> types.SubmitFormResult:
        """Submit a form.

        No credential is required. The response does not depend on whether the address is known. `website` must
        be empty. Pages of the form's `origins` may read the response.
        """
        result: types.SubmitFormResult = await self._transport.call(
            "POST", f"/v1/public/forms/{path_segment(public_key)}", body=body
        )
        return result
