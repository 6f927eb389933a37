"""Move the clock of a server under test through the file with its offset."""

import time
from pathlib import Path


class TestClock:
    """Writes an offset in seconds to a file; a server with `CAMPANERO_TEST_CLOCK` applies it at once."""

    __test__ = False  # pytest would collect the class because its name begins with Test

    def __init__(self, path: Path):
        self.path = path
        self.set(0)

    @property
    def offset(self) -> float:
        """Return the seconds that this clock is ahead of the machine's clock."""
        return float(self.path.read_text(encoding="ascii"))

    def set(self, offset: float) -> None:
        """Set the seconds ahead; negative values move the clock behind the machine's clock."""
        # A reader must never see a half-written number.
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{offset!r}", encoding="ascii")
        fresh.replace(self.path)

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the clock forward; negative values move it back."""
        self.set(self.offset + seconds + 60 * minutes + 3600 * hours + 86400 * days)

    def now(self) -> float:
        """Return the time this clock shows, in seconds since 1970."""
        return time.time() + self.offset

    def now_ms(self) -> int:
        """Return the time this clock shows, in milliseconds since 1970."""
        return int(self.now() * 1000)
