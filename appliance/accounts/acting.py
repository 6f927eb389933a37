"""Who does something: told by the doors to whatever has to record it, or asks whether they may."""

from typing import NamedTuple


class By(NamedTuple):
    """Who acts: for the audit, for consent, and for what needs a right of its own."""

    actor: str = "system"  # `user:7`, `key:3`, `cli`, `system`
    ip: str | None = None
    user_id: int | None = None  # None where no person is at it
    approves: bool = False  # whether they may approve of campaigns and flows (docs/decisions.md#2)
    test: bool = False  # whether all they do is a test
    sends: bool = False  # whether they may let campaigns and flows go out
    made_by: int | None = None  # of a key: the person who made it

    @property
    def person_id(self) -> int | None:
        """Whose word it is: theirs, or that of whoever made the key; None for what was made on the machine."""
        return self.made_by if self.user_id is None else self.user_id
