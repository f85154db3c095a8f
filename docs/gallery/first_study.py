# %% [markdown]
# # A first study
#
# Four methods, two seeds, embedded data. Twenty clients hold different mixtures of scikit-learn's handwritten digits; each
# wants a model of its own. The table and the learning curves say who profits from learning together.

# %%
import fedprior as fp

results = fp.Study("digits-mclr", ["fedavg", "ditto", "mh"], seeds=2, rounds=40, eval_every=4).run()
results

# %% [markdown]
# *Local* is added by itself: each client trains alone, and what does not beat it is not worth its trouble. In the curves,
# solid lines are the clients' personal models, dashed ones the global model.

# %% mystnb={"image": {"alt": "Learning curves over forty rounds. The personal models of Ditto and mh lie above Local, the global models of FedAvg, Ditto and mh below them."}}
results.curves()
