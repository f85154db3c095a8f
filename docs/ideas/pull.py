# %% [markdown]
# # A prior as a pull
#
# A client has a few samples and wants to estimate something; others have estimated the same thing for themselves. Before it
# looks at its own samples, the client believes that its answer lies near the others' answer $w$. That belief is a *prior*.
# In training it acts as a pull: instead of its loss $f(\theta)$ alone the client minimises
#
# $$
# f(\theta) + \frac{\lambda}{2} \|\theta - w\|^2 .
# $$
#
# With $\lambda = 0$ nothing pulls, and the client trains alone. With a very large $\lambda$ it takes over $w$ as it is.

# %%
import numpy as np

rng = np.random.default_rng(0)
# A client's samples, their noise, and how far the clients' true answers lie apart
n, sigma, tau = 5, 1.0, 0.5
w = np.zeros(2)
truth = w + tau * rng.normal(size=(2000, 2))  # two thousand clients, so that averages are smooth
mean = truth + sigma / np.sqrt(n) * rng.normal(size=(2000, 2))  # what each client's own samples say


def pulled(mean: np.ndarray, lam: float) -> np.ndarray:
    """The minimum of n / 2 |theta - mean|^2 + lam / 2 |theta - w|^2."""
    return (n * mean + lam * w) / (n + lam)


# %% [markdown]
# For an average of samples the minimum has a closed form: a point on the line from the client's own mean to $w$. How far it goes is
# a matter of $\lambda$ against the number of samples $n$. The more samples, the weaker the same pull.
#
# Is it worth being pulled? Measured by the squared distance to the truth, averaged over clients:

# %% mystnb={"image": {"alt": "Left: for twelve clients, the path of the estimate from the client's own mean towards the common point as lambda grows, with the truth marked; many paths pass near it. Right: the squared error against lambda, high on the left where a client is alone, high on the right where all take the common point, and lowest at lambda = 4."}} tags=["hide-input"]
from fedprior.report.canvas import COLORS, INK, new_figure

lams = np.geomspace(0.05, 300, 60)
errors = [np.mean(np.sum((pulled(mean, lam) - truth) ** 2, axis=1)) for lam in lams]
best = sigma**2 / tau**2
figure = new_figure(9, 3.8)
left, right = figure.subplots(1, 2)
for i in range(12):
    path = np.array([pulled(mean[i], lam) for lam in (0, *lams)])
    left.plot(*path.T, color=COLORS[i % 8], linewidth=1)
    left.plot(*mean[i], "o", color=COLORS[i % 8], markersize=5)
    left.plot(*truth[i], "x", color=COLORS[i % 8], markersize=6)
left.plot(*w, "s", color=INK, markersize=8)
left.set_title("dot: own mean; cross: truth; square: w", fontsize=10)
left.set_aspect("equal")
right.semilogx(lams, errors, color=COLORS[0], linewidth=2)
right.axvline(best, color=INK, linestyle="--", linewidth=1)
right.annotate("σ² / τ²", (best, max(errors)), xytext=(5, 0), textcoords="offset points", va="top", color=INK)
right.axhline(np.mean(np.sum((mean - truth) ** 2, axis=1)), color=COLORS[1], linewidth=1)
right.annotate("alone", (lams[0], errors[0]), xytext=(0, 12), textcoords="offset points", color=COLORS[1])
right.set(xlabel="λ", ylabel="squared error, mean over clients")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# The best pull is $\lambda = \sigma^2 / \tau^2$, the noise of a sample against how different the clients are: that is what Bayes' rule says for
# Gaussians. If clients are alike ($\tau$ small), be pulled hard; if they differ, hardly at all. Nobody is told $\tau$ in practice, so $\lambda$ is
# chosen on validation samples: [choose a setting](../gallery/choose_a_setting.py).
#
# The same happens with real models. Ditto trains a personal model with this very pull towards FedAvg's global model; `lam` is its strength:

# %%
import fedprior as fp

rows = {f"lam = {lam:g}": {"method": "ditto", "lam": lam} for lam in (0.01, 1.0, 10.0)}
results = fp.Study("digits-mclr", rows, rounds=40, eval_every=40).run()
for name in ("local", *rows):
    print(f"{name}: {results[name][0].accuracy():.1f} %")

# %% [markdown]
# pFedMe pulls towards a local copy of the global model, and moves that copy after the personal one; pFedBreD also chooses *where*
# the pull leads (the prior's mean) and how distance is measured (its family). The [method cards](../cards/index.md) have the formulas.
