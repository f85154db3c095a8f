"""pFedHN: Shamsian et al., "Personalized Federated Learning using Hypernetworks", ICML 2021.

server:  theta_i = h(v_i; phi), a network from a client's embedding v_i to its weights
client:  theta~_i = theta_i after R steps theta <- theta - alpha grad f_i(theta; B);   uploads delta_i = theta_i - theta~_i
server:  (phi, v) <- step along mean_i J_i^T delta_i, J_i the Jacobian of h(v_i; phi) in (phi, v)
The paper's algorithm has one client in a round: S = 1 with S times the rounds.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, STEPS, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import local_steps
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector

WIDTH, CLIP = 100, 50.0  # hidden units, the largest norm of a gradient
DEPTHS = {"linear": 4, "relu": 3}  # hidden layers, by what the last of them ends in


class Hypernetwork(NamedTuple):
    """phi: a linear head per array of the model, and hidden layers of weights and biases.

    The order of the fields is that in which the norm of a gradient is summed: another one would change bits.
    """

    W: Vector  # [..., WIDTH]
    b: Vector
    hidden: list[tuple[Array, Array]]


class Net(NamedTuple):
    """What is trained: phi, and the embeddings of all clients. A newcomer receives their mean."""

    phi: Hypernetwork
    v: Array  # [N, d], for a newcomer [d]


class Server(NamedTuple):
    """The network, and the memory of its optimizer."""

    net: Net
    memory: optax.OptState


def _uniform(key: Array, shape: tuple[int, ...], fan_in: int) -> Array:
    """PyTorch's default for linear layers."""
    return jax.random.uniform(key, shape, minval=-1, maxval=1) / jnp.sqrt(fan_in)


def generate(phi: Hypernetwork, v: Array) -> Vector:
    """theta = h(v; phi): hidden layers with ReLU between them, then a linear head per array of the model."""
    z = v
    for k, (W, b) in enumerate(phi.hidden):
        z = W @ z + b
        if k < DEPTHS["linear"] - 1:  # the fourth layer has none
            z = jax.nn.relu(z)
    return phi.W.map(lambda W, b: W @ z + b, phi.b)


class PFedHN(Method):
    """The server's network makes each client's model; clients keep nothing and adapt nothing.

    All S updates of a round are taken at one phi, which makes one step with their mean. Its heads hold 100 numbers for each
    weight of the model: the LSTM with the 5000-unit head does not fit.

    >>> PFedHN().momentum
    0.9
    """

    weighted: ClassVar[bool] = False
    participation: ClassVar[tuple[str, ...]] = ("sampled",)
    paper: ClassVar[str] = "Shamsian et al., ICML 2021"
    cites: ClassVar[str] = "shamsian2021pfedhn"
    objective: ClassVar[str] = r"\min_{\varphi, v_1, \dots, v_N} \frac{1}{N} \sum_i f_i\bigl(h(v_i; \varphi)\bigr)"
    revision: ClassVar[int] = 2  # 2: one step with the mean of all updates, four linear layers

    R: int = hyper(20, "PRIOR, section 6; pFedHN's code: 50", least=1, meaning=STEPS)
    alpha: float = hyper(
        0.01, "PRIOR, section 6; pFedHN's code: 0.005 with momentum", least=0, inert=0, meaning=STEP_SIZE
    )
    alpha_m: float = hyper(
        0.01, "pFedHN's code", sweep=(0.01, 0.03, 0.1), least=0, inert=0, meaning="step size of the server's network"
    )
    momentum: float = hyper(0.9, "pFedHN's code", least=0, below=1, meaning="momentum of the server's steps")
    decay: float = hyper(1e-3, "pFedHN's code", least=0, meaning="weight decay of the server's network")
    ending: str = hyper(
        "linear",
        "pFedHN's code: four linear layers, the last without ReLU; relu: three, each with one",
        choices=DEPTHS,
        meaning="what the last hidden layer of the server's network ends in",
    )

    @property
    def _outer(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(CLIP),
            optax.add_decayed_weights(self.decay),
            optax.sgd(self.alpha_m, self.momentum or None),
        )

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Server:
        """Embeddings v [N, 1 + N / 4], the hypernetwork phi, and the optimizer's memory."""
        size = 1 + n_clients // 4
        v_key, hidden_key, head_key = jax.random.split(key, 3)
        depth = DEPTHS[self.ending]
        widths = [size] + [WIDTH] * depth
        hidden = [
            (_uniform(jax.random.fold_in(k, 0), (b, a), a), _uniform(jax.random.fold_in(k, 1), (b,), a))
            for k, a, b in zip(jax.random.split(hidden_key, depth), widths[:-1], widths[1:], strict=True)
        ]
        leaves, structure = jax.tree.flatten(w0)
        keys = jax.random.split(head_key, (len(leaves), 2))
        W = [_uniform(k[0], (*x.shape, WIDTH), WIDTH) for k, x in zip(keys, leaves, strict=True)]
        b = [_uniform(k[1], x.shape, WIDTH) for k, x in zip(keys, leaves, strict=True)]
        phi = Hypernetwork(jax.tree.unflatten(structure, W), jax.tree.unflatten(structure, b), hidden)
        net = Net(phi, jax.random.normal(v_key, (n_clients, size)))
        return Server(net, self._outer.init(net))

    def outbox(self, server: Server) -> Net:
        """The network, without the optimizer's memory."""
        return server.net

    def send(self, outbox: Net, i: Array | None, key: Array) -> Vector | Net:
        """theta_i; a newcomer gets the hypernetwork and the mean embedding."""
        phi, v = outbox
        return Net(phi, jnp.mean(v, axis=0)) if i is None else generate(phi, v[i])

    def local(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> tuple[Tree, Vector, Info]:
        """R steps from theta_i; upload how far they went."""
        theta, _ = local_steps(problem.grad, down, data, self.R, self.alpha)
        return client, down - theta, {"moved": (down - theta).norm()}

    def merge(self, server: Server, ups: Vector, weights: Array, ids: Array, key: Array) -> Server:
        """One step of the hypernetwork along the gradient of mean_i <h(v_i; phi), delta_i>."""

        def surrogate(net: Net) -> Array:
            return jnp.mean(jax.vmap(lambda i, delta: generate(net.phi, net.v[i]) @ delta)(ids, ups))

        update, memory = self._outer.update(jax.grad(surrogate)(server.net), server.memory, server.net)
        return Server(optax.apply_updates(server.net, update), memory)

    def personal_model(self, problem: Problem, client: Tree, down: Vector | Net, data: Data, key: Array) -> Mixture:
        """theta_i as received; a newcomer's from the embedding that it found."""
        return single(down if isinstance(down, Vector) else generate(down.phi, client))

    def join(self, problem: Problem, down: Net, data: Data, key: Array) -> Array:
        """A newcomer fits only its embedding, from the mean one: v <- v - alpha_m J^T grad f(h(v)), R times."""

        def step(v: Array, pick: Array) -> tuple[Array, None]:
            theta, back = jax.vjp(lambda v: generate(down.phi, v), v)
            return v - self.alpha_m * back(problem.grad(theta, data.batch(pick)))[0], None

        return lax.scan(step, down.v, data.draw(self.R))[0]
