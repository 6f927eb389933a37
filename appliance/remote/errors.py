"""How a command ends: its exit code and the line on stderr."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from campanero_client.errors import ApiError

DONE = 0
REFUSED = 1  # the service refused the request, or the requested work failed
WRONG_USAGE = 2  # the command line, or a file that it names
UNREACHABLE = 3
NOT_ALLOWED = 4  # not signed in, an invalid key, or a key without the scope
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
CLOSED_OUTPUT = 141  # 128 + SIGPIPE


class CommandError(Exception):
    """The end of a command with an exit code. The message has one or more lines; it may contain untrusted text."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    """A wrong argument, or a file that cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, WRONG_USAGE)


class ServiceError(CommandError):
    """An error response, or a redirect. The message has a line for each invalid field and each blocker.

    `response` is the ApiError of the client. The exit code is NOT_ALLOWED for the statuses 401 and 403, else REFUSED.
    """

    def __init__(self, error: "ApiError", url: str) -> None:
        self.response = error
        lines = [error.message]
        fields = error.fields if isinstance(error.fields, dict) else {}
        for name, messages in fields.items():
            text = ", ".join(map(str, messages if isinstance(messages, list) else [messages]))
            if f"{name} {text}" not in error.message:
                lines.append(f"{name}: {text}")
        blockers = error.body.get("blockers")
        for blocker in blockers if isinstance(blockers, list) else []:
            if isinstance(blocker, dict):
                lines.append(f"{blocker.get('code')}: {blocker.get('message')}")
        if isinstance(error.body.get("hint"), str):
            lines.append(error.body["hint"])
        if 300 <= error.status < 400:
            lines = [f"{url} redirects to {error.headers.get('location')}: sign in with the address of the service"]
        elif not error.body:
            lines.append(f"This is not a response of Campanero: is {url} the right address?")
        super().__init__("\n".join(lines), NOT_ALLOWED if error.status in (401, 403) else REFUSED)
