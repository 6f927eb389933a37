"""The work beside requests as a whole: it says whether it is done."""

from appliance.jobs.consumer import BackgroundWork
from appliance.storage import transactions
from tests.domain.home import Home


def test_it_says_whether_it_runs(home: Home) -> None:
    """It runs from its start to its end, and not with a pulse that is gone."""
    transactions.start()
    works = BackgroundWork("process")
    assert not works.is_running()
    works.start()
    assert works.is_running()
    works.stop()
    assert not works.is_running()
    transactions.stop()
