"""A run's records: what was run, what came out, and how to go on. Bytes on disk; knows nothing of learning."""
