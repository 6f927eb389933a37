"""The write-ahead log beside a writer that never rests."""

from appliance.storage import transactions
from appliance.storage.database import run, scalar
from tests.domain.home import Home


def test_the_log_stays_short_while_much_is_written(home: Home) -> None:
    """However much is written without a pause, the write-ahead log is brought home beside it and begins anew."""
    transactions.start()
    log = home.directory / "campanero.db-wal"
    longest = 0
    for number in range(600):
        transactions.write(
            run,
            "INSERT INTO captured_message (account_id, channel, mail_from, rcpt_to, size, source, received_at) "
            "VALUES (?, 'email', '', '', 0, ?, 0)",
            (home.account_id, bytes([number % 251]) * 100_000),
        )
        longest = max(longest, log.stat().st_size)
    transactions.stop()
    assert scalar("SELECT count(*) FROM captured_message WHERE length(source) = 100000") == 600
    assert longest < 40_000_000, "60 MB were written"
