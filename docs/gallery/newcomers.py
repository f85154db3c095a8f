# %% [markdown]
# # A client that comes later
#
# Eight of twenty clients are held out of training and join the finished federation, each with its own samples and what the
# server sends to anyone. How much worse off are they than those who took part?

# %%
import fedprior as fp

task = fp.task("digits-mclr", rounds=40, new_clients=0.4, eval_every=40)
results = fp.Study(task, ["fedavg", "reptile", "mh"]).run()
rows = ("local", "fedavg", "reptile", "mh")
scores = {row: {model: results[row][0].accuracy(model) for model in ("personal", "newcomer")} for row in rows}
for row, of in scores.items():
    print(f"{row}: {of['personal']:.1f} % took part, {of['newcomer']:.1f} % joined later")
behind = [int(part.test.size.sum()) for part in (task.federation, task.newcomers)]
print(f"{behind[0]} test samples of those who took part, {behind[1]} of newcomers: one is {100 / behind[1]:.1f} points")

# %% mystnb={"image": {"alt": "For Local, FedAvg, Reptile and mh two dots each: the mean accuracy of clients that took part and of those that joined later. Newcomers of Local, who train a single round alone, are far behind; those of the other methods are close to the participants."}} tags=["hide-input"]
from fedprior.report.canvas import COLORS, INK, new_figure

figure = new_figure(7, 2.8)
axes = figure.subplots()
for k, row in enumerate(rows):
    took, joined = scores[row].values()
    axes.plot([joined, took], [k, k], color=INK, linewidth=1, zorder=1)
    axes.plot(took, k, "o", color=COLORS[0], label="took part" if k == 0 else None)
    axes.plot(joined, k, "D", color=COLORS[1], label="joined at the end" if k == 0 else None)
axes.set_yticks(range(len(rows)), rows)
axes.tick_params(axis="y", length=0)
axes.set_ylim(len(rows) - 0.6, -0.6)
axes.set_xlabel("accuracy on own test samples, weighted, %")
axes.spines[["top", "right", "left"]].set_visible(False)
axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
figure
