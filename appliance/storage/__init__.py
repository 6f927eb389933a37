"""The database: connections, migrations, models, the writer thread, and the journal of opt-outs."""
