# %% [markdown]
# # Equal rounds are not equal cost
#
# In a round of mh every client trains and takes 120 gradients; in one of FedAvg a fifth of them train and take 20. A budget
# gives each method the rounds that it can afford, and the curves then run along what was spent.

# %%
import fedprior as fp

results = fp.Study(
    "digits-mclr", ["fedavg", "ditto", "mh"], seeds=2, budget={"total_gradients": 48_000}, eval_every=10
).run()
for record in results.records:
    if record.seed == 0:
        print(f"{record.variant}: {record.round:,} rounds")

# %% mystnb={"image": {"alt": "Accuracy against gradients of the whole federation, up to 48,000. FedAvg, which has 600 cheap rounds, rises first and ends highest, just above Ditto; mh, which has 20 expensive ones, has not reached Local yet."}}
results.curves()

# %% [markdown]
# What a round of each takes, counted by running it, stands in the summary of every row:

# %%
for row, about in results.summary()["digits-mclr"].items():
    cost = about["cost"]
    print(row, {key: cost[key] for key in ("gradients", "trained_clients_per_round")})
