"""What is told of a service, as `campanero status --json` prints it."""

from msgspec import Struct


class Task(Struct):
    """Something that is under way: how much of how much is done, how fast it goes, and how long it still takes.

    `state` is one word; `words` says more where there is more to say. Null is what cannot be known yet.
    """

    kind: str  # send, import, export, act
    id: int | None
    account_id: int
    name: str
    state: str
    words: str
    done: int
    total: int | None
    per_second: float | None
    left_seconds: float | None


class Queue(Struct):
    """What waits in a channel, and how many left in the last minute."""

    channel: str
    due: int
    later: int
    paused: int
    in_hand: int
    oldest_due_seconds: float
    last_minute: int


class Day(Struct):
    """What happened in a channel since midnight."""

    channel: str
    sent: int
    delivered: int
    bounced: int
    failed: int
    complained: int
    opened: int
    clicked: int
    unsubscribed: int


class Storage(Struct):
    """How large it all is, and how much room there is."""

    database_bytes: int
    wal_bytes: int
    free_bytes: int
    least_free_bytes: int


class Service(Struct):
    """Whether the service runs, and what it says of itself: ready, or what it lacks."""

    running: bool
    process: int | None
    listen: str
    state: str


class Status(Struct):
    """All of it, at one moment."""

    version: str
    at: str
    data_dir: str
    service: Service
    stopped: list[str]
    tasks: list[Task]
    queue: list[Queue]
    since: str
    today: list[Day]
    storage: Storage
