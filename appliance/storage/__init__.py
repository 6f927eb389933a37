"""The database: opening, migrations, models, and the thread that writes."""
