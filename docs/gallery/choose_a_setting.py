# %% [markdown]
# # Choose a setting without looking at the test
#
# A sweep tries every setting on validation samples, a fifth of each client's training samples, and never evaluates the test.
# Settings that differ only in numbers share one compiled program.

# %%
import tempfile
from pathlib import Path

from fedprior.analysis.choice import choose, summarize_sweep
from fedprior.report.figures import sweep_picture
from fedprior.study.sweep import open_sweep

sweep = open_sweep("digits-mclr", ["pfedme"], ["lam=0.1,1,5,15,60"], 2, {"rounds": 30, "eval_every": 30})
with tempfile.TemporaryDirectory() as folder:
    sweep.try_all(Path(folder))
    outcomes = sweep.outcomes("pfedme")
print("chosen:", choose(outcomes).setting)

# %% mystnb={"image": {"alt": "Validation accuracy of pFedMe against lambda from 0.1 to 60 on a logarithmic axis, with bars of one standard deviation over seeds: it rises up to 15, which is chosen, and 60 diverged."}}
sweep_picture("digits-mclr", {"pfedme": summarize_sweep(outcomes)}, "accuracy on validation samples, 2 seeds")
