# %% [markdown]
# # Who holds what
#
# How data is dealt to the clients decides how hard a federation is. Here are two partitions of the same 1,797 digits: a
# Dirichlet distribution over classes, and two classes for each client.

# %%
import fedprior as fp
from fedprior.report.partitions import draw

skewed = fp.task("digits-mclr")
print(skewed, "of", skewed.settings.partition)

# %% mystnb={"image": {"alt": "A grid of ten classes by twenty clients, coloured by how many samples a client holds of a class: most clients hold a few classes in quantity and some not at all. Below it the clients' sizes, from some 250 samples down to a few."}}
draw(skewed.partition, 10, "digits, Dirichlet(0.3)")

# %% [markdown]
# A partition is a section of the task; any of its settings can be changed by keyword or in a task file.

# %%
content = {
    "name": "two-classes",
    "data": {"source": "digits"},
    "partition": {"kind": "pathological", "clients": 20, "classes_per_client": 2},
    "model": {"name": "mclr"},
}
two = fp.task(content)

# %% mystnb={"image": {"alt": "The same grid for twenty clients that hold exactly two of the ten classes each, and about as many samples as one another."}}
draw(two.partition, 10, "digits, two classes each")
