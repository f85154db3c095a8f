# %% [markdown]
# # Whom does it help?
#
# An average hides who gains and who pays. A comparison pairs each client's accuracy with what it has under the reference,
# here Local, on the same test samples and with the same seeds.

# %%
import fedprior as fp
from fedprior.report.figures import client_differences

results = fp.Study("digits-mclr", ["fedavg", "mh"], seeds=3, rounds=40, eval_every=40).run()
comparison = results.compare()
for row, entry in comparison.variants.items():
    if (d := entry.difference) is not None:  # None: the reference itself
        interval = f"[{d.weighted.low:+.2f}, {d.weighted.high:+.2f}]"
        print(f"{row}: {d.weighted.mean:+.2f} points {interval}, better for {d.wins} clients, worse for {d.losses}")

# %% [markdown]
# Each dot is a client, the larger the more test samples it has, and stands at the same height in both rows. After these few
# rounds FedAvg costs more clients than it helps; mh helps most of them.

# %% mystnb={"image": {"alt": "Two rows of dots, one dot for each of twenty clients. In the row of FedAvg they are spread to both sides of zero, in the row of mh most lie to the right of it."}}
client_differences(comparison)
