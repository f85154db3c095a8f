"""Records in, numbers and pictures out."""
