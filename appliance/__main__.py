"""Where the program begins."""

import sys

from appliance import cli


def main() -> None:
    """Run the command line and leave with its exit code; or the part of an import that runs in a child of its own."""
    if sys.argv[1:] == ["read-import"]:
        from appliance.importing import stage

        sys.exit(stage.main())
    sys.exit(cli.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
