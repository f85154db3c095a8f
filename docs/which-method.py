# %% [markdown]
# # Which method for me?
#
# No method wins everywhere, and on each of our tasks many lie close together. But our results answer the questions that come before the choice: whether to
# federate at all, whether one model for all is enough, and what the rest costs. Everything on this page is read from the tables in [results](results/index.md) when the
# page is built; nothing is typed in.

# %% tags=["hide-input"]
import re
from pathlib import Path

from fedprior.report.canvas import COLORS, FAINT, INK, literal, new_figure

RESULTS = next(path for path in (Path("results"), Path("docs/results"), Path("../results")) if path.is_dir())
TASKS = {
    "digits-dnn": ("digits-dnn.md", "## Everyone tuned", "digits, DNN\n67 samples each, skewed"),
    "mnist-mclr": ("mnist-mclr-all.md", "## Everyone tuned", "MNIST, MCLR\nthree classes each"),
    "fmnist-mclr": ("fmnist-mclr-all.md", "## Everyone tuned", "Fashion-MNIST, MCLR\ntwo classes each"),
}


def tables(text: str) -> list[list[dict[str, str]]]:
    """All tables of a page, each as a list of rows by the names of the columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        found.append([dict(zip(cells[0], row, strict=True)) for row in cells[2:]])
    return found


def number(text: str) -> float:
    """A number as tables print it: 93.66 ± 0.34, 8k, 6.01M, +3.35 [+1.36, +5.34]."""
    first = re.match(r"[-+]?[\d.]+", text)
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[first.end() : first.end() + 1], 1.0)
    return float(first[0]) * scale


facts = {}  # task -> method -> what its personal models did
for task, (page, heading, _) in TASKS.items():
    text = (RESULTS / page).read_text(encoding="utf-8").partition(heading)[2]
    scored, against = tables(text)[:2]
    facts[task] = {
        row["method"].split()[0]: {  # without the settings that were chosen
            "worst": number(row["own test, worst decile"]),
            "pooled": number(row["pooled test"]),
            "gradients": number(row["gradients in the run"]),
            "sent": number(row["numbers sent in the run"]),
        }
        for row in scored
        if row["model"] in ("personal", "both")
    }
    for row in against:
        found = re.findall(r"[-+]\d+\.\d+", row["difference, weighted"])
        facts[task][row["method"].split()[0]]["gain"] = tuple(map(float, found)) or (0.0, 0.0, 0.0)

# %% [markdown]
# ## What each method gained over training alone
#
# A dot to the right of the line is better than Local. Bars are 95 % confidence intervals of the difference to Local, over seeds. They do not compare
# two methods with each other, whether they overlap or not: `fedprior compare RUNS --against ROW` does, on runs that have both. Every method was
# tuned on validation samples: the best of 9 to 34 settings, more where the best lay at the end of a range, in trials of 100 rounds on the digits (pFedBayes: 50) and of
# 50 or 25 on the others (the pages say how many each had). Methods stand by what they cost, the cheapest first. Variants in the order of a released code are left out, and FedPAC is not defined for a model without hidden layers.

# %% mystnb={"image": {"alt": "Gain over Local of nineteen methods on three tasks. On the digits nearly all lie two to four points above Local with overlapping intervals, FedAvg and pFedHN with a thirtieth of the gradients of mh. On MNIST only HeurFedAMP, FedFomo and, barely, Ditto are above Local, and pFedMe and pFedBreD one and a half points below. On Fashion-MNIST most personal methods equal Local. FedAvg, FedProx and SCAFFOLD are five to eighteen points below on both."}} tags=["hide-input"]
digits = facts["digits-dnn"]
names = [name for name in digits if not name.endswith("-released") and name != "local"]
names.sort(key=lambda name: digits[name]["gradients"])
figure = new_figure(9, 6.4)
panels = figure.subplots(1, 3, sharey=True)
for axes, (task, (_, _, told)) in zip(panels, TASKS.items(), strict=True):
    least, most = (-4.0, 6.0) if task == "digits-dnn" else (-8.0, 2.0)
    for row, name in enumerate(names):
        axes.axhline(row, color=FAINT, linewidth=0.5, zorder=0)
        if name not in facts[task]:
            axes.text(0, row, "not defined", fontsize=7, va="center", ha="center", color=INK, backgroundcolor="white")
            continue
        mean, low, high = facts[task][name]["gain"]
        color = COLORS[0] if low > 0 else COLORS[1] if high < 0 else "#777777"
        axes.plot([max(low, least), min(high, most)], [row, row], color=color, linewidth=1.5)
        if mean < least:
            axes.plot(least + 0.2, row, "<", color=color, markersize=6)
            axes.text(least + 0.6, row, f"{mean:+.1f}", fontsize=8, va="center", color=color, backgroundcolor="white")
        else:
            axes.plot(mean, row, "o", color=color, markersize=5)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set(xlim=(least, most), xlabel="points over Local")
    axes.set_title(told, loc="left", fontsize=9, fontweight="bold", color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
panels[0].set_yticks(range(len(names)), [f"{literal(name)}  {digits[name]['gradients'] / 1000:.0f}k" for name in names])
panels[0].invert_yaxis()
figure.supxlabel(
    "blue: above Local, red: below, grey: cannot be told; beside a name, gradients in the run on the digits", fontsize=9
)
figure

# %% [markdown]
# ## The decision


# %% mystnb={"image": {"alt": "A decision diagram. First question: is FedAvg above Local on your clients? If no, stay with Local, or with HeurFedAMP, FedFomo or Ditto, which keep near it. If yes, second question: is one model for all enough? If yes, FedAvg at the least cost; if not, a personal method: pFedMe, mh, FedPAC, Ditto or pFedHN, all above Local and not compared with each other. The text below gives the numbers."}} tags=["hide-input"]
def gain(task: str, name: str) -> str:
    """A method's gain over Local with its interval."""
    mean, least, most = facts[task][name]["gain"]
    return f"{mean:+.2f} [{least:+.2f}, {most:+.2f}]"


def cost(name: str) -> str:
    """The gradients of a method on the digits."""
    return f"{facts['digits-dnn'][name]['gradients'] / 1000:.0f}k"


boxes = {
    "ask": (
        0.5, 0.9, "Run Local and FedAvg first: they are the cheapest.\nIs FedAvg above Local on your clients?", FAINT,
    ),
    "stay": (
        0.19, 0.5,
        "NO: a client's own samples are enough.\nStay with Local, or with what keeps near it:\n\n"
        + "\n".join(
            f"{name}: {gain('mnist-mclr', name)} on MNIST,\n{gain('fmnist-mclr', name)} on Fashion-MNIST"
            for name in ("heurfedamp", "fedfomo", "ditto")
        )
        + f"\n\n(FedAvg: {gain('mnist-mclr', 'fedavg')} and\n{gain('fmnist-mclr', 'fedavg')})",
        "#f6dede",
    ),
    "more": (
        0.72, 0.66,
        f"YES (digits: {gain('digits-dnn', 'fedavg')}): federation pays.\nIs one model for all enough?", FAINT,
    ),
    "one": (
        0.55, 0.25,
        f"YES: the global model, tuned\n\nfedavg: {gain('digits-dnn', 'fedavg')}\nwith {cost('fedavg')} gradients;\n"
        "its interval is the widest.\n\nTry several step sizes,\nand keep the smaller\nof two good ones.",
        "#dde8f3",
    ),
    "own": (
        0.86, 0.25,
        "NO: a personal method. All of\nthese are above Local:\n\n"
        + "\n".join(
            f"{name}: {gain('digits-dnn', name)}, {cost(name)}" for name in ("pfedhn", "ditto", "fedpac", "pfedme", "mh")
        )
        + "\n\nThey were not compared with\neach other: begin with the\ncheapest.",
        "#dde8f3",
    ),
}  # fmt: skip
figure = new_figure(9, 5.8)
axes = figure.subplots()
axes.set(xlim=(0, 1), ylim=(0.08, 0.98))
axes.axis("off")
for start, end in (("ask", "stay"), ("ask", "more"), ("more", "one"), ("more", "own")):
    axes.annotate(
        "",
        boxes[end][:2],
        xytext=boxes[start][:2],
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 1},
        zorder=1,
    )
for x, y, text, color in boxes.values():
    axes.text(
        x, y, text, ha="center", va="center", fontsize=9, color=INK, zorder=2,
        bbox={"boxstyle": "round,pad=0.6", "facecolor": color, "edgecolor": INK, "linewidth": 0.8},
    )  # fmt: skip
figure

# %% [markdown]
# The numbers are points over Local, with their 95 % intervals, and gradients of the whole federation in the run on the digits.
#
# Three more questions that the tables answer:

# %% tags=["hide-input"]
mnist = facts["mnist-mclr"]
worst = sorted(digits, key=lambda name: -digits[name]["worst"])[:5]
print(f"Do your weakest clients matter most? Worst tenth on the digits, Local {digits['local']['worst']:.1f} %:")
print("   " + ", ".join(f"{name} {digits[name]['worst']:.1f} %" for name in worst))
print("Must a personal model also work on what its client has never seen? Pooled test on MNIST:")
print(
    "   " + ", ".join(f"{name} {mnist[name]['pooled']:.0f} %" for name in ("local", "fedfomo", "fedamp", "ditto", "mh"))
)
print("Is the network what costs? Numbers sent in the run on the digits, in millions:")
few = sorted((name for name in digits if digits[name]["sent"]), key=lambda name: digits[name]["sent"])
print("   " + ", ".join(f"{name} {digits[name]['sent'] / 1e6:.1f}" for name in (*few[:3], *few[-3:])))

# %% [markdown]
# What this page cannot tell: how these methods do on your data. `fedprior run your-task.toml -m all` runs every one of them, [`fedprior sweep`](sweep.md) chooses their settings on
# validation samples, and [`fedprior compare`](compare.md) says whom each of them helps.
