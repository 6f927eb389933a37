"""How a command ends: its exit code and the line on stderr."""

DONE = 0
REFUSED = 1  # the service refused the request, or what was asked for failed
WRONG_USAGE = 2  # the command line, or a file that it names
UNREACHABLE = 3
NOT_ALLOWED = 4  # not signed in, an invalid key, or a key without the scope
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
CLOSED_OUTPUT = 141  # 128 + SIGPIPE


class CommandError(Exception):
    """The end of a command with an exit code. The message has one line or more; it may contain text of strangers."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    """A wrong argument, or a file that cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, WRONG_USAGE)
