// The bar of choices that drives the whole page.

const MODEL_WORDS = { personal: "personal", global: "global", newcomer: "of newcomers", "newcomer-global": "global, on newcomers" };
const DATA_WORDS = { own: "own test", pooled: "pooled test" };
const ROUND_WORDS = { last: "last", last10: "mean of the last, at most 10", validation: "best on validation", best: "best on test (optimistic)" };

/** A choice that the task can show, as near as may be to the one that was made. */
function settled(task, choice) {
  const { usual } = task;
  const metric = Object.hasOwn(task.metrics, choice.metric) ? choice.metric : usual.metric;
  const models = Object.keys(task.blocks[metric]);
  const model = models.includes(choice.model) ? choice.model : models.includes(usual.model) ? usual.model : models[0];
  const rounds = Object.keys(task.blocks[metric][model]);
  const round = rounds.includes(choice.round) ? choice.round : rounds[0];
  const pooled = task.blocks[metric][model][round].cells.some((cell) => cell && cell.averages.pooled !== undefined);
  const data = choice.data === "pooled" && pooled ? "pooled" : "own";
  const average = Object.hasOwn(payloadWords().averages, choice.average) ? choice.average : usual.average;
  const against = task.methods.some((method) => method.id === choice.against) ? choice.against : usual.against;
  return { metric, model, data, average, round, against };
}

const payloadWords = () => data.words;

/** What is looked at, for captions; `round` may be null. */
function choiceWords(choice, info) {
  const unit = info.unit === "%" ? " in percent" : "";
  const models = `${choice.model} model${choice.model === "global" ? "" : "s"}`;
  const where = choice.data === "own" ? `own test samples, ${payloadWords().averages[choice.average]}` : "pooled test samples";
  const when = choice.round === null ? "" : `, ${payloadWords().rounds[choice.round]}`;
  return `${info.words}${unit}, ${models}, ${where}${when}${info.higher ? "" : "; lower is better"}`;
}

/** The same for curves, which are of every round, and on own test samples alone. */
function curveWords(view) {
  const what = choiceWords({ ...view.choice, data: "own", round: null }, view.info);
  const seeds = view.lines.some((line) => line.number && line.number.std !== null) ? "mean and one standard deviation over seeds, " : "";
  return `${what}; ${seeds}the reference dashed`;
}

function drawBar(task) {
  const bar = document.getElementById("bar");
  const choice = state.choice;
  const focused = document.activeElement && bar.contains(document.activeElement) ? document.activeElement.id : null;
  const byModel = task.blocks[choice.metric];
  const cells = byModel[choice.model][choice.round].cells;
  const pooled = cells.some((cell) => cell && cell.averages.pooled !== undefined);
  const set = (key) => (value) => choose({ [key]: value });
  const known = (words, keys) => Object.keys(words).filter((key) => keys.includes(key)).map((key) => [key, words[key]]);
  const averages = Object.entries(payloadWords().averages).map(([key, words]) => [key, words, choice.data === "pooled" && key !== "weighted"]);
  const fields = [
    data.tasks.length > 1 ? chooser("task", "task", data.tasks.map((each, k) => [String(k), cut(each.name, 44)]), String(state.task), (value) => chooseTask(Number(value))) : null,
    chooser("metric", "metric", Object.keys(task.metrics).map((name) => [name, task.metrics[name].words]), choice.metric, set("metric")),
    chooser("models", "model", known(MODEL_WORDS, Object.keys(byModel)), choice.model, set("model")),
    chooser("data", "data", Object.keys(DATA_WORDS).filter((key) => key === "own" || pooled).map((key) => [key, DATA_WORDS[key]]), choice.data, set("data")),
    chooser("average", "average", averages, choice.data === "pooled" ? "weighted" : choice.average, set("average")),
    chooser("round", "round", known(ROUND_WORDS, Object.keys(byModel[choice.model])), choice.round, set("round")),
    chooser("against", "against", task.methods.map((method) => [method.id, cut(method.name, 36)]), choice.against, set("against")),
  ];
  const dark = isDark();
  const theme = h("button", { type: "button", id: "theme", class: "plain", "aria-pressed": String(dark), "aria-label": "dark colours", title: "light or dark", onclick: toggleTheme }, dark ? "\u2600" : "\u263e");
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "what is shown");
  bar.hidden = false;
  bar.replaceChildren(...fields.filter(Boolean), theme, h("span", { id: "live", class: "quiet" }));
  const again = focused && document.getElementById(focused);
  if (again) again.focus();
}

function isDark() {
  const set = document.documentElement.getAttribute("data-theme");
  return set ? set === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function toggleTheme() {
  document.documentElement.setAttribute("data-theme", isDark() ? "light" : "dark");
  drawBar(data.tasks[state.task]);
  tell(isDark() ? "dark colours" : "light colours");
}
