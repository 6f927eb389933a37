"""The background work as a whole: whether it is running."""

from appliance.jobs.tasks import BackgroundWork
from appliance.storage import transactions
from tests.domain.home import Home


def test_background_work_is_running(home: Home) -> None:
    """`is_running` is true from start to stop."""
    transactions.start()
    work = BackgroundWork("process")
    assert not work.is_running()
    work.start()
    assert work.is_running()
    work.stop()
    assert not work.is_running()
    transactions.stop()
