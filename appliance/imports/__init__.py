"""Import contacts and suppressions from files: check, apply, report and undo."""
