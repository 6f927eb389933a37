"""The entry point of the program."""

import gc
import os
import sys

# Nothing becomes garbage while modules load, and collecting is a tenth of the start; `cli` and `server` enable it.
gc.disable()


def main() -> None:
    """Run the command line, or a child process of the service (`executable.run_child`)."""
    # All files that the program and its libraries create are private.
    os.umask(0o077)
    if sys.argv[1:] == ["read-import"]:
        gc.enable()
        from appliance.imports import file_reader

        sys.exit(file_reader.main())
    if sys.argv[1:] == ["rehearse"]:
        gc.enable()
        from appliance.campaigns import rehearsal

        sys.exit(rehearsal.main())
    if sys.argv[1:] == ["decode-pictures"]:
        gc.enable()
        from appliance.content.pictures import worker

        sys.exit(worker.main())
    # Imported here, because a child needs none of it and starts in a third of the time.
    from appliance.ops import cli

    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
