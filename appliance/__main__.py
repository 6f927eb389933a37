"""Where the program begins."""

import sys

from appliance import cli


def main() -> None:
    """Run the command line and leave with its exit code; or what runs in a child of its own (`children`)."""
    if sys.argv[1:] == ["read-import"]:
        from appliance.importing import stage

        sys.exit(stage.main())
    if sys.argv[1:] == ["rehearse"]:
        from appliance.campaigns import rehearse

        sys.exit(rehearse.main())
    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
