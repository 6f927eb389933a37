"""The entry point of the program: the command lines, and the child processes of the service."""

import gc
import os
import sys

from appliance import remote

# Importing modules creates no garbage, but collecting takes a tenth of the start time. `cli` and `server` enable the
# collector again.
gc.disable()


def main() -> None:
    """Run the command line, or the worker of a child process that `executable` has started."""
    # All files that the program and its libraries create must be private.
    os.umask(0o077)
    if sys.argv[1:] and sys.argv[1] in remote.COMMANDS:
        # Commands for scripts start in a third of the time without the modules of the service.
        from appliance.remote import cli as remote_cli

        sys.exit(remote_cli.run(sys.argv[1:]))
    from appliance.core import executable

    executable.end_with_service()
    if sys.argv[1:] == ["read-import"]:
        gc.enable()
        from appliance.imports import file_reader

        sys.exit(file_reader.main())
    if sys.argv[1:] == ["rehearse"]:
        gc.enable()
        from appliance.campaigns import rehearsal

        sys.exit(rehearsal.main())
    if sys.argv[1:] == ["replay-flow"]:
        gc.enable()
        from appliance.flows import replays

        sys.exit(replays.main())
    if sys.argv[1:] == ["copy-child"]:
        gc.enable()
        from appliance.ops.copy_jobs import child

        sys.exit(child.main())
    if sys.argv[1:] == ["decode-pictures"]:
        gc.enable()
        from appliance.content import picture_worker

        sys.exit(picture_worker.main())
    if sys.argv[1:] == ["sanitize-html"]:
        gc.enable()
        from appliance.content.designs import sanitizer

        sys.exit(sanitizer.main())
    # Imported here, because child processes do not need it and start in a third of the time without it.
    from appliance.ops import cli

    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
