# %% [markdown]
# # Why Local is hard to beat
#
# Papers on personalized federated learning often leave out the simplest competitor: every client trains alone. On the usual benchmarks a client
# holds two or three classes and hundreds of samples; then its own task is easy, and others have little to add. This notebook gives clients
# different numbers of samples and watches who wins.

# %%
import equinox as eqx
import numpy as np
from sklearn.datasets import load_digits

import fedprior as fp

rng = np.random.default_rng(0)
digits = load_digits()
sizes = [4, 8, 16, 32, 64]  # training samples of a client
threes = [(0, 4, 7), (1, 5, 8), (2, 3, 9), (6, 8, 9)]  # each client has three of the ten digits
clients = [(size, classes) for size in sizes for classes in threes]  # every size has the same four tasks

x, y, client, is_test = [], [], [], []
for i, (size, classes) in enumerate(clients):
    mine = rng.permutation(np.flatnonzero(np.isin(digits.target, classes)))[: size + 100]
    x.append(digits.data[mine] / 16)
    y.append(digits.target[mine])
    client.append(np.full(len(mine), i))
    is_test.append(np.arange(len(mine)) >= size)

task = fp.task_from_arrays(
    np.concatenate(x),
    np.concatenate(y),
    np.concatenate(client),
    lambda key: eqx.nn.Linear(64, 10, key=key),
    is_test=np.concatenate(is_test),
    rounds=60,
    aggregated=10,
    eval_every=60,
)
results = fp.Study(task, ["fedavg", "ditto"], seeds=2, alpha=0.1).run()

# %% [markdown]
# Each client is scored on a hundred samples of its own three classes.

# %% mystnb={"image": {"alt": "Accuracy against the number of a client's training samples, from 4 to 64. FedAvg's global model does about the same for all; Local is below it for the smallest clients and above it for the largest; Ditto's personal models are above both for small clients and close to Local for the largest."}} tags=["hide-input"]
from fedprior.report.canvas import COLORS, INK, MARKERS, new_figure

figure = new_figure(7, 3.6)
axes = figure.subplots()
for k, (row, told) in enumerate(
    {"local": "Local", "fedavg": "FedAvg, one for all", "ditto": "Ditto, personal"}.items()
):
    by_size = {size: [] for size in sizes}
    for run in results[row]:
        for each in run.record.clients:
            if each[1:3] == ("personal", "own"):
                by_size[clients[each.client][0]].append(each.values["accuracy"])
    means = [np.mean(by_size[size]) for size in sizes]
    print(f"{told}: {', '.join(f'{value:.0f} %' for value in means)} with {', '.join(map(str, sizes))} samples")
    axes.plot(sizes, means, MARKERS[k] + "-", color=INK if row == "local" else COLORS[k - 1], label=told)
axes.set_xscale("log")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.set(xlabel="training samples of a client (three classes)", ylabel="accuracy, %")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure

# %% [markdown]
# Two things to take home:
#
# - **A comparison without Local says little.** A method may be far above FedAvg and still below training alone. On MNIST with three classes per client, in the paper's own
#   protocol, Local beats every method of the comparison: [the numbers](../results/mnist-mclr.md).
# - **Look at clients, not only at averages.** Weighted by samples, large clients decide, and they need the others least. The worst tenth, which every table of
#   fedprior has, and the counts of clients that gain and lose, which every comparison has, show whom a method is for: [whom does it help?](../compare.md)
