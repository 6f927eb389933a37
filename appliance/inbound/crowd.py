"""Who brings mail at the same time: so many in all, and so many of one address."""

from collections import Counter

MAX_CONNECTIONS, MAX_OF_ONE = 100, 5


class Crowd:
    """Who is connected, in all and from each address."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count one more; False where that is one too many."""
        if self._of.total() >= MAX_CONNECTIONS or self._of[address] >= MAX_OF_ONE:
            return False
        self._of[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count one less."""
        self._of[address] -= 1
        if self._of[address] <= 0:
            del self._of[address]

    @property
    def size(self) -> int:
        """How many are connected."""
        return self._of.total()
