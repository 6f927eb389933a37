"""Declare the settings of the log, and of the notice of newer versions."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Updates(Struct, frozen=True):
    """The notice of a newer version."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^(https?://\S+)?$",
            description='URL of the latest release as JSON (GitHub or Forgejo: …/releases/latest); "" = never asked',
        ),
    ] = ""


class Log(Struct, frozen=True):
    """The log: its level and format, and a file that is used instead of stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="minimum level")] = "info"
    format: Annotated[Literal["text", "json"], Meta(description="text for people, json for machines")] = "text"
    file: Annotated[
        str,
        Meta(
            pattern=r"^(.*\.log)?$",
            description='log file NAME.log, in the data directory unless it begins with /; "" = stderr',
        ),
    ] = ""
    file_mb: Annotated[float, Meta(ge=0.1, description="size at which the file is rotated to FILE.1")] = 10
    files: Annotated[int, Meta(ge=1, le=1000, description="number of rotated files that are kept")] = 5
