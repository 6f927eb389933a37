"""Lists with many contacts, and campaigns to them."""

from collections.abc import Sequence
from typing import Any

from tests.kit.client import Client
from tests.kit.uploads import upload, wait_for_import

CONTENT = {
    "subject": "News for {{ first_name }}",
    "body": "<p>Dear {{ first_name }}, read <a href='https://bakery.example/bread'>how we bake</a>.</p>",
    "from_email": "ana@bakery.example",
}
# The environment of a server without rate limits of the API
NO_RATE_LIMITS = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "0"}


def recipient_address(index: int, name: str = "p") -> str:
    """Return the email address of contact number `index`."""
    return f"{name}{index}@crowd.example"


def create_list(api: Client, count: int, name: str = "p", more: Sequence[str] = ()) -> int:
    """Import `count` contacts, and those with the addresses in `more`, into a new list; return the id of the list."""
    list_id: int = api.post("/lists", {"name": f"Crowd {name}"}).expect(201)["id"]
    lines = [f"{recipient_address(index, name)},N{index}" for index in range(count)]
    lines += [f"{address_},Nobody" for address_ in more]
    import_ = wait_for_import(api, upload(api, "email,first_name\n" + "\n".join(lines), list_ids=[list_id]))
    assert (import_["status"], import_["created"]) == ("complete", len(lines)), import_
    return list_id


def create_campaign(api: Client, list_id: int, **content: Any) -> str:
    """Create a campaign to a list and return its path."""
    body = {
        "name": "Letter", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": CONTENT | content,
    }  # fmt: skip
    return f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"


def send_campaign(api: Client, list_id: int, **content: Any) -> str:
    """Send a campaign to a list and return its path."""
    path = create_campaign(api, list_id, **content)
    api.post(f"{path}/send").expect(200)
    return path


def wait_until_completed(api: Client, path: str, timeout: float = 120) -> Any:
    """Wait until a campaign is completed and return it."""
    return api.wait(path, lambda row: row["status"] == "completed", timeout)
