"""`/metrics`: the exact text format, the counters, permissions, and no personal data."""

import re
import time
from collections.abc import Callable

import pytest

from appliance.core.metrics import Family, Sample
from appliance.ops import metrics as metrics_scrape
from tests.conftest import FreshServer
from tests.kit import exposition
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

# Prefixes of metrics about the machine or about all accounts
OF_ALL = (
    "database", "disk", "litestream", "send_lease", "process", "storage", "stop_file", "http_request", "jobs", "build",
    "smtp",
)  # fmt: skip


def scrape(api: Client) -> dict[str, exposition.Family]:
    """Return all metric families, parsed strictly."""
    response = api.get("/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return exposition.parse(response.text)


def scrape_until(api: Client, true: Callable[[dict[str, exposition.Family]], bool]) -> dict[str, exposition.Family]:
    """Return the metrics once they satisfy a condition."""
    end = time.monotonic() + 60
    while not true(samples := scrape(api)):
        assert time.monotonic() < end, samples
        time.sleep(0.05)
    return samples


def scrape_after_sends(api: Client, number: int) -> dict[str, exposition.Family]:
    """Return the metrics once this number of attempts has ended."""
    name = "campanero_sends_total"
    return scrape_until(api, lambda samples: name in samples and samples[name].value() == number)


def send_message(api: Client, to: str) -> int:
    """Send a message and return its id."""
    api.post("/contacts", {"email": to})
    message_id = api.post("/messages", {"to": to, "subject": "s", "body": "<p>x</p>"}).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] not in ("queued", "sending"))
    return int(message_id)


def test_the_metrics_format(server: Server, api: Client) -> None:
    """Every name has the prefix, one help and type line, and base units."""
    send_message(api, "reader@example.org")
    result = scrape(api)
    assert all(name.startswith("campanero_") for name in result)
    assert not [name for name in result if re.search(r"_(ms|millis\w*|minutes|hours|days|kb|mb|percent)(_|$)", name)]
    wanted = {
        "build_info", "queue_messages", "queue_oldest_due_seconds", "sends_total", "smtp_transaction_seconds",
        "http_request_seconds", "jobs", "imports", "database_bytes", "database_wal_bytes", "disk_free_bytes",
        "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "flows_active",
        "webhook_deliveries_waiting", "process_start_time_seconds",
    }  # fmt: skip
    assert {f"campanero_{name}" for name in wanted} <= set(result)
    assert result["campanero_database_bytes"].value() > 100_000
    assert result["campanero_process_resident_memory_bytes"].value() > 10_000_000
    assert result["campanero_jobs"].value(job="outbox", state="waiting") in (0, 1)


def test_special_characters_are_escaped() -> None:
    """Quotes, backslashes, line breaks and infinite numbers are read back unchanged."""
    odd = 'a"b\\n\\c\nd'
    family = Family("x", "gauge", "Back\\slash\nand more.", [
        Sample("", (("one", odd),), 1.5), Sample("", (("one", ""),), float("inf")), Sample("", (("one", "2"),), 1e21),
    ])  # fmt: skip
    [family_read] = exposition.parse(
        metrics_scrape.format_metrics([family, Family("empty", "gauge", "Nothing.", [])])
    ).values()
    assert list(family_read.samples.values()) == [1.5, float("inf"), 1e21]
    assert family_read.values_of("one") == {odd, "", "2"} and family_read.help_text == "Back\\\\slash\\nand more."


@pytest.mark.parametrize("line", ["x 1", 'x{a="b} 1', "x{a='b'} 1", 'x{a="b",} 1', "x one", 'x{a="\\t"} 1', "y 1"])
def test_the_test_parser_is_strict(line: str) -> None:
    """The parser of these tests rejects anything else than the format."""
    head = "" if line == "x 1" else "# HELP x Words.\n# TYPE x gauge\n"
    with pytest.raises(AssertionError):
        exposition.parse(f"{head}{line}\n")


def test_metrics_need_a_scope(server: Server, api: Client) -> None:
    """Without a credential it is a 401, without the scope a 403; HEAD works like GET."""
    assert Client(server.url).get("/metrics").expect(401)["code"] == "unauthorized"
    other = server.client(server.new_key("other", "--scope", "contacts:read"))
    assert other.get("/metrics").expect(403)["required_scope"] == "account:read"
    allowed = server.client(server.new_key("scraper", "--scope", "account:read"))
    assert allowed.get("/metrics").status == 200
    headers = {"Authorization": f"Bearer {api.key}"}
    head = api.request("HEAD", "/metrics", None, headers)
    assert (head.status, head.body) == (200, b"")
    assert api.request("POST", "/metrics", b"{}", headers).status == 405


def test_sends_are_counted_by_result(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Sends are counted by provider, recipient group and result; bounces by class."""
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    api.patch("/account", {"email_from_email": "news@bakery.example"}).expect(200)
    smtp_server.rules.reject("rcpt", "gone@example.org", code=550, text="5.1.1 no such person")
    for to in ("reader@gmail.com", "other@small-firm.example", "gone@example.org"):
        send_message(api, to)
    result = scrape_after_sends(api, 3)
    sends, took = result["campanero_sends_total"], result["campanero_smtp_transaction_seconds"]
    assert sends.value(provider="relay", group="google", result="accepted", channel="email") == 1
    assert sends.value(group="other", result="accepted") == 1 and sends.value(result="failed") == 1
    assert sends.values_of("group") == {"google", "other"}
    assert result["campanero_bounces_total"].value(class_="hard") == 1
    assert took.value("_count", result="accepted") == 2 and took.value("_count", result="rejected") == 1


def test_metrics_of_the_queue(fresh_server: FreshServer) -> None:
    """Due messages and their age are reported while sending is stopped; a restart resets the counters."""
    server = fresh_server()
    api = server.client()
    send_message(api, "reader@example.org")
    scrape_after_sends(api, 1)
    server.stop()
    (server.data / "STOP").touch()
    server.start()
    api.post("/messages", {"to": "reader@example.org", "subject": "s", "body": "<p>x</p>"}).expect(201)
    result = scrape_until(api, lambda samples: samples["campanero_queue_oldest_due_seconds"].value() > 0)
    assert result["campanero_queue_messages"].value(channel="email", state="due") == 1
    assert result["campanero_queue_messages"].value(channel="sms") == 0
    assert result["campanero_stop_file"].value() == 1
    assert "campanero_sends_total" not in result


def test_metrics_of_other_accounts(fresh_server: FreshServer) -> None:
    """The first account sees the installation; another one sees only its own numbers."""
    server = fresh_server()
    number = server.cli("account", "add", "Other").stdout.strip()
    first, other = server.client(), server.client(server.new_key("other", "--account", number))
    for to in ("a@gmail.com", "b@gmail.com"):
        send_message(first, to)
    scrape_after_sends(first, 2)
    mine = scrape(other)
    assert "campanero_sends_total" not in mine
    assert [name for name in mine if name.removeprefix("campanero_").startswith(OF_ALL)] == []
    send_message(other, "c@yahoo.com")
    assert scrape_after_sends(other, 1)["campanero_sends_total"].values_of("group") == {"yahoo"}
    scrape_after_sends(first, 3)


def test_metrics_contain_no_personal_data(server: Server, api: Client) -> None:
    """No id, address, token or unknown method of a request becomes a label."""
    asked = Client(server.url, validate=False)
    headers = {"Authorization": f"Bearer {api.key}"}
    for path in (
        "/v1/my/contacts/4711", "/v1/my/contacts/someone@example.com", "/u/CANARYtoken", "/nothing/CANARY",
        "/contacts/4712", "/c/CANARYtoken", "/v9/CANARY", "/static/CANARY.css", "/docs/guides/CANARY",
    ):  # fmt: skip
        asked.request("GET", path, None, headers)
    asked.request("CANARY", "/v1/my/contacts", None, headers)
    text = api.get("/metrics").text
    # The values are left out, because a measured value may contain the digits of an id
    labels = re.sub(r" \S+$", "", text, flags=re.MULTILINE)
    assert not re.search(r"CANARY|4711|4712|example\.com|@|<", labels)
    result = exposition.parse(text)["campanero_http_request_seconds"]
    assert {"/v1/my/contacts/{id}", "unknown"} <= result.values_of("route")
    assert result.value("_count", route="/v1/my/contacts/{id}", status="4xx") == 2
