"""The paper's two theorems seen in numbers, on problems whose answer is known.

- rate: the error of the theorem's weighted average iterate against the number of rounds T, with S < N and S = N;
- radius: how far the personal models are from the optimal global one, against lambda;
- step: Theorem 1's bound on the step size, and what happens below and above it.

The problems are federated quadratics (every quantity in closed form) and ridge-regularised logistic regression (the optimum
found numerically), run by the same engine and method as everything else. In all of them the prior is the spherical
Gaussian and the mean the identity, so that F_i is the Moreau envelope of f_i and sigma_Phi = gamma_Phi = 0.

One thing differs from the paper before anything is run: its Assumption "strongly convex envelope settings" takes F_i to be
(lam + mu_f)-strongly convex. That is the modulus of the proximal *objective* x -> f_i(x) + lam/2 ||x - mu||^2; the envelope
itself has modulus lam mu_f / (lam + mu_f), which is below mu_f for every lambda. The tables give both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure
from scipy import optimize, stats

from fedprior.analysis.figures import COLORS, save
from fedprior.data.clients import Federation, Samples
from fedprior.engine import Engine
from fedprior.method import Batch, Problem
from fedprior.methods import make
from fedprior.vectors import Vector

N, D, R = 20, 4, 2


class RidgeQuadratic(Problem):
    """f(w) = mean of 1/2 sum_d h_d (w_d - c_d)^2; a sample is its centre and its curvature side by side."""

    def init(self, key: Array) -> Vector:
        """Start away from the optimum."""
        return Vector(jnp.full((D,), 1.0))

    def losses(self, w: Vector, batch: Batch) -> Array:
        """One value per sample."""
        c, h = batch.x[:, :D], batch.x[:, D:]
        return 0.5 * jnp.sum(h * (w.tree - c) ** 2, axis=1)


class RidgeLogistic(Problem):
    """f(w) = mean of log(1 + exp(-y <a, w>)) + ridge/2 ||w||^2, labels y in {0, 1} read as -1, 1."""

    ridge: float = eqx.field(static=True, default=0.1)

    def init(self, key: Array) -> Vector:
        """Start away from the optimum."""
        return Vector(jnp.full((D,), 1.0))

    def losses(self, w: Vector, batch: Batch) -> Array:
        """One value per sample."""
        margin = (2 * batch.y - 1) * (batch.x @ w.tree)
        return jax.nn.softplus(-margin) + 0.5 * self.ridge * jnp.sum(w.tree**2)


@dataclass(frozen=True)
class Setting:
    """A federation with a known answer for one lambda."""

    name: str
    problem: Problem
    federation: Federation
    lam: float
    mu_f: float  # strong convexity of every f_i
    l_f: float  # smoothness of every f_i
    best: np.ndarray  # w*
    gap: Callable[[np.ndarray], float]  # D_F(w, w*) = F(w) - F(w*)
    batch: int

    @property
    def mu_envelope(self) -> float:
        """The envelope's strong convexity: lam mu_f / (lam + mu_f)."""
        return self.lam * self.mu_f / (self.lam + self.mu_f)

    @property
    def l_envelope(self) -> float:
        """The envelope's smoothness: lam L_f / (lam + L_f)."""
        return self.lam * self.l_f / (self.lam + self.l_f)

    def sigma(self) -> float:
        """sigma_{F,*}: the largest client gradient of F at w*."""
        return max(float(np.linalg.norm(self.slope(i, self.best))) for i in range(N))

    def slope(self, i: int, w: np.ndarray) -> np.ndarray:
        """grad F_i(w) = lam (w - prox_i(w))."""
        return self.lam * (w - self.prox(i, w))

    def prox(self, i: int, w: np.ndarray) -> np.ndarray:
        """Client i's proximal point on all of its samples."""
        return _prox(self.problem, self.federation, i, w, self.lam)


def _all_of(federation: Federation, i: int) -> Batch:
    x, y, start, size = (np.asarray(a) for a in federation.train)
    mine = slice(int(start[i]), int(start[i]) + int(size[i]))
    return Batch(jnp.asarray(x[mine]), jnp.asarray(y[mine]), jnp.ones(int(size[i])))


def _prox(problem: Problem, federation: Federation, i: int, w: np.ndarray, lam: float) -> np.ndarray:
    batch = _all_of(federation, i)
    value = jax.value_and_grad(lambda x: problem.loss(Vector(x), batch) + 0.5 * lam * jnp.sum((x - w) ** 2))
    found = optimize.minimize(
        lambda x: tuple(np.asarray(a, float) for a in value(jnp.asarray(x))), w, jac=True, tol=1e-14
    )
    return np.asarray(found.x)


def _federate(x: np.ndarray, y: np.ndarray, per_client: int) -> Federation:
    size = np.full(N, per_client, np.int32)
    samples = Samples(x, y.astype(np.int32), (np.cumsum(size) - size).astype(np.int32), size)
    return Federation(samples, samples, None, 2, "theory")


def quadratic(lam: float, noise: float = 0.0, per_client: int = 8, seed: int = 0) -> Setting:
    """Clients with their own centres and curvatures in [0.5, 2]; ``noise`` scatters a client's samples."""
    rng = np.random.default_rng(seed)
    centres, h = rng.normal(size=(N, D)), rng.uniform(0.5, 2.0, (N, D))
    scatter = rng.normal(size=(N, per_client, D)) * noise
    scatter -= scatter.mean(1, keepdims=True)  # the client's own optimum stays where it was
    c = (centres[:, None] + scatter).reshape(-1, D)
    x = np.concatenate([c, np.repeat(h, per_client, 0)], 1)
    envelope = h * lam / (h + lam)  # F_i(w) = 1/2 sum_d envelope_d (w_d - c_d)^2 + const
    best = (envelope * centres).sum(0) / envelope.sum(0)
    curve = envelope.mean(0)
    return Setting(
        "quadratic", RidgeQuadratic(), _federate(x, np.zeros(len(x)), per_client), lam, 0.5, 2.0, best,
        lambda w: float(0.5 * curve @ (w - best) ** 2), per_client,
    )  # fmt: skip


def logistic(lam: float, per_client: int = 32, seed: int = 0) -> Setting:
    """Clients whose labels follow weights of their own; w* found by BFGS on the envelope."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(N * per_client, D))
    truth = np.repeat(rng.normal(size=(N, D)), per_client, 0)
    y = (rng.uniform(size=len(a)) < 1 / (1 + np.exp(-(a * truth).sum(1)))).astype(np.int32)
    problem, federation = RidgeLogistic(), _federate(a, y, per_client)
    batches = [_all_of(federation, i) for i in range(N)]

    @jax.jit
    def envelope(w: Array) -> tuple[Array, Array]:
        """F(w) and its gradient, with every proximal point solved by Newton's method."""

        def one(x: Array, y: Array) -> tuple[Array, Array]:
            batch = Batch(x, y, jnp.ones(per_client))

            def objective(t: Array) -> Array:
                return problem.loss(Vector(t), batch) + 0.5 * lam * jnp.sum((t - w) ** 2)

            def newton(_: int, t: Array) -> Array:
                return t - jnp.linalg.solve(jax.hessian(objective)(t), jax.grad(objective)(t))

            theta = jax.lax.fori_loop(0, 12, newton, w)
            return objective(theta), lam * (w - theta)

        values, slopes = jax.vmap(one)(jnp.stack([b.x for b in batches]), jnp.stack([b.y for b in batches]))
        return values.mean(), slopes.mean(0)

    found = optimize.minimize(
        lambda w: tuple(np.asarray(v, float) for v in envelope(jnp.asarray(w))), np.zeros(D), jac=True, tol=1e-14
    )
    smooth = max(float(np.linalg.eigvalsh(np.asarray(b.x).T @ np.asarray(b.x) / (4 * per_client))[-1]) for b in batches)
    least = float(envelope(jnp.asarray(found.x))[0])
    return Setting(
        "logistic", problem, federation, lam, problem.ridge, problem.ridge + smooth, np.asarray(found.x),
        lambda w: float(envelope(jnp.asarray(w))[0]) - least, per_client,
    )  # fmt: skip


def trajectory(
    setting: Setting, step: float, rounds: int, aggregated: int, seed: int, local: int = R, K: int = 200
) -> np.ndarray:
    """The global models w^(0..T) with alpha_m beta R = step, beta = 1, and proximal points solved to 1e-10."""
    method = make(
        "pfedbred", mean="identity", R=local, K=K, tol=1e-10, lam=setting.lam, alpha_m=step / local,
        alpha=1.0 / (setting.lam + setting.l_f),
    )  # fmt: skip
    engine = Engine(setting.problem, method, setting.federation, batch_size=setting.batch, aggregated=aggregated)
    state = engine.init(seed)
    path = [np.array(state.server.tree)]
    for _ in range(rounds):
        state, _ = engine.step(state)
        path.append(np.array(state.server.tree))
    return np.array(path)


def average(path: np.ndarray, step: float, modulus: float) -> np.ndarray:
    """The theorem's iterate: weights (1 - step modulus / 2)^-(t+1) on w^(t), t < T."""
    t = len(path) - 1
    log_weights = -(np.arange(t) + 1) * np.log1p(-step * modulus / 2)
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights @ path[:-1] / weights.sum())


def slope_of(x: Iterable[float], y: Iterable[float]) -> tuple[float, float]:
    """Slope of log y against log x, and half the width of its 95 % interval."""
    lx, ly = np.log(np.asarray(list(x))), np.log(np.asarray(list(y)))
    fit = stats.linregress(lx, ly)
    return float(fit.slope), float(stats.t.ppf(0.975, len(lx) - 2) * fit.stderr)


Table = list[dict[str, Any]]


def rate(rounds: Iterable[int] = (200, 300, 450, 700, 1000, 1500), seeds: int = 5) -> Table:
    """(a) Error of the average iterate against T, the step chosen per T: (2 / mu_F) log(T^2) / T, at most 1 / (2 L_F).

    The proof only asks for step >= 2 / (mu_F T); with equality its first term would not fall at all, so the logarithm
    makes it fall like 1 / T^2.
    """
    table: Table = []
    for make_setting in (quadratic, logistic):
        setting = make_setting(lam=2.0)
        for aggregated in (N // 4, N):
            for t in rounds:
                step = min(2 / setting.mu_envelope * np.log(t**2) / t, 1 / (2 * setting.l_envelope))
                errors = [
                    setting.gap(average(trajectory(setting, step, t, aggregated, seed), step, setting.mu_envelope))
                    for seed in range(seeds if aggregated < N else 1)  # with S = N and whole batches nothing is random
                ]
                table.append(
                    {
                        "problem": setting.name,
                        "S": aggregated,
                        "T": t,
                        "step": float(step),
                        "error": float(np.mean(errors)),
                        "std": float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0,
                    }
                )
    return table


def slopes(rates: Table) -> list[tuple[str, int, float, float]]:
    """(problem, S, slope of log error against log T, half of its 95 % interval) for each curve of ``rate``."""
    curves = sorted({(str(r["problem"]), int(r["S"])) for r in rates})
    rows = {c: [r for r in rates if (r["problem"], r["S"]) == c] for c in curves}
    return [(*c, *slope_of([float(r["T"]) for r in rows[c]], [float(r["error"]) for r in rows[c]])) for c in curves]


def radius(lams: Iterable[float] = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000), K: int = 5, seed: int = 0) -> Table:
    """(b) Mean squared distance of the personal models from w* against lambda: exact, and with K noisy steps.

    Personal models are taken at w*, so that nothing but personalization counts. The noisy ones use batches of 2 of a
    client's 8 scattered samples and K gradient steps, as in practice: the local errors gamma_f and epsilon of the theorem.
    """
    table: Table = []
    for lam in lams:
        clean, noisy = quadratic(lam), quadratic(lam, noise=1.0)
        exact = np.mean([np.sum((clean.prox(i, clean.best) - clean.best) ** 2) for i in range(N)])
        method = make("pfedme", R=20, K=K, lam=lam, alpha=0.5 / (lam + noisy.l_f), alpha_m=0.0, start="theta")
        engine = Engine(noisy.problem, method, noisy.federation, batch_size=2)
        state = engine.init(seed)
        start = jnp.asarray(noisy.best)
        state = state._replace(
            server=jax.device_put(Vector(start), engine.fleet.same),
            clients=jax.device_put(Vector(jnp.broadcast_to(start, state.clients.tree.shape)), engine.fleet.split),
        )
        distances = []
        for _ in range(30):
            state, _ = engine.step(state)
            distances.append(np.mean(np.sum((np.array(state.clients.tree)[:N] - noisy.best) ** 2, 1)))
        predicted = 4 / lam**2 * clean.sigma() ** 2
        table.append(
            {
                "lambda": float(lam),
                "exact": float(exact),
                "noisy": float(np.mean(distances[5:])),
                "4 sigma^2 / lambda^2": predicted,
            }
        )
    return table


def step_bound(setting: Setting, local: int) -> dict[str, float]:
    """The constants and bounds of Theorem 1 with sigma_Phi = gamma_Phi = 0, u_m = 1, beta = 1."""
    mu, smooth = setting.mu_envelope, setting.l_envelope
    paper_mu = setting.lam + setting.mu_f
    c = 4 * smooth**2

    def hat(modulus: float) -> float:
        return modulus * local / (np.e * smooth * 2 ** (local + 6.5) * (1 / local + 2) + 18 * modulus * local * smooth)

    return {
        "modulus of the envelope": mu,
        "modulus in the paper": paper_mu,
        "beta / sqrt(2 c)": 1 / np.sqrt(2 * c),
        "2 / mu": 2 / mu,
        "alpha_hat": hat(mu),
        "alpha_hat (paper's modulus)": hat(paper_mu),
        "bound": min(1 / np.sqrt(2 * c), 2 / mu, hat(mu)),
        "2 / L_F": 2 / smooth,
    }


def step(factors: Iterable[float] = (0.1, 1, 10, 100, 300, 1000, 3000, 6000, 12000), rounds: int = 300) -> Table:
    """(c) Error after 300 rounds with S = N, for steps at multiples of Theorem 1's bound."""
    setting = quadratic(lam=2.0)
    bound = step_bound(setting, R)["bound"]
    table: Table = []
    for factor in factors:
        path = trajectory(setting, factor * bound, rounds, N, 0)
        last = setting.gap(path[-1]) if np.isfinite(path[-1]).all() else np.inf
        table.append(
            {"step / bound": float(factor), "step": float(factor * bound), "error of w^(T)": float(min(last, 1e30))}
        )
    return table


# -- pictures ----------------------------------------------------------------------------------------------------------


def _axes(title: str, x: str, y: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y, xscale="log", yscale="log")
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw(rates: Table, radii: Table, steps: Table, folder: Path) -> list[Path]:
    """The three pictures."""
    figure, axes = _axes("Theorem 1: error of the average iterate", "rounds T", r"$F(\bar w^{(T)}) - F(w^*)$")
    for color, (problem, s, slope, half) in zip(COLORS, slopes(rates), strict=False):
        rows = [r for r in rates if (r["problem"], r["S"]) == (problem, s)]
        t, e = [float(r["T"]) for r in rows], [float(r["error"]) for r in rows]
        style = "-o" if s < N else "--s"
        axes.plot(t, e, style, color=color, label=f"{problem}, S = {s} of {N}: slope {slope:.2f} ± {half:.2f}")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    paths = [folder / "theory-rate.png", folder / "theory-radius.png", folder / "theory-step.png"]
    save(figure, paths[0])

    figure, axes = _axes(
        "Theorem 2: distance of personal models from $w^*$", r"$\lambda$", r"mean $\|\theta_i - w^*\|^2$"
    )
    lam = [float(r["lambda"]) for r in radii]
    names = ("exact", "noisy", "4 sigma^2 / lambda^2")
    for color, key in zip(COLORS, names, strict=False):
        label = {
            "exact": "exact proximal point",
            "noisy": "5 steps on batches of 2",
            "4 sigma^2 / lambda^2": r"$4\sigma_{F,*}^2/\lambda^2$",
        }[key]
        axes.plot(
            lam,
            [float(r[key]) for r in radii],
            "-o" if key != "4 sigma^2 / lambda^2" else ":",
            color=color,
            label=label,
        )
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save(figure, paths[1])

    setting = quadratic(lam=2.0)
    bounds = step_bound(setting, R)
    figure, axes = _axes(
        "Theorem 1: below and above the step-size bound", r"$\tilde\alpha_m$", r"$F(w^{(300)}) - F(w^*)$"
    )
    x, y = [float(r["step"]) for r in steps], [min(float(r["error of w^(T)"]), 1e6) for r in steps]
    axes.plot(x, np.maximum(y, 1e-20), "-o", color=COLORS[0])
    for color, key in ((COLORS[1], "bound"), (COLORS[2], "2 / L_F")):
        axes.axvline(bounds[key], color=color, linestyle="--", label=f"{key} = {bounds[key]:.3g}")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save(figure, paths[2])
    return paths
