# %% [markdown]
# # Your own arrays and your own model
#
# Three arrays are a federation: the samples, their labels, and who holds each of them. The model is any Equinox module. Here
# eight sites measure the same three kinds of things, but each site's instrument reads a little differently.

# %%
import equinox as eqx
import numpy as np

import fedprior as fp

rng = np.random.default_rng(0)
n_sites, n = 8, 60
site = np.repeat(np.arange(n_sites), n)
kind = rng.integers(0, 3, n_sites * n)
centre = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
shift = rng.normal(size=(n_sites, 2)) * 2  # how each site's instrument is off
x = centre[kind] + shift[site] + rng.normal(size=(n_sites * n, 2)) * 0.7

task = fp.task_from_arrays(
    x, kind, site, lambda key: eqx.nn.MLP(2, 3, 16, 1, key=key), rounds=60, aggregated=4, batch=15, eval_every=60
)
results = fp.Study(task, ["fedavg", "ditto"], alpha=0.1).run()
results

# %% [markdown]
# One model cannot serve instruments that disagree. Local, with 45 training samples of an easy task, needs nobody's help: see
# [why it is hard to beat](../ideas/local.py). What FedAvg's one model says, and what the personal model of a site says of the same
# plane:

# %% mystnb={"image": {"alt": "Two panels of the plane of measurements, coloured by the class that a model predicts, with the samples of site 6 on top. FedAvg's regions cut through the site's samples; the regions of the site's own model separate them."}} tags=["hide-input"]
import jax

from fedprior.report.canvas import COLORS, new_figure

run_of = {row: results[row][0] for row in ("fedavg", "ditto")}
models = {
    "FedAvg: one model for all": run_of["fedavg"].global_model(),
    "Ditto: the model of site 6": run_of["ditto"].personal_model(6)[1][0],
}
low, high = x.min(0) - 0.5, x.max(0) + 0.5
grid = np.stack(np.meshgrid(np.linspace(low[0], high[0], 120), np.linspace(low[1], high[1], 120)), axis=-1)
figure = new_figure(8, 3.8)
for axes, (title, model) in zip(figure.subplots(1, 2, sharey=True), models.items(), strict=True):
    says = np.asarray(jax.vmap(jax.vmap(model))(grid.astype(np.float32))).argmax(-1)
    axes.contourf(grid[..., 0], grid[..., 1], says, levels=[-0.5, 0.5, 1.5, 2.5], colors=COLORS[:3], alpha=0.25)
    for k in range(3):
        axes.plot(*x[(site == 6) & (kind == k)].T, "o", color=COLORS[k], markersize=4)
    axes.set_title(title, fontsize=10)
figure
