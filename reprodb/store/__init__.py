"""The database: SQLAlchemy tables, migrations, queries and bundles. Only dataclasses leave it."""
