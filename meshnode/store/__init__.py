"""SQLite: schema, migrations, one writer, read-only readers; one module per kind of row."""
