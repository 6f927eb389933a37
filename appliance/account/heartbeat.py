"""A row that is written to know that rows can be written."""

from appliance import clock
from appliance.db.open import run
from appliance.db.work import writing


def beat() -> None:
    """Write the time; raises what writing raises."""
    writing()
    run(
        "INSERT INTO setting (name, value, updated_at) VALUES ('heartbeat', '\"\"', ?1) "
        "ON CONFLICT (name) DO UPDATE SET updated_at = ?1",
        (clock.now_ms(),),
    )
