"""Background work: sending, the job queue, housekeeping."""
