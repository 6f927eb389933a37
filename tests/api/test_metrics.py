"""`/metrics`: exactly the text format, what it counts, whose numbers a key sees, and no name of anybody in it."""

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

# Said of the machine, or of all accounts together
OF_ALL = ("database", "disk", "process", "storage", "stop_file", "http_request", "jobs", "build", "smtp")


def scrape(api: Client) -> dict[str, exposition.Family]:
    """Return all numbers, read by their rules."""
    answer = api.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return exposition.parse(answer.text)


def scrape_until(api: Client, true: Callable[[dict[str, exposition.Family]], bool]) -> dict[str, exposition.Family]:
    """Return the numbers once they say something; what is on disk is counted a moment after."""
    end = time.monotonic() + 60
    while not true(found := scrape(api)):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def ended(api: Client, number: int) -> dict[str, exposition.Family]:
    """Return the numbers once so many attempts have ended."""
    name = "campanero_sends_total"
    return scrape_until(api, lambda told: name in told and told[name].value() == number)


def send(api: Client, to: str) -> int:
    """Send a message and return its id."""
    api.post("/contacts", {"email": to})
    made = api.post("/messages", {"to": to, "subject": "s", "body": "<p>x</p>"}).expect(201)["id"]
    api.wait(f"/messages/{made}", lambda row: row["status"] not in ("queued", "sending"))
    return int(made)


def test_it_is_exactly_the_format(server: Server, api: Client) -> None:
    """Every name is ours, said once, with its meaning and its type, in base units."""
    send(api, "reader@example.org")
    found = scrape(api)
    assert all(name.startswith("campanero_") for name in found)
    assert not [name for name in found if re.search(r"_(ms|millis\w*|minutes|hours|days|kb|mb|percent)(_|$)", name)]
    wanted = {
        "build_info", "queue_messages", "queue_oldest_due_seconds", "sends_total", "smtp_transaction_seconds",
        "http_request_seconds", "jobs", "imports", "database_bytes", "database_wal_bytes", "disk_free_bytes",
        "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "flows_active",
        "webhook_deliveries_waiting", "process_start_time_seconds",
    }  # fmt: skip
    assert {f"campanero_{name}" for name in wanted} <= set(found)
    assert found["campanero_database_bytes"].value() > 100_000
    assert found["campanero_process_resident_memory_bytes"].value() > 10_000_000
    assert found["campanero_jobs"].value(job="outbox", state="waiting") in (0, 1)


def test_what_is_odd_is_escaped() -> None:
    """Quotes, backslashes and ends of lines in a value come back as they were, and so do numbers that are none."""
    odd = 'a"b\\n\\c\nd'
    family = Family("x", "gauge", "Back\\slash\nand more.", [
        Sample("", (("one", odd),), 1.5), Sample("", (("one", ""),), float("inf")), Sample("", (("one", "2"),), 1e21),
    ])  # fmt: skip
    [found] = exposition.parse(
        metrics_scrape.format_metrics([family, Family("empty", "gauge", "Nothing.", [])])
    ).values()
    assert list(found.samples.values()) == [1.5, float("inf"), 1e21]
    assert found.values_of("one") == {odd, "", "2"} and found.words == "Back\\\\slash\\nand more."


@pytest.mark.parametrize("line", ["x 1", 'x{a="b} 1', "x{a='b'} 1", 'x{a="b",} 1', "x one", 'x{a="\\t"} 1', "y 1"])
def test_the_reader_is_strict(line: str) -> None:
    """The reader of these tests takes nothing that is not the format."""
    head = "" if line == "x 1" else "# HELP x Words.\n# TYPE x gauge\n"
    with pytest.raises(AssertionError):
        exposition.parse(f"{head}{line}\n")


def test_a_credential_opens_it(server: Server, api: Client) -> None:
    """Without one it is 401, without the scope 403, both as every refusal; HEAD answers as GET."""
    assert Client(server.url).get("/metrics").expect(401)["code"] == "unauthorized"
    other = server.client(server.new_key("other", "--scope", "contacts:read"))
    assert other.get("/metrics").expect(403)["required_scope"] == "account:read"
    allowed = server.client(server.new_key("scraper", "--scope", "account:read"))
    assert allowed.get("/metrics").status == 200
    headers = {"Authorization": f"Bearer {api.key}"}
    head = api.request("HEAD", "/metrics", None, headers)
    assert (head.status, head.body) == (200, b"")
    assert api.request("POST", "/metrics", b"{}", headers).status == 405


def test_sends_are_counted_by_what_became_of_them(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Accepted, put off and refused, by way out and by who takes the mail; bounces by what they mean."""
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    api.patch("/account", {"email_from_email": "news@bakery.example"}).expect(200)
    smtp_server.rules.reject("rcpt", "gone@example.org", code=550, text="5.1.1 no such person")
    for to in ("reader@gmail.com", "other@small-firm.example", "gone@example.org"):
        send(api, to)
    found = ended(api, 3)
    sends, took = found["campanero_sends_total"], found["campanero_smtp_transaction_seconds"]
    assert sends.value(provider="relay", group="google", result="accepted", channel="email") == 1
    assert sends.value(group="other", result="accepted") == 1 and sends.value(result="failed") == 1
    assert sends.values_of("group") == {"google", "other"}
    assert found["campanero_bounces_total"].value(class_="hard") == 1
    assert took.value("_count", result="accepted") == 2 and took.value("_count", result="refused") == 1


def test_the_queue_is_told_with_its_age(fresh_server: FreshServer) -> None:
    """What waits for nobody is due and grows older; a campaign for later is not; a start begins counting anew."""
    server = fresh_server()
    api = server.client()
    send(api, "reader@example.org")
    ended(api, 1)
    server.stop()
    (server.data / "STOP").touch()
    server.start()
    api.post("/messages", {"to": "reader@example.org", "subject": "s", "body": "<p>x</p>"}).expect(201)
    found = scrape_until(api, lambda told: told["campanero_queue_oldest_due_seconds"].value() > 0)
    assert found["campanero_queue_messages"].value(channel="email", state="due") == 1
    assert found["campanero_queue_messages"].value(channel="sms") == 0
    assert found["campanero_stop_file"].value() == 1
    assert "campanero_sends_total" not in found


def test_an_account_sees_its_own_alone(fresh_server: FreshServer) -> None:
    """The first account's keys see the installation; others nothing of the machine, and no number of anybody else."""
    server = fresh_server()
    number = server.cli("account", "add", "Other").stdout.strip()
    first, other = server.client(), server.client(server.new_key("other", "--account", number))
    for to in ("a@gmail.com", "b@gmail.com"):
        send(first, to)
    ended(first, 2)
    mine = scrape(other)
    assert "campanero_sends_total" not in mine
    assert [name for name in mine if name.removeprefix("campanero_").startswith(OF_ALL)] == []
    send(other, "c@yahoo.com")
    assert ended(other, 1)["campanero_sends_total"].values_of("group") == {"yahoo"}
    ended(first, 3)


def test_nobody_is_named_in_it(server: Server, api: Client) -> None:
    """Whatever is asked for: no id, address, token or made-up method becomes a label."""
    asked = Client(server.url, validate=False)
    headers = {"Authorization": f"Bearer {api.key}"}
    for path in (
        "/v1/my/contacts/4711", "/v1/my/contacts/someone@example.com", "/u/CANARYtoken", "/nothing/CANARY",
        "/contacts/4712", "/c/CANARYtoken", "/v9/CANARY", "/static/CANARY.css", "/docs/guides/CANARY",
    ):  # fmt: skip
        asked.request("GET", path, None, headers)
    asked.request("CANARY", "/v1/my/contacts", None, headers)
    told = api.get("/metrics").text
    assert not re.search(r"CANARY|4711|4712|example\.com|@|<", told)
    found = exposition.parse(told)["campanero_http_request_seconds"]
    assert {"/v1/my/contacts/{id}", "unknown"} <= found.values_of("route")
    assert found.value("_count", route="/v1/my/contacts/{id}", status="4xx") == 2
