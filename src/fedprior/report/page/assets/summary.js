// The sentences, the sortable table of methods, and the table of methods and tasks.

function drawSentences(body, task, view) {
  body.replaceChildren(
    ...sentencesOf(view).map(({ tone, parts }) =>
      h("p", { class: `said ${tone}` }, ...parts.map(([words, isName]) => (isName ? h("strong", {}, words) : words))),
    ),
  );
}

const INFINITE = "\u221e";

const numberText = (number, info) =>
  number ? valueText(number.mean, info) + (number.std === null ? "" : ` \u00b1 ${valueText(number.std, info)}`) : "\u2013";

function tenthOf(task, line) {
  const stored = line.cell && line.cell.averages.worst_decile;
  const known = stored === undefined || stored === null || infiniteOf(line.cell, "worst_decile").length ? [] : task.arrays[stored].filter((x) => x !== null);
  return known.length ? mean(known) : null;
}

function tenthText(task, line, info) {
  if (line.cell && infiniteOf(line.cell, "worst_decile").length) return INFINITE;
  const value = tenthOf(task, line);
  if (value === null) return "\u2013";
  if (!line.cell.tenth) return valueText(value, info);
  const [low, high] = line.cell.tenth;
  return `${valueText(value, info)} (${low === high ? low : `${low}\u2013${high}`})`;
}

/** How many seeds a number is over, be it an infinite one; null where there is none. */
const seedsOf = (line) => (line.number ? line.number.seeds.length : line.infinite.length ? line.cell.seeds.length : null);

/** Columns: what they are called, what they are sorted by (the better end first), whether their numbers then fall, and what they show. */
function summaryColumns(task, view) {
  const sign = view.info.higher ? -1 : 1;
  const falls = view.info.higher;
  const reference = view.lines[view.against].name;
  const pooled = view.choice.data === "pooled"; // of which there is no worst tenth
  const known = (x, f) => (x === null || x === undefined ? null : f(x));
  const short = (x) => known(x, (value) => countText(value)) ?? "\u2013";
  const columns = [
    { key: "method", words: "method", by: (line) => line.i },
    { key: "value", words: view.info.words, falls, by: (line) => (line.infinite.length ? Infinity : known(line.number, (n) => sign * n.mean)), show: (line) => (line.infinite.length ? INFINITE : numberText(line.number, view.info)) },
    { key: "apart", words: `minus ${cut(reference, 24)}`, falls, by: (line) => (line.i === view.against ? 0 : known(line.apart, (a) => sign * a.mean)), show: (line) => apartNode(line, view) },
    { key: "counts", words: "better / equal / worse", falls: true, by: (line) => known(line.counts, (c) => -c.wins + c.losses), show: (line) => countsNode(line) },
    { key: "tenth", words: "worst tenth (samples)", falls, by: (line) => known(pooled ? null : tenthOf(task, line), (x) => sign * x), show: (line) => tenthText(task, line, view.info) },
    { key: "gradients", words: "gradients", by: (line) => line.method.gradients, show: (line) => short(line.method.gradients) },
    { key: "megabytes", words: "MB sent", by: (line) => line.method.megabytes, show: (line) => short(line.method.megabytes) },
    { key: "seconds", words: "seconds", by: (line) => line.method.seconds, show: (line) => short(line.method.seconds) },
    { key: "seeds", words: "seeds", falls: true, by: (line) => known(seedsOf(line), (n) => -n), show: (line) => known(seedsOf(line), String) ?? "\u2013" },
  ];
  if (state.client !== null) {
    const value = (line) => (line.clients ? line.clients[state.client] : null);
    const words = `client ${cut(task.clients[state.client], 16)}`;
    const show = (line) => known(value(line), (x) => valueText(x, view.info)) ?? "\u2013";
    columns.splice(4, 0, { key: "client", words, falls, by: (line) => known(value(line), (x) => sign * x), show });
  }
  return columns.filter((column) => column.key === "method" || view.lines.some((line) => column.by(line) !== null));
}

function apartNode(line, view) {
  if (line.i === view.against) return h("span", { class: "quiet" }, "reference");
  if (!line.apart) return "\u2013";
  const { mean: middle, low, high } = line.apart;
  const bounds = low === null ? "" : ` [${valueText(low, view.info, true)}, ${valueText(high, view.info, true)}]`;
  const words = h("span", { class: "figure" }, valueText(middle, view.info, true), h("span", { class: "quiet" }, bounds));
  return h("div", { class: "apart" }, intervalGlyph(line, view), words);
}

function intervalGlyph(line, view) {
  const ends = view.lines.flatMap((each) => (each.apart ? [each.apart.mean, each.apart.low, each.apart.high] : []));
  const known = ends.filter((x) => x !== null);
  const x = scaleOf(Math.min(0, ...known), Math.max(0, ...known), 4, 106);
  const { mean: middle, low, high } = line.apart;
  const colour = line.adjusted !== null && line.adjusted < LEVEL ? ((middle > 0) === view.info.higher ? "better" : "worse") : "same";
  return s(
    "svg",
    { viewBox: "0 0 110 16", class: "glyph", "aria-hidden": "true" },
    s("line", { x1: x(0), x2: x(0), y1: 1, y2: 15, class: "zero" }),
    low === null ? null : s("line", { x1: x(low), x2: x(high), y1: 8, y2: 8, class: `range ${colour}` }),
    s("circle", { cx: x(middle), cy: 8, r: 3.2, class: `dot ${colour}` }),
  );
}

function countsNode(line) {
  if (!line.counts) return "\u2013";
  const { wins, ties, losses } = line.counts;
  return [h("span", { class: "good" }, String(wins)), ` / ${ties} / `, h("span", { class: "bad" }, String(losses))];
}

function drawSummary(body, task, view) {
  const columns = summaryColumns(task, view);
  const sorted = columns.find((column) => column.key === state.sort.key) || columns[0];
  const place = (line) => sorted.by(line);
  const lines = [...view.lines].sort((a, b) => {
    const [x, y] = [place(a), place(b)];
    if (x === null || y === null) return (x === null) - (y === null) || a.i - b.i;
    return (state.sort.down ? -1 : 1) * (x - y) || a.i - b.i;
  });
  const resort = (key) => {
    state.sort = { key, down: state.sort.key === key && !state.sort.down };
    drawSummary(body, task, view);
    const again = body.querySelector(`button[data-sort="${key}"]`);
    if (again) again.focus();
    tell(`sorted by ${columns.find((column) => column.key === key).words}${state.sort.down ? ", reversed" : ""}`);
  };
  const heads = columns.map((column) => {
    const order = column !== sorted ? "none" : Boolean(column.falls) !== state.sort.down ? "descending" : "ascending";
    const mark = { none: "", descending: " \u25be", ascending: " \u25b4" }[order];
    const button = h("button", { type: "button", class: "head", "data-sort": column.key, onclick: () => resort(column.key) }, column.words + mark);
    return h("th", { scope: "col", "aria-sort": order, class: `of-${column.key}` }, button);
  });
  const rows = lines.map((line) => {
    const choose = h("button", { type: "button", class: "name", "aria-pressed": String(line.i === state.method), onclick: () => chooseMethod(line.i) },
      h("span", { class: `swatch ${colourOf(line.method)}` }), cut(line.name, 20));
    if (line.name.length > 20) choose.title = line.name;
    const stands = line.cell && line.cell.model !== view.choice.model ? h("span", { class: "quiet" }, ` (${line.cell.model})`) : null;
    const cells = columns.slice(1).map((column) => h("td", { "data-label": column.words, class: `of-${column.key}` }, column.show(line)));
    const kind = [line.i === view.against && "reference", view.best.includes(line.i) && "best"].filter(Boolean).join(" ");
    return h("tr", { class: kind || null, "data-method": line.i }, h("th", { scope: "row" }, choose, stands), ...cells);
  });
  const phone = chooser("sort by", "sort", columns.map((column) => [column.key, column.words]), sorted.key, resort);
  phone.classList.add("narrow");
  body.replaceChildren(
    phone,
    h("div", { class: "wide" }, h("table", { class: "summary" }, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows))),
    h("p", { class: "quiet hint" }, summaryHint(view)),
  );
}

function summaryHint(view) {
  const parts = ["Choose a heading to sort by it, a method to see its clients below."];
  if (view.lines.some((line) => line.number && line.number.std !== null)) parts.push("\u00b1 is one standard deviation over seeds.");
  if (view.lines.some((line) => line.apart && line.apart.low !== null)) {
    parts.push("Brackets and bars are unadjusted 95 % intervals of the difference over paired seeds; a colour means that the difference can be told from 0 after Holm\u2019s adjustment.");
  }
  if (view.choice.data === "own" && view.lines.some((line) => line.cell && line.cell.tenth)) parts.push("In parentheses: the test samples behind the worst tenth of clients.");
  parts.push("Gradients, megabytes and seconds are of the whole run.");
  if (view.lines.some((line) => line.method.hvps)) parts.push("A Hessian-vector product counts as two gradients.");
  return parts.join(" ");
}

/** Methods in rows and tasks in columns, as the paper's first table. */
function drawOverview(body, caption) {
  const choice = state.choice;
  const views = data.tasks.map((task) => {
    const own = settled(task, choice);
    return ["metric", "model", "data", "round"].every((key) => own[key] === choice[key]) ? viewOf(task, own) : null; // what the caption says
  });
  const info = views.find((view) => view)?.info;
  if (!info) return;
  const table = data.rows.map(([id, name]) => {
    const numbers = views.map((view) => view?.lines.find((line) => line.method.id === id)?.number ?? null);
    const means = numbers.filter(Boolean).map((number) => number.mean);
    const whole = means.length === numbers.length;
    return { name, numbers, average: whole ? mean(means) : null, spread: whole ? deviation(means) : null };
  });
  const best = (column) => {
    const known = table.map(column).filter((x) => x !== null && x !== undefined);
    return known.length ? valueText(info.higher ? Math.max(...known) : Math.min(...known), info) : null;
  };
  const tops = [...data.tasks.map((_, k) => best((row) => row.numbers[k]?.mean ?? null)), best((row) => row.average)];
  const cell = (words, top, value) => h("td", { "data-label": top.name }, value !== null && valueText(value, info) === top.best ? h("strong", {}, words) : words);
  const rows = table.map((row) =>
    h("tr", {}, h("th", { scope: "row" }, row.name),
      ...row.numbers.map((number, k) => cell(numberText(number, info), { name: data.tasks[k].name, best: tops[k] }, number ? number.mean : null)),
      cell(row.average === null ? "\u2013" : valueText(row.average, info), { name: "average", best: tops[tops.length - 1] }, row.average),
      h("td", { "data-label": "deviation over tasks" }, row.spread === null ? "\u2013" : valueText(row.spread, info))),
  );
  const heads = data.tasks.map((task, k) =>
    h("th", { scope: "col" }, h("button", { type: "button", class: "head", "data-head": k, "aria-pressed": String(k === state.task), onclick: () => chooseTask(k) }, task.name)),
  );
  const head = h("tr", {}, h("th", { scope: "col" }, "method"), ...heads, ...["average", "deviation over tasks"].map((words) => h("th", { scope: "col" }, words)));
  body.replaceChildren(
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "methods and tasks" },
      h("table", { class: "overview" }, h("thead", {}, head), h("tbody", {}, ...rows))),
    h("p", { class: "quiet hint" }, "Choose a task to see all of it below. The best number of each column is bold; \u00b1 is one standard deviation over seeds."),
    ...data.notes.map((note) => h("p", { class: "quiet hint" }, note)),
  );
  caption.textContent = choiceWords(choice, info);
}
