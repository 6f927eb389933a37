"""Where the program begins."""

import gc
import os
import sys

# While modules load nothing becomes garbage, and looking for it is a tenth of the start; `cli` and `server` look again
gc.disable()


def main() -> None:
    """Run the command line and leave with its exit code; or what runs in a child of its own (`children`)."""
    # Whatever the program makes is its user's alone, also what libraries make
    os.umask(0o077)
    if sys.argv[1:] == ["read-import"]:
        gc.enable()
        from appliance.imports import stage

        sys.exit(stage.main())
    if sys.argv[1:] == ["rehearse"]:
        gc.enable()
        from appliance.campaigns import rehearse

        sys.exit(rehearse.main())
    if sys.argv[1:] == ["decode-pictures"]:
        gc.enable()
        from appliance.content.pictures import worker

        sys.exit(worker.main())
    # Not above: a child needs none of it, and starts in a third of the time
    from appliance import app
    from appliance.ops import cli

    app.connect_signals()
    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
