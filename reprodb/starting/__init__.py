"""A suite's beginning: files for a repository that has none, and a first manifest for a source."""
