"""Fair shares in rendering: the account that used the least processor time is next, however many others wait."""

from collections.abc import Collection


class FairShares:
    """The processor time that each account used for rendering, in seconds; used by one thread.

    Who comes back after a rest begins where those who worked meanwhile stand: a rest earns nothing, and what somebody
    used before others came is not held against them for ever.
    """

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._floor = 0.0

    def enter(self, accounts: Collection[int]) -> None:
        """Take in the accounts that have something to render now."""
        self._used = {
            account: used for account, used in self._used.items() if account in accounts or used > self._floor
        }
        for account in accounts:
            self._used[account] = self.used(account)

    def used(self, account: int) -> float:
        """Return where an account stands."""
        return max(self._used.get(account, 0.0), self._floor)

    def next(self, accounts: Collection[int]) -> int:
        """Return the account whose turn it is."""
        account = min(accounts, key=self.used)
        self._floor = self.used(account)
        return account

    def charge(self, account: int, seconds: float) -> None:
        """Count what a turn took."""
        self._used[account] = self.used(account) + seconds
