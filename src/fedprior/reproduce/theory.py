"""The paper's two theorems seen in numbers, on problems whose answer is known.

- rate: the error of the theorem's weighted average iterate against the number of rounds T, with S < N and S = N;
- radius: how far the personal models are from the optimal global one, against lambda;
- step: Theorem 1's bound on the step size, and what happens below and above it.

The problems (`convex`) are run by the same engine and method as everything else.

One thing differs from the paper before anything is run: its Assumption "strongly convex envelope settings" takes F_i to be
(lam + mu_f)-strongly convex. That is the modulus of the proximal *objective* x -> f_i(x) + lam/2 ||x - mu||^2; the envelope
itself has modulus lam mu_f / (lam + mu_f), which is below mu_f for every lambda. The tables give both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from fedprior.core.vectors import Vector
from fedprior.engine.engine import Engine
from fedprior.methods import make
from fedprior.reproduce.convex import N, Setting, logistic, quadratic

R = 2  # local steps


def trajectory(
    setting: Setting, step: float, rounds: int, aggregated: int, seed: int, local: int = R, K: int = 200
) -> np.ndarray:
    """The global models w^(0..T) with alpha_m beta R = step, beta = 1, and proximal points solved to 1e-10."""
    method = make(
        "pfedbred", mean="identity", R=local, K=K, tol=1e-10, lam=setting.lam, alpha_m=step / local,
        alpha=1.0 / (setting.lam + setting.l_f),
    )  # fmt: skip
    engine = Engine(
        setting.problem, method.algorithm(), setting.federation, batch_size=setting.batch, aggregated=aggregated
    )
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
        engine = Engine(noisy.problem, method.algorithm(), noisy.federation, batch_size=2)
        state = engine.init(seed)
        start = jnp.asarray(noisy.best)
        state = state._replace(
            server=jax.device_put(Vector(start), engine.placement.same),
            clients=jax.device_put(Vector(jnp.broadcast_to(start, state.clients.tree.shape)), engine.placement.split),
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
