"""Checkpoints of the write-ahead log while the writer is busy."""

from appliance.storage import transactions
from appliance.storage.database import run, scalar
from tests.domain.home import Home


def test_the_wal_stays_small_during_continuous_writes(home: Home) -> None:
    """Checkpoints keep the write-ahead log below 40 MB while 60 MB are written without a pause."""
    transactions.start()
    log = home.directory / "campanero.db-wal"
    max_size = 0
    for number in range(600):
        transactions.write(
            run,
            "INSERT INTO captured_message (account_id, channel, mail_from, rcpt_to, size, source, received_at) "
            "VALUES (?, 'email', '', '', 0, ?, 0)",
            (home.account_id, bytes([number % 251]) * 100_000),
        )
        max_size = max(max_size, log.stat().st_size)
    transactions.stop()
    assert scalar("SELECT count(*) FROM captured_message WHERE length(source) = 100000") == 600
    assert max_size < 40_000_000, "60 MB were written"
