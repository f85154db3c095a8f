"""Bregman divergences, proximal points and envelopes from one convex generator.

A prior of the scaled exponential family enters the method only through its generator g* on mean parameters
(Shi et al., "PRIOR", NeurIPS 2023, sections "Preliminary" and "Framework Design"):

    D(x, mu)     = g*(x) - g*(mu) - <grad g*(mu), x - mu>
    prox(mu)     = argmin_x f(x) + lam D(x, mu)
    env(mu)      = min_x    f(x) + lam D(x, mu)
    grad env(mu) = lam Hess g*(mu) (mu - prox(mu))

A new prior is one function ``value``; everything else follows by automatic differentiation, and a family may give closed
forms where they are faster. A family whose mean parameters are bounded names unconstrained coordinates u (``to_mean``), in
which a model's parameters live and every update acts: f is the loss at u, the divergence is between to_mean(u) and
to_mean(v), and no step can leave the domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.flatten_util import ravel_pytree

from fedprior.core.compiling import Compiler
from fedprior.core.optimize import Optimizer, gradient_steps, make_optimizer
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError

Gradient = Callable[[Vector], Vector]


@dataclass(frozen=True)
class Prior:
    """A strictly convex generator g* on mean parameters, and what follows from it.

    >>> class Quartic(Prior):
    ...     def value(self, x):
    ...         return (x * x) @ (x * x) / 4
    >>> x, mu = Vector(jnp.array([2.0])), Vector(jnp.array([1.0]))
    >>> float(Quartic().divergence(x, mu)), float(Quartic().mirror(x).tree[0])
    (2.75, 8.0)
    """

    def value(self, x: Vector) -> Array:
        """g*(x): the one function a prior must give."""
        raise NotImplementedError

    # -- what follows, on mean parameters ------------------------------------------------------------------------------

    def mirror(self, x: Vector) -> Vector:
        """s = grad g*(x): from mean to natural parameters."""
        return cast(Vector, jax.grad(self.value)(x))

    def inverse_mirror(self, s: Vector) -> Vector:
        """x = grad g(s): from natural to mean parameters, by Newton's method in the coordinates."""
        flat, back = ravel_pytree(s)

        def residual(u: Array) -> Array:
            return ravel_pytree(self.mirror(self.to_mean(back(u))))[0] - flat

        def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            u, k = carry
            move = jnp.linalg.solve(jax.jacobian(residual)(u), residual(u))
            # Halve a step that would make things worse: Newton's method alone may overshoot far from the solution.
            sizes = 0.5 ** jnp.arange(30)
            errors = jax.vmap(lambda size: jnp.linalg.norm(residual(u - size * move)))(sizes)
            best = sizes[jnp.argmin(jnp.where(jnp.isnan(errors), jnp.inf, errors))]
            return u - best * move, k + 1

        tiny = 10 * jnp.finfo(flat.dtype).eps * (1 + jnp.linalg.norm(flat))
        start = jnp.full_like(flat, 0.1)  # not 0, where the Hessian of an even generator may vanish
        u, _ = lax.while_loop(
            lambda c: (jnp.linalg.norm(residual(c[0])) > tiny) & (c[1] < 100), step, (start, jnp.int32(0))
        )
        return self.to_mean(back(u))

    def conjugate(self, s: Vector) -> Array:
        """g(s) = <x, s> - g*(x) at x = grad g(s): the log-normaliser."""
        x = self.inverse_mirror(s)
        return x @ s - self.value(x)

    def curvature(self, x: Vector, v: Vector) -> Vector:
        """Hess g*(x) v."""
        return cast(Vector, jax.jvp(self.mirror, (x,), (v,))[1])

    def divergence(self, x: Vector, mu: Vector) -> Array:
        """D(x, mu), never negative, zero only at x = mu."""
        return self.value(x) - self.value(mu) - self.mirror(mu) @ (x - mu)

    def log_density(self, x: Vector, mu: Vector, lam: float) -> Array:
        """lam [<x, s> - g(s)] with s = grad g*(mu): the scaled family's log-density up to its base measure h(x)."""
        return lam * (self.value(x) - self.divergence(x, mu))

    # -- coordinates in which any step stays inside the domain -----------------------------------------------------------

    def to_mean(self, u: Vector) -> Vector:
        """From unconstrained coordinates to mean parameters."""
        return u

    def to_coordinates(self, x: Vector) -> Vector:
        """From mean parameters to unconstrained coordinates; a point outside the domain is an error."""
        return x

    def pull(self, u: Vector, v: Vector) -> Vector:
        """Gradient in u of D(x(u), x(v)): how the prior at v pulls a parameter at u."""
        return cast(Vector, jax.grad(lambda u: self.divergence(self.to_mean(u), self.to_mean(v)))(u))

    def push(self, v: Vector, u: Vector) -> Vector:
        """Gradient in v of D(x(u), x(v)): on mean parameters, Hess g*(v) (v - u)."""
        return cast(Vector, jax.grad(lambda v: self.divergence(self.to_mean(u), self.to_mean(v)))(v))

    @property
    def spherical(self) -> bool:
        """Whether ``D(x, y)`` is ``|x - y|^2 / 2``, for which a problem may know a faster proximal loop."""
        return False

    def bind(self, like: Vector) -> Prior:
        """The prior for parameters of this shape; a wrong dimension is an error."""
        return self

    # -- proximal point and envelope, in the coordinates -----------------------------------------------------------------

    def prox(
        self,
        grad: Gradient,
        v: Vector,
        start: Vector,
        lam: float,
        alpha: float,
        K: int,
        solver: Optimizer = "sgd",
        tol: float = 0.0,
    ) -> Vector:
        """Minimise f(u) + lam D(x(u), x(v)) from ``start``; ``grad`` is the gradient of f.

        K gradient steps of size alpha; with another ``solver``, K steps of that optax optimizer; with ``tol`` above 0,
        gradient steps until the gradient's norm is below it, K at the most.
        """

        def slope(u: Vector) -> Vector:
            return grad(u) + lam * self.pull(u, v)

        if tol > 0:

            def step(carry: tuple[Vector, Vector, Array]) -> tuple[Vector, Vector, Array]:
                u, g, k = carry
                u = u - alpha * g
                return u, slope(u), k + 1

            begin = (start, slope(start), jnp.int32(0))
            return lax.while_loop(lambda c: (c[1].norm() > tol) & (c[2] < K), step, begin)[0]
        if solver == "sgd":
            return gradient_steps(slope, start, alpha, K)
        optimizer = make_optimizer(solver, alpha)

        def optimizer_step(_: Array, carry: tuple[Vector, optax.OptState]) -> tuple[Vector, optax.OptState]:
            u, memory = carry
            update, memory = optimizer.update(slope(u), memory, u)
            return optax.apply_updates(u, update), memory

        return lax.fori_loop(0, K, optimizer_step, (start, optimizer.init(start)))[0]

    def envelope(self, f: Callable[[Vector], Array], v: Vector, theta: Vector, lam: float) -> Array:
        """The envelope's value at v, given its proximal point theta."""
        return f(theta) + lam * self.divergence(self.to_mean(theta), self.to_mean(v))

    def envelope_grad(self, v: Vector, theta: Vector, lam: float) -> Vector:
        """The envelope's gradient at v, given its proximal point theta (which is stationary, so only v counts)."""
        return lam * self.push(v, theta)


def check_prior(prior: Prior, like: Vector, samples: int = 8, seed: int = 0) -> None:
    """Refuse a generator that is not strictly convex, as far as random points tell, or that is not finite there."""
    name, bound = type(prior).__name__, prior.bind(like)
    rng = np.random.default_rng(seed)

    def draw() -> Vector:
        return like.map(lambda x: rng.normal(size=x.shape).astype(x.dtype))

    def look(u: Vector, v: Vector) -> tuple[Array, ...]:
        x, y = bound.to_mean(u), bound.to_mean(v)
        gap, scale = (bound.mirror(x) - bound.mirror(y)) @ (x - y), (x - y) @ (x - y)
        return gap, scale, bound.value(x), bound.divergence(x, y)

    compiled = Compiler()(look)  # one program: step by step, every operation would be one
    for _ in range(samples):
        gap, scale, value, divergence = map(float, compiled(draw(), draw()))
        if not np.isfinite(gap) or not np.isfinite(value):
            raise FedpriorError(f"prior {name}: its generator is not finite at a point of its domain; check value()")
        if gap <= 0 or divergence < -1e-4 * (1 + scale):
            raise FedpriorError(
                f"prior {name}: its generator is not strictly convex (<grad g*(x) - grad g*(y), x - y> = {gap:.3g} "
                "for some x, y; it must be above 0)"
            )
