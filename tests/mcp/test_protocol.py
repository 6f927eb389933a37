"""The wire of the MCP server: revisions, headers, errors, batches, and bodies that are not messages."""

import copy
import json
import random
from typing import Any

import pytest

from tests.kit.sampling import examples
from tests.kit.server import Server
from tests.mcp.assistant import META, VERSION, Assistant

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
LIST = {"jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": {"_meta": META}}


def error_of(response: Any) -> tuple[int, int]:
    """Return the HTTP status and the JSON-RPC code of an error."""
    return response.status, response.json["error"]["code"]


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
def test_handshake_is_answered_without_a_session(assistant: Assistant, version: str) -> None:
    """A client of an older revision gets its revision, and needs nothing but its header afterwards."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    response = assistant.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    ready = assistant.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, MCP_Protocol_Version=version)
    tools = assistant.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, MCP_Protocol_Version=version)

    result = response.expect(200)["result"]
    assert result["protocolVersion"] == version and result["serverInfo"]["name"] == "campanero"
    assert response.headers["Mcp-Session-Id"] is None
    assert (ready.status, ready.body) == (202, b"")
    assert "resultType" not in tools.expect(200)["result"]
    assert assistant.post(PING, MCP_Protocol_Version=version).expect(200) == {"jsonrpc": "2.0", "id": 7, "result": {}}


def test_unknown_revision_of_a_handshake_gets_the_newest(assistant: Assistant) -> None:
    """The client decides whether it can go on."""
    for version in ("2024-11-05", "2026-07-28", "x"):
        params = {"protocolVersion": version, "capabilities": {}}
        response = assistant.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert response.expect(200)["result"]["protocolVersion"] == "2025-11-25"
    response = assistant.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})
    assert error_of(response) == (200, -32602)


def test_discovery_and_lists_say_how_long_they_are_valid(assistant: Assistant) -> None:
    """Each result of revision 2026-07-28 has its type and the name of the server."""
    offered = assistant.result("server/discover")["supportedVersions"]
    assert offered[0] == VERSION and len(offered) == 4
    for method in ("server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        result = assistant.result(method)
        assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
        assert result["ttlMs"] > 0 and result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "campanero"


def test_headers_must_equal_the_body(assistant: Assistant) -> None:
    """Missing, wrong, doubled and unknown revisions each have their error; encoded names are decoded."""
    mismatches = [
        {"Mcp_Method": "tools/call"}, {"Mcp_Method": None}, {"MCP_Protocol_Version": "2025-11-25"},
        {"MCP_Protocol_Version": None},
    ]  # fmt: skip
    for headers in mismatches:
        sent = {"MCP_Protocol_Version": VERSION, "Mcp_Method": "tools/list"} | headers
        assert error_of(assistant.post(LIST, **sent)) == (400, -32020), headers
    call = {"name": "status", "arguments": {}}
    for name in ("contact", None, "=?base64?c3RhdHVz", "=?base64?c3RhdHV=?=", "=?base64?!!?="):
        assert error_of(assistant.request("tools/call", call, **{"Mcp-Name": name})) == (400, -32020), name
    for name in ("=?base64?c3RhdHVz?=", "status", "  status "):
        assistant.request("tools/call", call, **{"Mcp-Name": name}).expect(200)

    old = {**LIST, "params": {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "1900-01-01"}}}
    response = assistant.post(old, MCP_Protocol_Version="1900-01-01", Mcp_Method="tools/list")
    assert error_of(response) == (400, -32022)
    assert response.json["error"]["data"]["requested"] == "1900-01-01"
    assert VERSION in response.json["error"]["data"]["supported"]


def test_requests_without_the_fields_of_the_revision_are_refused(assistant: Assistant) -> None:
    """Revision 2026-07-28 needs the revision and the capabilities of the client in every request."""
    for meta in (None, {}, [], {"io.modelcontextprotocol/protocolVersion": VERSION}, {**META, list(META)[1]: 1}):
        body = {**LIST, "params": {"_meta": meta} if meta is not None else {}}
        response = assistant.post(body, MCP_Protocol_Version=VERSION, Mcp_Method="tools/list")
        assert error_of(response) == (400, -32602), meta


def test_methods_of_other_revisions_are_not_found(assistant: Assistant) -> None:
    """Unknown methods are 404 in revision 2026-07-28, and 200 before, where 404 would end a session."""
    for method in ("initialize", "ping", "logging/setLevel", "subscriptions/listen", "nothing"):
        assert error_of(assistant.request(method)) == (404, -32601)
    for method in ("server/discover", "logging/setLevel", "resources/subscribe", "nothing"):
        assert error_of(assistant.post({**PING, "method": method})) == (200, -32601)


def test_batches_exist_in_one_revision_only(assistant: Assistant) -> None:
    """A batch is answered message by message, and limited; notifications have no answer."""
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answers = assistant.post([PING, note, {**PING, "id": 8, "method": "no"}, {**PING, "method": "initialize"}, 5])
    values = answers.expect(200)
    assert [value.get("error", {}).get("code") for value in values] == [None, -32601, -32600, -32600]
    assert assistant.post([note, note]).status == 202
    for body in ([], [PING] * 21):
        assert error_of(assistant.post(body)) == (400, -32600)
    assert error_of(assistant.post([PING], MCP_Protocol_Version="2025-06-18")) == (400, -32600)
    assert error_of(assistant.post([LIST], MCP_Protocol_Version=VERSION, Mcp_Method="tools/list")) == (400, -32600)


def test_only_post_of_own_origin_is_served(server: Server, assistant: Assistant) -> None:
    """Pages of other sites, other methods, other types and other Accept headers are refused; the key is required."""
    assert assistant.post(PING, Origin="http://evil.example").status == 403
    assert assistant.post(PING, Origin="null").status == 403
    assert assistant.post(PING, Origin="http://[").status == 403
    assert assistant.post(PING, Origin=server.url).status == 200
    for method in ("GET", "DELETE", "PUT", "OPTIONS"):
        response = assistant.client.request(method, "/mcp", None, assistant.authorization)
        assert (response.status, response.headers["Allow"]) == (405, "POST"), method
    assert assistant.post(PING, Content_Type="text/plain").status == 415
    assert assistant.post(PING, Content_Type=None).status == 415
    assert assistant.post(PING, Accept="text/event-stream").status == 406
    for accept in ("application/json", "*/*", None, "application/*;q=0.5, text/html"):
        assert assistant.post(PING, Accept=accept).status == 200
    assert assistant.post(b" " * 3_000_000).status == 413
    for authorization in (None, "Bearer camp_live_wrong", "Basic eDp5"):
        response = assistant.post(PING, Authorization=authorization)
        assert response.status == 401
        metadata = f"{server.url}/.well-known/oauth-protected-resource/mcp"
        challenge = response.headers["WWW-Authenticate"]
        assert f'resource_metadata="{metadata}", scope="account:read campaigns:read ' in challenge
        assert ('error="invalid_token"' in challenge) == (authorization == "Bearer camp_live_wrong")
    assert Assistant(server, query="pii=no").post(PING).status == 400


def test_resources_and_prompts_can_be_read(assistant: Assistant) -> None:
    """All that is listed can be read; unknown ones have the error of their revision."""
    resources = assistant.result("resources/list")["resources"]
    for resource in resources:
        [contents] = assistant.result("resources/read", uri=resource["uri"])["contents"]
        assert contents["uri"] == resource["uri"] and len(contents["text"]) > 200
    assert {resource["uri"].split("/")[2] for resource in resources} == {"guide", "spec"}
    for uri in ("campanero://guide/none", "file:///etc/passwd", "campanero://guide/../../x"):
        assert error_of(assistant.request("resources/read", {"uri": uri})) == (400, -32602)
        old = assistant.post({**PING, "method": "resources/read", "params": {"uri": uri}})
        assert error_of(old) == (200, -32002)
    for prompt in assistant.result("prompts/list")["prompts"]:
        arguments = {argument["name"]: "{notes} {x}" for argument in prompt["arguments"]}
        text = assistant.result("prompts/get", name=prompt["name"], arguments=arguments)["messages"][0]["content"][
            "text"
        ]
        assert not arguments or "{notes} {x}" in text
    for params in ({"name": "none"}, {"name": "win_back"}, {"name": "win_back", "arguments": {"days": 5}}):
        assert error_of(assistant.request("prompts/get", params)) == (400, -32602)
    assert error_of(assistant.request("tools/list", {"cursor": "x"})) == (400, -32602)


def test_broken_messages_never_fail_the_server(assistant: Assistant) -> None:
    """Bodies that are not messages, and messages with parts of other types, are errors of the client."""
    raw = [b"", b"{", b"\xff", b"null", b"5", b'"x"', b"[[]]", b'{"jsonrpc":"2.0"}', b"[" * 2000, b'{"id":1e999}']
    raw += [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":NaN}',
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    ]
    for body in raw:
        response = assistant.post(body)
        assert 200 <= response.status < 500, (body, response.status)
        assert "error" in json.dumps(response.json)

    generator = random.Random(27)
    odd: list[Any] = [None, 0, -1, 2**70, 1.5, True, "", "x" * 300, "\u202e\U000e0041", [], {}, [[]], {"a": {"b": []}}]
    call = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "find_contacts", "arguments": {"search": "x", "limit": 1, "page": 1}, "_meta": META},
    }  # fmt: skip
    for _ in range(examples(150, full=3000)):
        body = copy.deepcopy(call)
        target: Any = body
        while True:
            key = generator.choice(list(target))
            if isinstance(target[key], dict) and target[key] and generator.random() < 0.7:
                target = target[key]
                continue
            target[key] = generator.choice(odd)
            break
        headers = {"MCP_Protocol_Version": VERSION, "Mcp_Method": "tools/call", "Mcp_Name": "find_contacts"}
        response = assistant.post(body, **(headers if generator.random() < 0.5 else {}))
        assert response.status < 500, (body, response.text)
