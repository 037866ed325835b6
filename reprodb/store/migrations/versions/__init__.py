"""One script a schema version."""
