"""A small MCP client for tests of what goes over the wire; the official one is in `test_client.py`."""

import json
from typing import Any

from tests.kit.client import Client, Response
from tests.kit.server import Server

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class Assistant:
    """Sends messages to the MCP server of a test with one API key; `query` is that of the URL, as `pii=masked`."""

    def __init__(self, server: Server, key: str | None = None, query: str = "") -> None:
        self.path = f"/mcp?{query}" if query else "/mcp"
        self.client = Client(server.url)
        self.authorization = {"Authorization": f"Bearer {key or server.key}"}

    def post(self, body: Any, **headers: str | None) -> Response:
        """Send a body, as JSON unless it is bytes; a header that is None is left out, and `_` stands for a hyphen."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {**JSON_HEADERS, **self.authorization, **named}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        present = {name: value for name, value in sent.items() if value is not None}
        return self.client.request("POST", self.path, content, present)

    def request(self, method: str, params: dict[str, Any] | None = None, **headers: str | None) -> Response:
        """Send a request of revision 2026-07-28."""
        params = {**(params or {}), "_meta": META}
        name = params.get("name") or params.get("uri")
        named = {"Mcp-Name": str(name)} if name is not None else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.post(body, **({"MCP-Protocol-Version": VERSION, "Mcp-Method": method} | named | headers))

    def result(self, method: str, **params: Any) -> Any:
        """Return the result of a request."""
        return self.request(method, params).expect(200)["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        """Return the whole result of a tool call, which may be an error."""
        return self.result("tools/call", name=tool, arguments=arguments)

    def use(self, tool: str, **arguments: Any) -> Any:
        """Return the structured result of a tool call that succeeds."""
        result = self.call(tool, **arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    def fail(self, tool: str, **arguments: Any) -> str:
        """Return the error text of a tool call that fails."""
        result = self.call(tool, **arguments)
        assert result["isError"], result
        return str(result["content"][0]["text"])

    def list_tools(self) -> list[str]:
        """Return the names of the tools that the key may use."""
        return [tool["name"] for tool in self.result("tools/list")["tools"]]
