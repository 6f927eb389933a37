"""Generated merge tags of one account, against the clock, the output limit and the data of another (T01, T02).

tests/domain/test_render_time.py measures the same templates in this process; here the service renders them, while a
second account works.
"""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from appliance.content.designs.merge_limits import MAX_OUTPUT_BYTES
from tests.domain.test_render_time import BOMBS, TEMPLATES
from tests.kit.client import Client
from tests.kit.sampling import examples
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout

SERVER_ENV = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__RENDERS_PER_MINUTE": "0"}
# In the name, the contacts and the brand of the second account
CANARY = "zqcanary"
# The longest render is 50 ms; sanitizing the HTML may take a second, and the machine may be busy.
MAX_SECONDS = 6.0
_REACHING = st.sampled_from(
    (
        "{{ contact.__class__ }}", "{{ ''.__class__.__mro__ }}", "{{ account._data }}", "{{ self }}", "{{ loop }}",
        "{% include '/etc/passwd' %}", "{% render 'secret.key' %}", "{{ contact | map: 'account' }}", "{{ request }}",
        "{{ brand.account.contacts }}", "{{ contact.account }}", "{{ contact.id | plus: 1 }}", "{{ links[0] }}",
        "{% for x in contact %}{{ x }}{% endfor %}", "{% for x in account %}{{ x }}{% endfor %}",
        "{{ 1 | __import__ }}", "{{ contact.data | json }}", "{{ config.secret }}",
        "{% assign a = contact %}{{ a.owner }}", "{% raw %}{{",
        "{{ unsubscribe_url | append: 'x' }}", "{% liquid echo contact %}", "{% cycle a, b %}",
        "{{ forloop.parentloop }}",
    )
)  # fmt: skip
SOURCES = st.lists(st.one_of(TEMPLATES, _REACHING, st.sampled_from(sorted(BOMBS.values(), key=len)[:12])), max_size=4)


@pytest.fixture(scope="module")
def victim(server: Server) -> Client:
    """The second account, with a contact."""
    account_id = server.cli("account", "add", f"{CANARY} Ltd").stdout.strip()
    api = server.client(server.new_key("other", "--account", account_id), validate=False, keep_alive=True)
    api.put("/brand", {"company_name": CANARY, "physical_address": f"{CANARY} Street"}).expect(200)
    api.post("/contacts", {"email": f"{CANARY}@example.org", "first_name": CANARY}).expect(201)
    return api


def work(api: Client, is_over: threading.Event) -> list[float]:
    """Preview an email for the contact of the second account until the event; return the seconds of each preview."""
    contact_id, waits, numbers = api.get("/contacts").expect(200)[0]["id"], list[float](), itertools.count()
    while not is_over.wait(0.2):
        started_at = time.monotonic()
        request = {"document": {}, "body": f"<p>{next(numbers)} {{{{ first_name }}}}", "contact_id": contact_id}
        assert CANARY in api.post("/templates/preview", request).expect(200)["html"]
        waits.append(time.monotonic() - started_at)
    return waits


def test_generated_templates_reach_nothing_and_hold_up_nobody(server: Server, victim: Client) -> None:
    """Each template is rendered or refused in time and size, and a second account gets its previews meanwhile."""
    api = server.client(validate=False, keep_alive=True)
    api.post("/contacts", {"email": "own@example.org", "first_name": "Own"}).expect(201)
    contact_id = api.get("/contacts").expect(200)[0]["id"]
    is_over = threading.Event()

    @seed(2_026)
    @settings(
        max_examples=examples(30, full=3_000),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=(Phase.generate,),
    )
    @given(SOURCES, st.booleans())
    def attack(sources: list[str], is_sms: bool) -> None:
        body = " ".join(sources)
        request = {"document": {}, "body": body, "contact_id": contact_id, "channel": "sms" if is_sms else "email"}
        started_at = time.monotonic()
        response = api.post("/templates/preview", request)
        assert response.status in (200, 413, 422, 429), (response.status, body[:500])
        assert time.monotonic() - started_at < extend_timeout(MAX_SECONDS), body[:500]
        # The frame of the email is a few kilobytes, and JSON writes a character in up to six bytes.
        assert len(response.body) < 2 * 6 * MAX_OUTPUT_BYTES and CANARY not in response.text

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, victim, is_over)
        try:
            attack()
        finally:
            is_over.set()
        waits = sorted(working.result())
    assert waits[len(waits) * 9 // 10] < extend_timeout(1.0), waits
    # One of them is sent, too: its message is rendered or skipped, and the queue goes on.
    bomb = api.post("/messages", {"to": "own@example.org", "subject": "x", "body": next(iter(BOMBS.values()))})
    message_id = api.post("/messages", {"to": "own@example.org", "subject": "x", "body": "y"}).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent")
    assert bomb.status in (201, 422)
