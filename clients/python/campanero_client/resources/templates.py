"""Content of messages: subject, body and design; previews and test sends.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._requests import path_segment
from campanero_client._transport import AsyncPaginator, AsyncTransport, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Templates:
    """Content of messages: subject, body and design; previews and test sends."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListTemplatesQuery]) -> Paginator[types.Template]:
        """List templates, newest first.

        Scope: `templates:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/templates", query)

    def create(self, /, **body: Unpack[types.TemplateCreate]) -> types.Template:
        """Create a template.

        Scope: `templates:write`. Open to agents.
        """
        result: types.Template = self._transport.call("POST", "/v1/my/templates", body=body)
        return result

    def describe_designs(self) -> types.TemplateSpec:
        """Get the section types with their properties and defaults, and predefined designs.

        Scope: `templates:read`. Open to agents.
        """
        result: types.TemplateSpec = self._transport.call("GET", "/v1/my/templates/spec")
        return result

    def get(self, id: int) -> types.Template:
        """Get a template.

        Scope: `templates:read`. Open to agents.
        """
        result: types.Template = self._transport.call("GET", f"/v1/my/templates/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.TemplateWrite]) -> types.Template:
        """Update a template.

        Scope: `templates:write`. Open to agents.
        """
        result: types.Template = self._transport.call("PATCH", f"/v1/my/templates/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.Template:
        """Delete a standalone template.

        Scope: `templates:write`.
        """
        result: types.Template = self._transport.call("DELETE", f"/v1/my/templates/{id:d}")
        return result

    def preview_design(self, /, **body: Unpack[types.PreviewRequest]) -> types.Preview:
        """Render an email design to HTML for a contact or with sample values.

        A contact (`contact_id`) requires `contacts:read` too. Scope: `templates:read`. Open to agents.
        """
        result: types.Preview = self._transport.call("POST", "/v1/my/templates/preview", body=body)
        return result

    def send_test(self, id: int, /, **body: Unpack[types.TestRequest]) -> types.TestSendResult:
        """Send a test email of a template.

        An agent sends tests only to users of the account. A contact (`contact_id`) requires `contacts:read` too;
        without that scope, every test shows sample values. Scope: `templates:write`. Open to agents.
        """
        result: types.TestSendResult = self._transport.call("POST", f"/v1/my/templates/{id:d}/send_test", body=body)
        return result

    def list_translations(
        self, id: int, /, **query: Unpack[types.ListTemplateTranslationsQuery]
    ) -> Paginator[types.TranslationCounts]:
        """List the languages that a template is translated into.

        Scope: `templates:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/templates/{id:d}/translations", query)

    def get_translation(self, id: int, language: str) -> types.TemplateTranslation:
        """Get the translation of a template into a language.

        Scope: `templates:read`. Open to agents.
        """
        result: types.TemplateTranslation = self._transport.call(
            "GET", f"/v1/my/templates/{id:d}/translations/{path_segment(language)}"
        )
        return result

    def put_translation(
        self, id: int, language: str, /, **body: Unpack[types.TranslationWrite]
    ) -> types.TemplateTranslation:
        """Translate texts of a template into a language.

        The first translation adds the language. Contacts get the template in their language (`language` of the
        contact), in another region's (`de` for `de-AT`), or else in the original. With `updated_at` as last
        read, a template that was changed since is left unchanged, and the response is 409. Scope:
        `templates:write`. Open to agents.
        """
        result: types.TemplateTranslation = self._transport.call(
            "PUT", f"/v1/my/templates/{id:d}/translations/{path_segment(language)}", body=body
        )
        return result

    def delete_translation(self, id: int, language: str) -> types.TemplateTranslation:
        """Delete the translation of a template into a language, and return it.

        Scope: `templates:write`. Open to agents.
        """
        result: types.TemplateTranslation = self._transport.call(
            "DELETE", f"/v1/my/templates/{id:d}/translations/{path_segment(language)}"
        )
        return result


class AsyncTemplates:
    """Content of messages: subject, body and design; previews and test sends."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, /, **query: Unpack[types.ListTemplatesQuery]) -> AsyncPaginator[types.Template]:
        """List templates, newest first.

        Scope: `templates:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/templates", query)

    async def create(self, /, **body: Unpack[types.TemplateCreate]) -> types.Template:
        """Create a template.

        Scope: `templates:write`. Open to agents.
        """
        result: types.Template = await self._transport.call("POST", "/v1/my/templates", body=body)
        return result

    async def describe_designs(self) -> types.TemplateSpec:
        """Get the section types with their properties and defaults, and predefined designs.

        Scope: `templates:read`. Open to agents.
        """
        result: types.TemplateSpec = await self._transport.call("GET", "/v1/my/templates/spec")
        return result

    async def get(self, id: int) -> types.Template:
        """Get a template.

        Scope: `templates:read`. Open to agents.
        """
        result: types.Template = await self._transport.call("GET", f"/v1/my/templates/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.TemplateWrite]) -> types.Template:
        """Update a template.

        Scope: `templates:write`. Open to agents.
        """
        result: types.Template = await self._transport.call("PATCH", f"/v1/my/templates/{id:d}", body=body)
        return result

    async def delete(self, id: int) -> types.Template:
        """Delete a standalone template.

        Scope: `templates:write`.
        """
        result: types.Template = await self._transport.call("DELETE", f"/v1/my/templates/{id:d}")
        return result

    async def preview_design(self, /, **body: Unpack[types.PreviewRequest]) -> types.Preview:
        """Render an email design to HTML for a contact or with sample values.

        A contact (`contact_id`) requires `contacts:read` too. Scope: `templates:read`. Open to agents.
        """
        result: types.Preview = await self._transport.call("POST", "/v1/my/templates/preview", body=body)
        return result

    async def send_test(self, id: int, /, **body: Unpack[types.TestRequest]) -> types.TestSendResult:
        """Send a test email of a template.

        An agent sends tests only to users of the account. A contact (`contact_id`) requires `contacts:read` too;
        without that scope, every test shows sample values. Scope: `templates:write`. Open to agents.
        """
        result: types.TestSendResult = await self._transport.call(
            "POST", f"/v1/my/templates/{id:d}/send_test", body=body
        )
        return result

    def list_translations(
        self, id: int, /, **query: Unpack[types.ListTemplateTranslationsQuery]
    ) -> AsyncPaginator[types.TranslationCounts]:
        """List the languages that a template is translated into.

        Scope: `templates:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/templates/{id:d}/translations", query)

    async def get_translation(self, id: int, language: str) -> types.TemplateTranslation:
        """Get the translation of a template into a language.

        Scope: `templates:read`. Open to agents.
        """
        result: types.TemplateTranslation = await self._transport.call(
            "GET", f"/v1/my/templates/{id:d}/translations/{path_segment(language)}"
        )
        return result

    async def put_translation(
        self, id: int, language: str, /, **body: Unpack[types.TranslationWrite]
    ) -> types.TemplateTranslation:
        """Translate texts of a template into a language.

        The first translation adds the language. Contacts get the template in their language (`language` of the
        contact), in another region's (`de` for `de-AT`), or else in the original. With `updated_at` as last
        read, a template that was changed since is left unchanged, and the response is 409. Scope:
        `templates:write`. Open to agents.
        """
        result: types.TemplateTranslation = await self._transport.call(
            "PUT", f"/v1/my/templates/{id:d}/translations/{path_segment(language)}", body=body
        )
        return result

    async def delete_translation(self, id: int, language: str) -> types.TemplateTranslation:
        """Delete the translation of a template into a language, and return it.

        Scope: `templates:write`. Open to agents.
        """
        result: types.TemplateTranslation = await self._transport.call(
            "DELETE", f"/v1/my/templates/{id:d}/translations/{path_segment(language)}"
        )
        return result
