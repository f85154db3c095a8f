"""Priors on a client's personal model: generators, divergences and means."""
