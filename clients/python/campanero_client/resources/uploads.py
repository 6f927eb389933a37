"""Images for designs and the brand.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._requests import form_fields
from campanero_client._transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types
    from campanero_client._requests import File


class Uploads:
    """Images for designs and the brand."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, file: File, /, **body: Unpack[types.UploadForm]) -> types.Upload:
        """Upload an image (PNG, JPEG, GIF or WebP) for a logo or an email.

        Scope: `templates:write`. Open to agents.
        """
        result: types.Upload = self._transport.call(
            "POST", "/v1/my/uploads", data=form_fields(body), files={"file": file}
        )
        return result


class AsyncUploads:
    """Images for designs and the brand."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, file: File, /, **body: Unpack[types.UploadForm]) -> types.Upload:
        """Upload an image (PNG, JPEG, GIF or WebP) for a logo or an email.

        Scope: `templates:write`. Open to agents.
        """
        result: types.Upload = await self._transport.call(
            "POST", "/v1/my/uploads", data=form_fields(body), files={"file": file}
        )
        return result
