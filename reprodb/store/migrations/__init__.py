"""The ways up from one schema to the next. A released script is never changed; see docs/database.md."""
