"""A small client of the Model Context Protocol, with which an agent works: it lists tools and calls them."""

import itertools
import json
from typing import Any

from tests.kit.client import Client

PROTOCOL_VERSION = "2025-11-25"
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class ToolRefused(Exception):
    """A tool call that the service refused; the text says why."""


class Session:
    """The connection of an agent. `calls` are the names and arguments of the tools that it called."""

    def __init__(self, base: str, key: str) -> None:
        self.url, self.key = f"{base}/mcp", key
        self._http = Client(base, validate=False, keep_alive=True)
        self._numbers = itertools.count(1)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        client = {"name": "campanero-evaluation", "version": "1"}
        started = self.request("initialize", protocolVersion=PROTOCOL_VERSION, capabilities={}, clientInfo=client)
        # What the server tells every assistant.
        self.instructions: str = started.get("instructions", "")

    def request(self, method: str, /, **params: Any) -> Any:
        """Return the result of a request. Raises ToolRefused for an error of the protocol."""
        body = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        headers = {**_HEADERS, "Authorization": f"Bearer {self.key}", "MCP-Protocol-Version": PROTOCOL_VERSION}
        response = self._http.request("POST", "/mcp", json.dumps(body).encode(), headers).json
        if "error" in response:
            raise ToolRefused(str(response["error"]))
        return response["result"]

    def list_tools(self) -> list[dict[str, Any]]:
        """Return the descriptions of the tools."""
        tools: list[dict[str, Any]] = self.request("tools/list")["tools"]
        return tools

    def list_resources(self) -> list[str]:
        """Return the URIs of the resources."""
        self.calls.append(("resources/list", {}))
        return [str(resource["uri"]) for resource in self.request("resources/list")["resources"]]

    def call_text(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return the text of a tool's result, also of a failure, as a model reads it, and whether it failed."""
        self.calls.append((name, arguments))
        try:
            result = self.request("tools/call", name=name, arguments=arguments)
        except ToolRefused as error:
            return f"Error: {error}", True
        return "\n".join(part.get("text", "") for part in result["content"]), bool(result.get("isError"))

    def read_text(self, uri: str) -> tuple[str, bool]:
        """Return the text of a resource, also of a failure, and whether it failed."""
        self.calls.append(("resources/read", {"uri": uri}))
        try:
            result = self.request("resources/read", uri=uri)
        except ToolRefused as error:
            return f"Error: {error}", True
        return "\n".join(part.get("text", "") for part in result["contents"]), False

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the structured result of a tool. Raises ToolRefused if it failed."""
        self.calls.append((name, arguments))
        result = self.request("tools/call", name=name, arguments=arguments)
        if result.get("isError"):
            raise ToolRefused(result["content"][0]["text"])
        value: dict[str, Any] = result["structuredContent"]
        return value

    def api(self, method: str, path: str, body: dict[str, Any] | None = None, **query: Any) -> Any:
        """Return the JSON of an operation of the API, called over the tool `api_call`. Raises ToolRefused."""
        arguments: dict[str, Any] = {"method": method, "path": path}
        arguments |= {"body": body} if body is not None else {}
        arguments |= {"query": query} if query else {}
        return self.call("api_call", **arguments).get("value")
