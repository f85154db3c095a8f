# %% [markdown]
# # A method of your own
#
# A method is a few pure functions for one client and one server. This one keeps a personal model beside FedAvg's global one and
# draws it, after every round, a part of the way to the global model: no gradient of a penalty, just a mixture.

# %%
import fedprior as fp
from fedprior.core.method import single
from fedprior.core.optimize import local_steps


class Mixed(fp.Method):
    """R local steps of a personal v_i, then v_i <- (1 - share) v_i + share w; FedAvg beside it."""

    participation = ("all", "sampled")
    R: int = fp.hyper(20, "as FedAvg", least=1, meaning="local steps of a client in a round")
    alpha: float = fp.hyper(0.01, "as FedAvg", least=0, meaning="size of the local steps")
    share: float = fp.hyper(0.3, "ours", least=0, most=1, sweep=(0.1, 0.3), meaning="how far v goes to w")

    def client(self, w0, key):
        return w0

    def local(self, problem, client, down, data, key):
        w, _ = local_steps(problem.grad, down, data, self.R, self.alpha, "sgd")
        v, _ = local_steps(problem.grad, client, data, self.R, self.alpha, "sgd")
        return (1 - self.share) * v + self.share * down, w, {"moved": (w - down).norm()}

    def personal_model(self, problem, client, down, data, key):
        return single(client)


fp.register("mixed", Mixed)
results = fp.Study(
    "digits-mclr", {"share 0.1": {"method": "mixed", "share": 0.1}, "share 0.5": {"method": "mixed", "share": 0.5}},
    seeds=2, rounds=40, eval_every=4,
).run()  # fmt: skip
results

# %% mystnb={"image": {"alt": "Learning curves of the new method with two shares beside Local. The personal models of both end above Local; their global models coincide."}}
results.curves()

# %% [markdown]
# As soon as it is registered, it works by its name on the command line of the same process, in sweeps and in studies; [the
# page on methods](../add-a-method.md) shows how to ship it, and the contract suite that it must pass.
