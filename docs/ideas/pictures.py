# %% [markdown]
# # Personalization in pictures
#
# Five clients want to tell circles from triangles by two measurements. Each has only sixteen examples. For the first three the
# border between the two kinds runs one way, for the other two it runs another way, and nobody knows that beforehand.
#
# Three answers are possible, and each is a row of the picture below: train alone, train one model together, or train
# a model of your own that is drawn towards the common one.

# %%
import equinox as eqx
import numpy as np

import fedprior as fp

rng = np.random.default_rng(3)
angles = np.deg2rad([20, 30, 25, 80, 85])  # of each client's true border
n_train, n_test = 16, 200


def samples(angle: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane and on which side of the border they lie; one in ten has the wrong label."""
    x = rng.normal(size=(n, 2))
    side = x @ [-np.sin(angle), np.cos(angle)] > 0
    return x, np.where(rng.random(n) < 0.1, ~side, side).astype(int)


parts = [samples(angle, n_train + n_test) for angle in angles]
x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
client = np.repeat(np.arange(5), n_train + n_test)
is_test = np.tile(np.arange(n_train + n_test) >= n_train, 5)

task = fp.task_from_arrays(
    x, y, client, lambda key: eqx.nn.Linear(2, 2, key=key), is_test=is_test, rounds=60, batch=16, eval_every=60
)
results = fp.Study(task, {"fedavg": {}, "ditto": {"lam": 0.3}}, alpha=0.3).run()

# %% [markdown]
# The dashed line is the client's true border, which it does not know; the solid line is what its model learnt, and the number
# is the part of 200 new examples that it gets right (one in ten is mislabelled, so that nobody can reach much more than 90 %).

# %% mystnb={"image": {"alt": "Three rows of five panels. In each panel a client's sixteen points, its true border and the border that its model learnt. Local's borders are tilted at random, FedAvg's is the same everywhere and right for the first three clients only, and Ditto's personal borders follow each client's own."}} tags=["hide-input"]
from fedprior.report.canvas import COLORS, INK, new_figure

names = {"local": "alone (Local)", "fedavg": "one for all (FedAvg)", "ditto": "drawn to it (Ditto)"}
figure = new_figure(9, 6)
panels = figure.subplots(3, 5, sharex=True, sharey=True)
for row, (name, told) in enumerate(names.items()):
    run = results[name][0]
    right = {each.client: each.values["accuracy"] for each in run.record.clients if each[1:3] == ("personal", "own")}
    for i, axes in enumerate(panels[row]):
        _, (model,) = run.personal_model(i)
        mine = (client == i) & ~is_test
        for k, marker in enumerate("o^"):
            axes.plot(*x[mine & (y == k)].T, marker, color=COLORS[k], markersize=5)
        t = np.linspace(-3, 3, 2)
        axes.plot(t * np.cos(angles[i]), t * np.sin(angles[i]), "--", color=INK, linewidth=1)
        (a, b), c = np.asarray(model.weight[1] - model.weight[0]), float(model.bias[1] - model.bias[0])
        along = np.array([-b, a]) / np.hypot(a, b)
        foot = -c * np.array([a, b]) / (a * a + b * b)
        axes.plot(*(foot[:, None] + along[:, None] * t), color=INK, linewidth=2)
        axes.set(xlim=(-2.4, 2.4), ylim=(-2.4, 2.4), xticks=[], yticks=[], aspect="equal")
        axes.set_title(f"{right[i]:.0f} %", fontsize=10)
        if row == 2:
            axes.set_xlabel(f"client {i}")
    panels[row, 0].set_ylabel(told, fontsize=9)
figure

# %% [markdown]
# **Alone**, a client is misled by the accidents of sixteen examples. **One model for all** has eighty examples to learn from, but
# must please clients who disagree: it suits the larger group. **Drawn to the common one**, a client's own examples decide what
# they can decide, and the others fill in the rest.

# %%
for name, told in names.items():
    run = results[name][0]
    print(
        f"{told}: {run.accuracy(average='mean'):.1f} % on average, worst client {run.accuracy(average='worst_decile'):.1f} %"
    )

# %% [markdown]
# Change `n_train` to 100 and run it again: alone is then as good as anything. Set all `angles` to the same number: one for all
# is then the best. Personalization is for what lies between. The next notebooks look at each of these in turn.
