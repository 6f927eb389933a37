"""Sixty odd people, invented the same way each time, as plain values and as rows."""

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


def fill(home: Home) -> list[dict[str, Any]]:
    """Put people of every odd kind into the database, straight into its tables, and answer them as plain values."""
    dice, now = random.Random(4), clock.now_ms()
    made = [person(dice, now, number) for number in range(1, 61)]
    transactions.write(lambda: [insert(home.account_id, one, now) for one in made])
    return made


def person(dice: random.Random, now: int, number: int) -> dict[str, Any]:
    """Invent a person."""
    data: dict[str, Any] = {key: dice.choice(VALUES) for key in KEYS if "." not in key and dice.random() < 0.7}
    if dice.random() < 0.5:
        data["deep"] = dice.choice([{"inner": dice.choice(VALUES)}, "flat", None])
    if dice.random() < 0.6:
        data["tags"] = dice.choice([dice.sample(TAGS, 3), [], "vip", {"0": "vip"}, None])
    if dice.random() < 0.3:
        data["enrichment"] = dice.choice([{}, {"a": 1}, "yes", []])

    def moment() -> int | None:
        return dice.choice([None, now - dice.randrange(400 * DAY), now - dice.randrange(5 * DAY)])

    channels = []
    for kind in dice.sample(["email", "email", "phone"], dice.randrange(4)):
        value = (
            f"+4915100{number:05}{len(channels)}" if kind == "phone" else f"P{len(channels)}.{number}@Bücher.example"
        )
        subscribed = dice.random() < 0.6
        channels.append({
            "kind": kind, "value": value, "subscribed": subscribed, "suppression": dice.choice(REASONS),
            "verified_at": moment(), "opt_out_at": None if subscribed else moment(),
        })  # fmt: skip
    return {
        "id": number, "first_name": dice.choice(WORDS) or None, "last_name": dice.choice(WORDS) or None,
        "source": dice.choice(["shop", "SHOP", None]), "country_code": dice.choice(["DE", "US", None]), "data": data,
        "created_at": moment() or now, "last_interacted_at": moment(), "email_last_opened_at": moment(),
        "email_open_count": dice.randrange(4), "channels": channels,
        "lists": dice.sample([1, 2, 3], dice.randrange(4)),
        "events": [{
            "event": dice.choice(EVENTS), "created_at": moment() or now, "test": dice.random() < 0.2,
            "generated": True, "data": {"verdict": dice.choice(["human", "machine"]), "total": dice.choice(VALUES)},
        } for _ in range(dice.randrange(5))],
    }  # fmt: skip


def insert(account_id: int, one: dict[str, Any], now: int) -> None:
    """Write a person as they are."""
    run(
        "INSERT INTO contact (id, account_id, uuid, first_name, last_name, source, country_code, data, tracking, "
        "email_sent_count, email_open_count, email_click_count, email_soft_bounce_count, sms_sent_count, "
        "email_last_opened_at, last_interacted_at, created_at, updated_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'full', 0, ?, 0, 0, 0, ?, ?, ?, ?)",
        (one["id"], account_id, f"u{one['id']}", one["first_name"], one["last_name"], one["source"],
         one["country_code"], json.dumps(one["data"], ensure_ascii=False), one["email_open_count"],
         one["email_last_opened_at"], one["last_interacted_at"], one["created_at"], now),
    )  # fmt: skip
    for channel in one["channels"]:
        key = channel["value"].casefold().replace("bücher", "xn--bcher-kva")
        run(
            "INSERT INTO channel (account_id, contact_id, kind, value, key, subscribed, verified_at, opt_out_at, "
            "suppression, sent_count, fail_count, data, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '{}', ?, ?)",
            (account_id, one["id"], channel["kind"], channel["value"], key, channel["subscribed"],
             channel["verified_at"], channel["opt_out_at"], channel["suppression"], now, now),
        )  # fmt: skip
    for number in one["lists"]:
        run("INSERT INTO membership VALUES (?, ?, ?)", (number, one["id"], now))
    for event in one["events"]:
        run(
            "INSERT INTO event (account_id, contact_id, event, data, test, generated, quiet, chain_depth, created_at, "
            "updated_at) VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, ?)",
            (account_id, one["id"], event["event"], json.dumps(event["data"]), event["test"], event["generated"],
             event["created_at"], now),
        )  # fmt: skip
