"""Sixty contacts with unusual values, the same on every run, as plain dicts and as rows."""

import json
import random
from typing import Any

from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.home import Home

DAY = 86_400_000
ZONE = "America/New_York"
WORDS = [
    "Ann",
    "ANNE",
    "ann",
    "Jürgen",
    "JÜRGEN",
    "straße",
    "Ωμέγα",
    "ΩΜΈΓΑ",
    "K",
    "İz",
    "",
    "o'neil",
    "%_",
    'a"b',
    None,
]
VALUES: list[Any] = [*WORDS, 0, 1, 2, -1.5, 1.0, 30, "30", True, False, [], {}, "[]", ["vip", "VIP2"], ["Ärger", 3],
                     {"a": 1}, {"enrichment": {}}, "2026-01-05"]  # fmt: skip
TAGS: list[Any] = ["vip", "VIP", "Ärger", "ÄRGER", "a b", "%", 5, None, 'x"y']
KEYS = ["plan", "age", "deep.inner", "q'uote", "Übung"]
EVENTS = ["email_opened", "email_clicked", "order_paid"]
REASONS = [None, None, "hard_bounce", "manual"]


def insert_contacts(home: Home) -> list[dict[str, Any]]:
    """Insert 60 random contacts directly into the tables and return them as dicts."""
    rng, now = random.Random(4), clock.now_ms()
    contacts = [random_contact(rng, now, number) for number in range(1, 61)]
    transactions.write(lambda: [insert_contact(home.account_id, contact, now) for contact in contacts])
    return contacts


def random_contact(rng: random.Random, now: int, number: int) -> dict[str, Any]:
    """Return a random contact as a dict."""
    data: dict[str, Any] = {key: rng.choice(VALUES) for key in KEYS if "." not in key and rng.random() < 0.7}
    if rng.random() < 0.5:
        data["deep"] = rng.choice([{"inner": rng.choice(VALUES)}, "flat", None])
    if rng.random() < 0.6:
        data["tags"] = rng.choice([rng.sample(TAGS, 3), [], "vip", {"0": "vip"}, None])
    if rng.random() < 0.3:
        data["enrichment"] = rng.choice([{}, {"a": 1}, "yes", []])

    def moment() -> int | None:
        return rng.choice([None, now - rng.randrange(400 * DAY), now - rng.randrange(5 * DAY)])

    channels = []
    for kind in rng.sample(["email", "email", "phone"], rng.randrange(4)):
        value = (
            f"+4915100{number:05}{len(channels)}" if kind == "phone" else f"P{len(channels)}.{number}@Bücher.example"
        )
        subscribed = rng.random() < 0.6
        channels.append({
            "kind": kind, "value": value, "subscribed": subscribed, "suppression": rng.choice(REASONS),
            "verified_at": moment(), "opt_out_at": None if subscribed else moment(),
        })  # fmt: skip
    return {
        "id": number, "first_name": rng.choice(WORDS) or None, "last_name": rng.choice(WORDS) or None,
        "source": rng.choice(["shop", "SHOP", None]), "country_code": rng.choice(["DE", "US", None]),
        "language": rng.choice(["de", "de-AT", "pt-BR", "zh-Hant-TW", None]), "data": data,
        "created_at": moment() or now, "last_interacted_at": moment(), "email_last_opened_at": moment(),
        "email_open_count": rng.randrange(4), "channels": channels,
        "lists": rng.sample([1, 2, 3], rng.randrange(4)),
        "events": [{
            "event": rng.choice(EVENTS), "created_at": moment() or now, "test": rng.random() < 0.2,
            "generated": True, "data": {"verdict": rng.choice(["human", "machine"]), "total": rng.choice(VALUES)},
        } for _ in range(rng.randrange(5))],
    }  # fmt: skip


def insert_contact(account_id: int, contact: dict[str, Any], now: int) -> None:
    """Insert the rows of a contact: the contact, its channels, list memberships and events."""
    run(
        "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, language, data, "
        "tracking, email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, "
        "email_last_opened_at, last_interacted_at, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'full', 0, ?, 0, 0, 0, ?, ?, ?, ?)",
        (contact["id"], account_id, f"u{contact['id']}", contact["first_name"], contact["last_name"], contact["source"],
         contact["country_code"], contact["language"], json.dumps(contact["data"], ensure_ascii=False),
         contact["email_open_count"], contact["email_last_opened_at"], contact["last_interacted_at"],
         contact["created_at"], now),
    )  # fmt: skip
    for channel in contact["channels"]:
        key = channel["value"].casefold().replace("bücher", "xn--bcher-kva")
        run(
            "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, verified_at, opt_out_at, "
            "suppression, sent_count, fail_count, data, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '{}', ?, ?)",
            (account_id, contact["id"], channel["kind"], channel["value"], key, channel["subscribed"],
             channel["verified_at"], channel["opt_out_at"], channel["suppression"], now, now),
        )  # fmt: skip
    for number in contact["lists"]:
        run("INSERT INTO membership VALUES (?, ?, ?)", (number, contact["id"], now))
    for event in contact["events"]:
        run(
            "INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, "
            "updated_at) VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, ?)",
            (account_id, contact["id"], event["event"], json.dumps(event["data"]), event["test"], event["generated"],
             event["created_at"], now),
        )  # fmt: skip
