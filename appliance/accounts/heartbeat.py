"""A row that is written to know that rows can be written."""

from appliance.core import clock
from appliance.storage.open import run
from appliance.storage.work import writing


def beat() -> None:
    """Write the time; raises what writing raises."""
    writing()
    run(
        "INSERT INTO setting (name, value, updated_at) VALUES ('heartbeat', '\"\"', ?1) "
        "ON CONFLICT (name) DO UPDATE SET updated_at = ?1",
        (clock.now_ms(),),
    )
