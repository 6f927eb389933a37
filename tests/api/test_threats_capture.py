"""Emails of very many lines in the built-in inbox: other clients are answered meanwhile (T22)."""

from typing import Any

import pytest

from tests.api.test_threats_loop import MAX_WAIT_SECONDS, Probe
from tests.kit.client import Client
from tests.kit.server import Server

TOO_MANY_LINES = "has too many lines (maximum is 100000)"


def is_final(message: Any) -> bool:
    """Return whether a message is sent or skipped."""
    return message["status"] in ("sent", "skipped")


def test_an_email_of_many_lines_stops_nobody(server: Server, api: Client) -> None:
    """The capture server reads an email line by line, and not on the event loop of the pages and the API."""
    waits = []
    for attempt in range(5):
        address = f"reader{attempt}@example.org"
        # Each "\n" is a line of its own in the HTML and in the text.
        body = {"to": address, "subject": "Lines", "body": "<p>Hello</p>" + "\n" * 95_000, "text": "Hi\n" * 95_000}
        with Probe(server) as probe:
            message = api.post("/messages", body).expect(201)
            sent = api.wait(f"/messages/{message['id']}", is_final)
        assert sent["status"] == "sent"
        waits.append(probe.longest)
        if probe.longest < MAX_WAIT_SECONDS:
            break
    assert min(waits) < MAX_WAIT_SECONDS, waits


@pytest.mark.parametrize("name", ["body", "text"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\n{{ data.a }}"])
def test_a_body_of_too_many_lines_is_422(name: str, line_end: str, api: Client) -> None:
    """More than 100,000 lines are not an email that anybody wrote."""
    content = {"subject": "Lines", "body": "<p>Hello</p>", name: "x" + line_end.partition("{")[0] * 100_000 + line_end}
    error = api.post("/messages", {"to": "a@example.org", **content}).expect(422)
    assert error["validation_errors"] == {name: [TOO_MANY_LINES]}
    if name == "body":
        error = api.post("/templates", {"name": "Lines", **content}).expect(422)
        assert error["validation_errors"] == {"body": [TOO_MANY_LINES]}


def test_values_of_too_many_lines_are_not_sent(api: Client) -> None:
    """An email that has too many lines once it is filled in is skipped, as one that cannot be rendered."""
    content = {"subject": "Lines", "body": "<p>Hello</p>" + "{{ data.a }}" * 26}
    message = api.post("/messages", {"to": "a@example.org", **content, "data": {"a": "\n" * 9_900}}).expect(201)
    final = api.wait(f"/messages/{message['id']}", is_final)
    assert (final["status"], final["skip_reason"]) == ("skipped", "render_error")
    assert "lines" in final["error"]["text"]
