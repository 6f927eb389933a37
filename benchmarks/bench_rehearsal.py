"""Measure rendering a draft for all recipients: `python -m benchmarks.bench_rehearsal --contacts 100000`."""

import argparse
import time

from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import

UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}
SECTIONS = [
    {"type": "header", "props": {}},
    {"type": "hero", "props": {"title": "Hello {{ contact.first_name | default: 'there' }}", "subtitle": "Spring"}},
    {"type": "text", "props": {"content": "<p>Dear {{ contact.first_name }} of {{ contact.data.city }}</p>"}},
    {"type": "button", "props": {"text": "Go", "href": "https://shop.example/?who={{ contact.email }}"}},
    *[{"type": "text", "props": {"content": f"<p>Paragraph {n} of the letter, which goes on.</p>"}} for n in range(6)],
    {"type": "divider", "props": {}},
    {"type": "footer", "props": {}},
]


def main() -> None:
    """Import contacts, request the preflight of a draft to all, and wait until rendering is complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=100_000)
    options = parser.parse_args()
    rows = "".join(f"p{n}@example.org,{'' if n % 10 == 0 else 'Ann'},Bath\n" for n in range(options.contacts))
    with Server(env=UNLIMITED).set_up() as server:
        api = server.client(validate=False, keep_alive=True)
        group = api.post("/lists", {"name": "Everybody"}).expect(201)["id"]
        wait_for_import(api, upload(api, "email,first_name,city\n" + rows, list_ids=[group]), 600)
        body = {
            "name": "Spring", "trigger_attributes": {"contact_list_id": group},
            "template_attributes": {"subject": "Hi {{ first_name }}", "design": {"sections": SECTIONS}},
        }  # fmt: skip
        campaign_id = api.post("/campaigns", body).expect(201)["id"]
        path, begin = f"/campaigns/{campaign_id}/preflight", time.perf_counter()
        preflight = api.wait(path, lambda row: row["facts"]["rehearsal"]["status"] in ("complete", "failed"), 600)
        took = time.perf_counter() - begin
        done_ = preflight["facts"]["rehearsal"]
        lacking = {row["name"]: row["count"] for row in done_["lacking"]}
        print(
            f"{done_['status']}: {done_['done']:,} rendered in {took:.1f} s (goal: 100,000 in 60 s); lacking {lacking}"
        )


if __name__ == "__main__":
    main()
