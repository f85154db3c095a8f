# %% [markdown]
# # What label skew does
#
# Clients seldom hold the same mixture of classes. A dermatologist sees other skin than a paediatrician. This notebook deals the same digits to twenty
# clients, first with all ten classes for everyone, then with fewer and fewer, and asks what that does to training alone and to training together.

# %%
import fedprior as fp

content = {
    "name": "digits",
    "data": {"source": "digits"},
    "model": {"name": "mclr"},
    "rounds": 40,
    "aggregated": 2,
    "eval_every": 40,
    "method": {"alpha": 0.1},
}
skews = [2, 5, 10]  # classes that each client holds
rows = {"local": "Local", "fedavg": "FedAvg, one for all"}
scores = {}
for classes in skews:
    partition = {"kind": "pathological", "clients": 20, "classes_per_client": classes}
    results = fp.Study(fp.task({**content, "partition": partition}), ["fedavg"], seeds=3).run()
    scores[classes] = {row: [run.accuracy() for run in results[row]] for row in rows}
    print(f"{classes} classes each:", {row: [round(value, 1) for value in of] for row, of in scores[classes].items()})

# %% [markdown]
# A line is the mean over three seeds; the band goes from the worst of them to the best.

# %% mystnb={"image": {"alt": "Accuracy on own test samples against the number of classes that each client holds. Local is nearly perfect with two classes and falls below FedAvg with ten. FedAvg is good with ten and five classes; with two it is lower and its three seeds lie far apart."}} tags=["hide-input"]
import numpy as np

from fedprior.report.canvas import COLORS, INK, MARKERS, new_figure

figure = new_figure(7, 3.6)
axes = figure.subplots()
for k, (row, told) in enumerate(rows.items()):
    values = np.array([scores[classes][row] for classes in skews])  # [classes, seeds]
    color = INK if row == "local" else COLORS[k - 1]
    axes.plot(skews, values.mean(1), MARKERS[k] + "-", color=color, label=told)
    axes.fill_between(skews, values.min(1), values.max(1), color=color, alpha=0.15, linewidth=0)
axes.set_xticks(skews)
axes.set(xlabel="classes that each client holds (of ten)", ylabel="accuracy on own test samples, %")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False)
figure

# %% [markdown]
# Two effects work against each other.
#
# - **A client's own task becomes easier** the fewer classes it holds: telling two digits apart takes few samples. That is why Local rises to the left.
# - **A common model becomes harder to train**: each round, two clients pull it to their own classes, and it must still serve all ten. With two classes each, FedAvg
#   depends on who was drawn last, which is why its seeds lie so far apart.
#
# So a benchmark with two classes per client makes *any* personalization look good against FedAvg, and Local best of all. It says little about
# clients who hold many classes and few samples of each, where learning together is needed. Before you believe a ranking, look at the partition:

# %% mystnb={"image": {"alt": "Who holds what with three classes each: a grid of classes by clients in which every column has three filled cells."}}
from fedprior.report.partitions import draw

three = fp.task({**content, "partition": {"kind": "pathological", "clients": 20, "classes_per_client": 3}})
draw(three.partition, 10, "digits, three classes each")
