"""Runs methods on a federation: rounds, placement on devices, selection, evaluation, cost."""
