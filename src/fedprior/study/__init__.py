"""Tasks, variants and seeds: planned, run, resumed, extended, tabulated and drawn."""
