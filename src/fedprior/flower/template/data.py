"""This site's own samples. They are read here, on the site, and never leave it."""

from fedprior.flower import samples_from_file


def load(node_config):
    """Return (x, y), or (x, y, is_test) if the site knows which samples are for testing.

    ``node_config`` is what the site's SuperNode was started with: --node-config 'data="/srv/visits.csv"'. Any arrays will do:
    x of the shape and y with the classes that task.toml names.
    """
    return samples_from_file(node_config["data"], label="diagnosis", features=["age", "pressure"])
