"""Litestream beside a send: kills of the service and of Litestream, and a restore with all the books.

700 recipients, and 20,000 with `--full`.
"""

import time
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.faults.conftest import Figures
from tests.kit.client import Client
from tests.kit.litestream import Litestream
from tests.kit.recipients import create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.s3_server import S3Server
from tests.kit.server import relay_settings
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4
# A copy goes on by itself after each kill, at the latest after this time.
MAX_LAG_SECONDS = 10.0


def read_metric(api: Client, name: str) -> float | None:
    """Return the value of a metric without labels, or None if it is missing."""
    lines = api.get("/metrics").text.splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(f"campanero_{name} ")), None)


def wait_until_copied(api: Client) -> float:
    """Wait until Litestream has copied everything of the last second, and return the seconds that took."""
    began = time.monotonic()
    while (lag := read_metric(api, "litestream_lag_seconds")) is None or lag > 1:
        assert time.monotonic() < began + 30, "Litestream copies nothing"
        time.sleep(0.1)
    return time.monotonic() - began


@pytest.mark.parametrize("place", [pytest.param("directory", marks=pytest.mark.full), "s3"])
def test_litestream_beside_a_send_with_kills(
    fresh_server: FreshServer, smtp_server: SmtpServer, s3: S3Server, tmp_path: Path, full: bool, figures: Figures,
    place: str,
) -> None:  # fmt: skip
    """Nothing is lost or damaged in the replica, its lag stays small, and the log is left to Litestream."""
    count = 20_000 if full else 700
    socket = {"CAMPANERO_LITESTREAM__SOCKET": str(tmp_path / "ls" / "ls.sock")}
    server = fresh_server(env=relay_settings(smtp_server.port) | socket).set_postal_address()
    litestream = Litestream(server.data / "campanero.db", tmp_path / "ls", "replica", s3 if place == "s3" else None)
    try:
        litestream.start()
        api = server.client(validate=False)
        path = send_campaign(api, create_list(api, count))
        smtp_server.wait_for(count // 4, timeout=120)
        server.kill()
        server.start()
        smtp_server.wait_for(count // 2, timeout=120)
        litestream.kill()
        assert read_metric(api, "litestream_up") == 0
        litestream.start()
        lags = []
        while api.get(path).expect(200)["status"] != "completed":
            lags.append(read_metric(api, "litestream_lag_seconds") or 0.0)
            time.sleep(0.05)
        wait_until_completed(api, path, timeout=120)
        books = reconcile(api, path, smtp_server.messages)
        assert (books.missing, books.uncertain) == (0, 0) and books.copies <= 2 * CONNECTIONS
        assert "copied the database" in server.cli("doctor", expect=None).stdout
        api.post("/contacts", {"email": "late@crowd.example"}).expect(201)
        time.sleep(3)
        api.post("/contacts", {"email": "later@crowd.example"}).expect(201)
        copied_after = wait_until_copied(api)
        server.stop()
        litestream.stop()
        litestream.restore(tmp_path / "restored.db")
        lags.sort()
        assert not lags or lags[-1] < MAX_LAG_SECONDS, lags[-1]
        p99 = lags[int(len(lags) * 0.99)] if lags else 0.0
        figures.books(books, kills=2, lag_p99=round(p99, 2), place=place, copied_after=round(copied_after, 1))
        figures.note(errors=litestream.output.count("sync error"))
        restored = apsw.Connection(str(tmp_path / "restored.db"))
        original = apsw.Connection(str(server.data / "campanero.db"))
        for table in ("message", "event", "contact", "campaign"):
            query = f"SELECT count(*), sum(id), max(updated_at) FROM {table}"
            query = query.replace(", max(updated_at)", "") if table == "event" else query
            assert restored.execute(query).fetchall() == original.execute(query).fetchall(), litestream.output
        assert restored.execute("SELECT count(*) FROM message WHERE status = 'sent'").fetchall() == [(count,)]
    finally:
        litestream.close()


def test_doctor_reports_a_litestream_that_is_down(fresh_server: FreshServer, tmp_path: Path) -> None:
    """`doctor` fails without Litestream, and the log is shortened all the same once it is long."""
    server = fresh_server(env={"CAMPANERO_LITESTREAM__SOCKET": str(tmp_path / "none.sock")})
    words = server.cli("doctor", expect=1).stdout
    assert "fail  Litestream: does not copy the database" in words
    assert "systemctl status campanero-litestream" in words
