# %% [markdown]
# # Save a client's model and predict
#
# A trained personal model becomes one file that knows its classes and how samples are normalised. It predicts in another
# process, without the training data and without pickle.

# %%
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import fedprior as fp

(result,) = fp.run(fp.task("digits-mclr", rounds=40, eval_every=40), "mh")
with tempfile.TemporaryDirectory() as folder:
    path = result.save(Path(folder) / "client-3.safetensors", client=3)
    print(path.name, f"{path.stat().st_size / 1000:.0f} kB")
    model = fp.load(path)
print(model, "scored", f"{model.about['test_accuracy']:.1f} % of {model.about['test_samples']} test samples")

# %% mystnb={"image": {"alt": "Ten small pictures of handwritten digits, each with the digit that the saved model reads and how probable it finds it."}} tags=["hide-input"]
from fedprior.report.canvas import new_figure

images = load_digits().images[:10]
probabilities = model.predict_proba(images)
figure = new_figure(8, 2)
for axes, image, says, p in zip(figure.subplots(1, 10), images, model.predict(images), probabilities, strict=True):
    axes.imshow(image, cmap="gray_r")
    axes.set_title(f"{says}\n{100 * np.max(p):.0f} %", fontsize=9)
    axes.axis("off")
figure
