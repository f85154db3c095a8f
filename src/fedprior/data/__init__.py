"""Samples, and which client holds them."""
