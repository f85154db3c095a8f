"""Pictures of records. Each function returns the figure, or saves it whole or not at all where a path is given."""

from fedprior.report.differences import client_differences
from fedprior.report.learning import learning_curves
from fedprior.report.sweeps import sweep_picture

__all__ = ["client_differences", "learning_curves", "sweep_picture"]
