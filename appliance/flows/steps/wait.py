"""Wait: nothing happens for a while, and nothing is kept in memory meanwhile."""

from collections.abc import Sequence
from typing import Any

from appliance.flows.steps.kind import ON, Field, Going, Here, Kind, Move, Node, Reading, wait

MAX_SECONDS = 31_622_400  # a leap year
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


class Wait(Kind):
    """Stay for some seconds."""

    type = "wait"
    label = "Wait"
    icon = "clock"
    claims = keys = frozenset({"duration"})
    fields = (Field("duration", "How long", "duration", required=True, help="In seconds, a year at most."),)

    def parse(self, raw: dict[str, Any], reading: Reading) -> dict[str, Any]:
        """Read a whole number of seconds, up to a year."""
        duration = raw.get("duration")
        if duration is None:
            reading.fault("duration", "can't be blank")
        elif isinstance(duration, bool) or not isinstance(duration, int):
            reading.fault("duration", "is not a number")
        elif duration < 0:
            reading.fault("duration", "must be greater than or equal to 0")
        elif duration > MAX_SECONDS:
            reading.fault("duration", f"must be less than or equal to {MAX_SECONDS}")
        return {"duration": duration}

    def run(self, node: Node, goings: Sequence[Going], here: Here) -> list[Move]:
        """Let each stay for its time from now on, and go on once that is over."""
        until = here.now + node.props["duration"] * 1000
        return [ON if going.passage_id is not None else wait(until) for going in goings]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return how long, in the largest units that are needed."""
        return f"Wait {spoken(props['duration'])}"


def spoken(seconds: int) -> str:
    """Say a duration in words: `3 days 4 hours`."""
    parts = []
    for size, name in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {name}{'s' if number > 1 else ''}")
    return " ".join(parts[:2]) or "no time"
