"""Where the program begins."""

import gc
import sys

# While modules load nothing becomes garbage, and looking for it is a tenth of the start; `cli` and `server` look again
gc.disable()

from appliance import cli  # noqa: E402 - after the line above, or it would do nothing


def main() -> None:
    """Run the command line and leave with its exit code; or what runs in a child of its own (`children`)."""
    if sys.argv[1:] == ["read-import"]:
        gc.enable()
        from appliance.importing import stage

        sys.exit(stage.main())
    if sys.argv[1:] == ["rehearse"]:
        gc.enable()
        from appliance.campaigns import rehearse

        sys.exit(rehearse.main())
    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
