"""The official Python client uses the MCP server, in the current revision and in the older ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from tests.kit.server import Server


@asynccontextmanager
async def connect(server: Server, mode: str) -> AsyncIterator[Client]:
    """Yield a client that has agreed on a revision with the server."""
    http_client = create_mcp_http_client({"Authorization": f"Bearer {server.key}"})
    async with (
        http_client,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http_client), mode=mode) as client,
    ):
        yield client


async def use(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the structured result of a tool; the client checks it against the output schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


async def _prepare_campaign(server: Server, mode: str) -> None:
    async with connect(server, mode) as client:
        tools = (await client.list_tools()).tools
        assert {"status", "draft_campaign", "preflight"} <= {tool.name for tool in tools}
        assert all(tool.title and tool.description and tool.annotations and tool.output_schema for tool in tools)
        guide = await client.read_resource("campanero://guide/segments")
        assert "segment" in guide.contents[0].text  # type: ignore[union-attr]  # other kinds have no text
        assert (await client.get_prompt("win_back", {"days": "90"})).messages

        status = await use(client, "status")
        assert status["name"] == "Bakery" and status["using_sandbox"]
        contact = {"email": f"ann.{mode}@example.org", "first_name": "Ann", "opt_in": True}
        created = await use(client, "api_call", method="POST", path="/contacts", body=contact)
        contact_id = created["value"]["id"]
        filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Ann"}]
        assert (await use(client, "describe_audience", filters=filters))["count"] >= 1
        segment = await use(client, "save_segment", name=f"Anns {mode}", filters=filters)
        draft = await use(
            client, "draft_campaign", name="Spring", subject="Hello {{ contact.first_name }}",
            body="<p>Dear {{ contact.first_name }}, bread is here.</p>", segment_id=segment["id"],
        )  # fmt: skip
        await use(client, "edit_draft", campaign_id=draft["id"], preheader="Fresh", updated_at=draft["updated_at"])
        preview = await use(client, "preview_as", campaign_id=draft["id"], contact_id=contact_id)
        assert "Dear Ann" in preview["text"]
        assert "audience" in (await use(client, "preflight", campaign_id=draft["id"]))["facts"]
        assert (await use(client, "send_test", campaign_id=draft["id"], emails=["me@example.org"]))["sent"] == 1
        assert not (await use(client, "why_not", contact_id=contact_id, campaign_id=draft["id"]))["reasons"][1:]
        assert (await use(client, "contact", address=f"ann.{mode}@example.org"))["contact"]["id"] == contact_id
        assert (await use(client, "find_contacts", search=f"ann.{mode}"))["total"] == 1
        assert (await use(client, "campaign_report", campaign_id=draft["id"]))["figures"]["phase"] == "draft"
        assert (await use(client, "list_campaigns", search="Spring"))["total"] >= 1
        await use(client, "deliverability")

        flow = await use(client, "draft_flow", starter="welcome", name=f"Welcome {mode}")
        assert flow["status"] == "draft" and flow["steps"]
        assert (await use(client, "simulate_flow", flow_id=flow["id"], contact_id=contact_id))["timeline"]
        assert (await use(client, "simulate_flow", flow_id=flow["id"], days=30))["met"] >= 0
        assert (await use(client, "flow_report", flow_id=flow["id"]))["runs"]
        searched = await use(client, "api_search", query="suppress an address")
        assert "createSuppression" in [operation["operation"] for operation in searched["operations"]]

        failed = await client.call_tool("draft_campaign", {"name": "", "list_id": 999_999, "colour": "red"})
        text = failed.content[0].text  # type: ignore[union-attr]  # other kinds have no text
        assert failed.is_error and "colour is not a known field" in text and "name" in text
    campaign = server.client().get(f"/campaigns/{draft['id']}").expect(200)
    assert (campaign["phase"], campaign["sent_count"]) == ("draft", 0)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_client_prepares_a_campaign_and_a_flow(server: Server, mode: str) -> None:
    """An assistant drafts, previews, checks and simulates; every result fits its schema, and nothing is sent."""
    asyncio.run(_prepare_campaign(server, mode))
