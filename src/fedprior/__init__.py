"""Personalized federated learning with personalized priors: pFedBreD and the methods it is compared with."""

from importlib.metadata import version as _version

from fedprior.devices import configure as _configure

_configure()  # one host device per core: must happen before JAX starts

from fedprior.engine import Engine as Engine  # noqa: E402
from fedprior.errors import FedpriorError as FedpriorError  # noqa: E402
from fedprior.evaluate import Evaluator as Evaluator  # noqa: E402
from fedprior.experiment import Experiment as Experiment  # noqa: E402
from fedprior.experiment import Task as Task  # noqa: E402
from fedprior.experiment import configure as _experiment  # noqa: E402
from fedprior.experiment import open_task as open_task  # noqa: E402
from fedprior.experiment import task_from_arrays as task_from_arrays  # noqa: E402
from fedprior.method import Method as Method  # noqa: E402
from fedprior.methods import make as make  # noqa: E402
from fedprior.methods import register as register  # noqa: E402
from fedprior.run import Result as Result  # noqa: E402
from fedprior.run import run as run  # noqa: E402

__version__ = _version("fedprior")


def task(name: str, **settings: object) -> Task:
    """Load a shipped task or a TOML file by name, with settings changed by keyword.

    >>> task("digits-mclr", rounds=5).federation.n_clients
    20
    """
    return open_task(_experiment(name, [], settings)[0])
