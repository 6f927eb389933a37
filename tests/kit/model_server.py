"""A server of language models in the forms of OpenAI and Anthropic, whose model follows a script.

It is as strict as the servers that it stands for (platform.openai.com/docs/api-reference/chat and
docs.anthropic.com/en/api/messages): a request that one of them refuses, such as a tool call without a result, gets 400.
"""

import json
import re
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

import jsonschema

from tests.kit.background_http import BackgroundHttp

Json = dict[str, Any]


class ToolUse(NamedTuple):
    """A call of a tool by the model; arguments that are a text are sent as they are."""

    name: str
    arguments: Any


# The model: it gets the system prompt and the task, yields the calls of each turn and receives their results.
Script = Callable[[str, str], Generator[list[ToolUse], list[str], None]]


class _Refusal(Exception):
    """A request that the server refuses."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _require(condition: object, message: str, status: int = 400) -> None:
    if not condition:
        raise _Refusal(status, message)


class ModelServer(BackgroundHttp):
    """The server. `busy` are responses that come before the first reply: pairs of a status and `Retry-After`.

    `is_loose` sends what local servers send beside the standard: no ids of calls, arguments as objects, more fields.
    """

    def __init__(
        self, script: Script, model: str = "scripted-1", key: str = "", *, is_loose: bool = False,
        busy: tuple[tuple[int, str], ...] = (), finish: str = "",
    ) -> None:  # fmt: skip
        self.model, self.key, self.requests = model, key, 0
        self._script, self._is_loose, self._busy, self._finish = script, is_loose, [*busy], finish
        self._turns: Generator[list[ToolUse], list[str], None] | None = None
        super().__init__(self._build_handler())

    def _build_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # the name that http.server calls
                """Reply to a request, or refuse it."""
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.requests += 1
                headers = {}
                if server._busy:
                    status, wait = server._busy.pop(0)
                    headers, reply = {"Retry-After": wait}, {"error": {"message": "try again"}}
                else:
                    status, reply = server._reply(self.path, dict(self.headers.items()), content)
                body = json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            log_message: Callable[..., None] = lambda *_: None  # an attribute of the class

        return Handler

    def _reply(self, path: str, headers: dict[str, str], content: bytes) -> tuple[int, Json]:
        lower = {name.lower(): value for name, value in headers.items()}
        try:
            body = json.loads(content)
            if path == "/v1/chat/completions":
                return 200, self._complete_openai(lower, body)
            if path == "/v1/messages":
                return 200, self._complete_anthropic(lower, body)
            raise _Refusal(404, f"there is no {path}")
        except _Refusal as refusal:
            return refusal.status, {"error": {"message": str(refusal)}}

    # -- OpenAI ---------------------------------------------------------------------------------------------------

    def _complete_openai(self, headers: dict[str, str], body: Json) -> Json:
        _require(headers.get("authorization") == (f"Bearer {self.key}" if self.key else None), "wrong key", 401)
        _require(body["model"] == self.model, f"the model {body['model']} does not exist", 404)
        for tool in body["tools"]:
            _require(tool.keys() == {"type", "function"} and tool["type"] == "function", "tools[].type")
            function = tool["function"]
            _check_tool(function["name"], function["description"], function["parameters"], 64)
        system, user, *others = body["messages"]
        _require((system["role"], user["role"]) == ("system", "user"), "messages begin with system and user")
        results = _results_of_openai(others)
        calls = self._next_turn(system["content"], user["content"], results)
        message: Json = {"role": "assistant", "content": None if calls else "Done.", "refusal": None}
        if calls:
            message["tool_calls"] = [self._openai_call(len(others), number, call) for number, call in enumerate(calls)]
        if self._is_loose:
            message["reasoning_content"] = "Let me see."
        finish = self._finish or ("tool_calls" if calls else "stop")
        return {"id": "1", "object": "chat.completion", "choices": [{"message": message, "finish_reason": finish}]}

    def _openai_call(self, turn: int, number: int, call: ToolUse) -> Json:
        is_text = self._is_loose or isinstance(call.arguments, str)
        arguments = call.arguments if is_text else json.dumps(call.arguments)
        identity = {} if self._is_loose else {"id": f"call_{turn}_{number}"}
        return {**identity, "type": "function", "function": {"name": call.name, "arguments": arguments}}

    # -- Anthropic ------------------------------------------------------------------------------------------------

    def _complete_anthropic(self, headers: dict[str, str], body: Json) -> Json:
        _require(headers.get("x-api-key", "") == self.key, "invalid x-api-key", 401)
        _require(headers.get("anthropic-version") == "2023-06-01", "anthropic-version: header is required")
        _require(body["model"] == self.model, f"model: {body['model']}", 404)
        _require(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: field required")
        for tool in body["tools"]:
            _require(tool.keys() == {"name", "description", "input_schema"}, "tools: extra inputs are not permitted")
            _check_tool(tool["name"], tool["description"], tool["input_schema"], 128)
        user, *others = body["messages"]
        results = _results_of_anthropic([user, *others])
        calls = self._next_turn(body["system"], user["content"], results)
        content: list[Json] = [{"type": "text", "text": "Let me see."}] if calls else []
        content += [
            {"type": "tool_use", "id": f"toolu_{len(others)}_{number}", "name": call.name, "input": call.arguments}
            for number, call in enumerate(calls)
        ]
        finish = self._finish or ("tool_use" if calls else "end_turn")
        return {"id": "1", "type": "message", "role": "assistant", "content": content, "stop_reason": finish}

    # -- the model ------------------------------------------------------------------------------------------------

    def _next_turn(self, system: str, prompt: str, results: list[str] | None) -> list[ToolUse]:
        """Return the calls of the next turn; none at the end. `results` are those of the last turn."""
        if results is None:
            self._turns = self._script(system, prompt)
            return next(self._turns, [])
        assert self._turns is not None
        try:
            return self._turns.send(results)
        except StopIteration:
            return []


def _check_tool(name: str, description: str, schema: Json, max_characters: int) -> None:
    _require(re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{max_characters}}}", name), f"{name}: invalid name of a tool")
    _require(description and len(description) <= 1024, f"{name}: the description is empty or too long")
    _require(schema.get("type") == "object", f"{name}: the schema must be of type object")
    wrong = schema.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}
    _require(not wrong, f"{name}: the schema must not have {wrong} at the top level")
    jsonschema.Draft202012Validator.check_schema(schema)


def _results_of_openai(messages: list[Json]) -> list[str] | None:
    """Return the results of the last turn, or None before the first. Raises _Refusal for calls without results."""
    results: list[str] | None = None
    while messages:
        turn, *messages = messages
        _require(turn["role"] == "assistant" and turn.get("tool_calls"), "a turn of the assistant was expected")
        _require(None not in turn.values(), "messages: expected a value, got null")
        wanted = [call.get("id") for call in turn["tool_calls"]]
        _require(all(wanted) and len({*wanted}) == len(wanted), "tool_calls[].id: must be unique")
        replies, messages = messages[: len(wanted)], messages[len(wanted) :]
        _require([reply["role"] for reply in replies] == ["tool"] * len(wanted), "each call must have a result")
        _require({reply["tool_call_id"] for reply in replies} == {*wanted}, "each call must have a result")
        results = [reply["content"] for reply in replies]
    return results


def _results_of_anthropic(messages: list[Json]) -> list[str] | None:
    """Return the results of the last turn, or None before the first. Raises _Refusal for calls without results."""
    roles = [message["role"] for message in messages]
    _require(roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], "messages: roles must alternate")
    results: list[str] | None = None
    for turn, reply in zip(messages[1::2], messages[2::2], strict=True):
        _require(turn["content"], "messages: content must not be empty")
        wanted = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        given = [block.get("tool_use_id") for block in reply["content"] if block["type"] == "tool_result"]
        _require(wanted == given, "tool_use ids without tool_result blocks immediately after")
        results = [block["content"] for block in reply["content"]]
    return results
