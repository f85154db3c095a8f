"""Records in, numbers out: numpy and scipy only, and never an engine."""
