"""The official client of the Model Context Protocol, whose user presses Connect on the consent page."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.kit.connected_app import answer_of
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser


@dataclass
class AppStorage:
    """What the client keeps between its runs."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    consents: list[str] = field(default_factory=list)  # the URLs that it sent the browser to

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def call_tool(
    base: str, user: ScriptlessBrowser, storage: AppStorage, redirect_uri: str, name: str,
    arguments: dict[str, Any] | None = None, document_url: str | None = None,
) -> Any:  # fmt: skip
    """Return the result of a tool, which the official client calls after it was connected by OAuth if it has to be."""

    async def run() -> Any:
        answers: list[dict[str, str]] = []

        async def open_browser(url: str) -> None:
            storage.consents.append(url)
            page = await asyncio.to_thread(HtmlPage, user, url.removeprefix(base))
            response, _ = await asyncio.to_thread(page.send, "Connect")
            answers.append(answer_of(str(response.headers["location"])))

        async def wait_for_redirect() -> AuthorizationCodeResult:
            answer = answers[-1]
            return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

        metadata = OAuthClientMetadata(client_name="Official", redirect_uris=[redirect_uri])  # type: ignore[list-item]  # pydantic reads the URL
        provider = OAuthClientProvider(
            f"{base}/mcp", metadata, storage, open_browser, wait_for_redirect, client_metadata_url=document_url
        )
        async with (
            httpx2.AsyncClient(auth=provider, timeout=30) as http,
            Client(streamable_http_client(f"{base}/mcp", http_client=http)) as client,
        ):
            return await client.call_tool(name, arguments or {})

    return asyncio.run(run())
