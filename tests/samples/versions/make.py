"""Make the files of one version for `tests/journeys/test_other_versions.py`, once for each schema that is released.

`python tests/samples/versions/make.py [--tree DIRECTORY]` runs the version in a checkout (default: this one) with its
own test kit, and writes `schema-NN.tar.xz` beside this file: a backup in the middle of a send with its key, and the
data directory after more was sent and people have opted out. For a release, run it in a checkout of the tag.
"""

import argparse
import json
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parent
COUNT = 12  # recipients of the campaign
SENT_BEFORE, SENT_AFTER = 4, 4  # of them, in relation to the backup
KEPT = ("campanero.db", "optouts.jsonl", "secret.key")
EVENT = "order_paid"
PEOPLE = tuple(f"p{number:02d}@people.example" for number in range(COUNT))


def defer(sink: Any, addresses: tuple[str, ...]) -> None:
    """Defer messages to these addresses from now on, and accept all others."""
    sink.rules.clear()
    for address in addresses:
        sink.rules.reject("rcpt", address, code=451, text="4.2.0 Try again later")


def fill(server: Any, sink: Any, backup: Path) -> dict[str, Any]:
    """Send half a campaign and a step of a flow, back up, send more, opt people out; return what is expected."""
    api = server.client(validate=False)
    server.set_postal_address()
    list_id = api.post("/lists", {"name": "News"}).expect(201)["id"]
    ids = {
        address: api.post(
            "/contacts", {"email": address, "first_name": "Ann", "opt_in": True, "list_ids": [list_id]}
        ).expect(201)["id"]
        for address in PEOPLE
    }  # fmt: skip
    flow = api.post(
        "/flows",
        {
            "name": "Welcome", "trigger": {"event": EVENT},
            "steps": [
                {"type": "email", "subject": "Welcome", "body": "<p>Hello</p>"},
                {"type": "wait", "duration": 86_400},
                {"type": "email", "subject": "How are you?", "body": "<p>Hello again</p>"},
            ],
        },
    ).expect(201)  # fmt: skip
    api.post(f"/flows/{flow['id']}/activate").expect(200)
    for address in PEOPLE[:3]:
        api.post("/events", {"event": EVENT, "contact_id": ids[address]}).expect(201)
    sink.wait_for(3)
    sink.clear()
    defer(sink, PEOPLE[SENT_BEFORE:])
    campaign = api.post(
        "/campaigns",
        {
            "name": "Spring", "trigger_attributes": {"contact_list_id": list_id},
            "template_attributes": {"subject": "Spring", "body": "<p>Our news</p>"},
        },
    ).expect(201)  # fmt: skip
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send").expect(200)
    api.wait(path, lambda row: row["stats"]["sent"] == SENT_BEFORE)
    server.cli("backup", str(backup), "--with-key")
    defer(sink, PEOPLE[SENT_BEFORE + SENT_AFTER :])
    api.wait(path, lambda row: row["stats"]["sent"] == SENT_BEFORE + SENT_AFTER)
    api.patch(f"/contacts/{ids[PEOPLE[-1]]}", {"subscribed_email": False}).expect(200)
    api.post("/suppressions", {"address": PEOPLE[-2]}).expect(201)
    time.sleep(1)
    server.stop()
    return {
        "campaign": campaign["id"], "flow": flow["id"], "contacts": ids, "sent_before": PEOPLE[:SENT_BEFORE],
        "sent_after": PEOPLE[SENT_BEFORE : SENT_BEFORE + SENT_AFTER], "opted_out": PEOPLE[-1], "suppressed": PEOPLE[-2],
        "in_flow": PEOPLE[:3],
    }  # fmt: skip


def main() -> None:
    """Make the sample of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=SAMPLES.parents[2], help="the checkout of the version")
    options = parser.parse_args()
    sys.path.insert(0, str(options.tree.resolve()))
    from tests.kit.server import Server  # of that checkout
    from tests.kit.smtp import SmtpServer

    with tempfile.TemporaryDirectory() as name, SmtpServer() as sink:
        directory = Path(name) / "sample"
        directory.mkdir()
        with Server(relay=sink.port, env={"CAMPANERO_EMAIL__IN_DOUBT": "hold"}).set_up().start() as server:
            server.env["CAMPANERO_EMAIL__GIVE_UP"] = "720h"
            facts = fill(server, sink, directory / "backup.tar.gz") | {"key": server.key}
            (directory / "data").mkdir()
            database = server.data / "campanero.db"
            with sqlite3.connect(database) as connection:
                [schema] = connection.execute("PRAGMA user_version").fetchone()
            connection.close()
            for file in KEPT:
                if (server.data / file).exists():
                    shutil.copyfile(server.data / file, directory / "data" / file)
        (directory / "facts.json").write_text(json.dumps(facts | {"schema": schema}, indent=1))
        target = SAMPLES / f"schema-{schema:02d}.tar.xz"
        with tarfile.open(target, "w:xz") as tar:
            for path in sorted(directory.rglob("*")):
                tar.add(path, path.relative_to(directory), recursive=False)
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
