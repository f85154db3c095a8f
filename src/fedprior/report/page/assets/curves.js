// Learning curves: names at their ends, methods switched on and off, values under the pointer or the arrow keys, zoom.

const ALONG = { rounds: "round", gradients: "gradients of the federation", megabytes: "megabytes sent", seconds: "seconds" };

function shownCurves(task, view) {
  return view.lines
    .filter((line) => !state.hidden.has(line.method.id))
    .map((line) => {
      const curve = curveOf(task, view.choice, line.i);
      if (!curve) return null;
      const { rounds } = line.method;
      const factor = state.along === "rounds" ? 1 : line.method[state.along] === null ? null : line.method[state.along] / rounds;
      if (factor === null) return null;
      return { line, ...curve, rounds: curve.x, x: curve.x.map((t) => t * factor) };
    })
    .filter(Boolean);
}

/** The curves as they are drawn: one that spends nothing of what is looked along is a level line at its end. */
function acrossOf(curves) {
  const far = Math.max(...curves.map((curve) => curve.x[curve.x.length - 1])) || 1;
  return curves.map((curve) => {
    if (curve.x[curve.x.length - 1] > 0) return curve;
    let last = curve.y.length - 1;
    while (curve.y[last] === null) last--;
    const level = (values) => values && [values[last], values[last]];
    return { ...curve, x: [0, far], y: level(curve.y), s: level(curve.s) };
  });
}

/** What there is to read at a place: each curve's value, the best first, and after them the ends of those that end before it. */
function valuesAt(curves, place, info) {
  const rows = curves.map((curve) => {
    const end = curve.x[curve.x.length - 1];
    if (end < place - 1e-9) return { line: curve.line, y: lastOf(curve.y), ended: end };
    let i = curve.x.length - 1;
    while (i > 0 && curve.x[i] > place + 1e-9) i--;
    return { line: curve.line, y: curve.x[i] <= place + 1e-9 ? curve.y[i] : null, ended: null };
  });
  const known = rows.filter(({ y }) => y !== null).sort((a, b) => (info.higher ? b.y - a.y : a.y - b.y));
  return [...known.filter(({ ended }) => ended === null), ...known.filter(({ ended }) => ended !== null)];
}

/** The part of the axis that is shown when zoomed: from the best value to somewhat beyond the worst end. */
function endsRange(curves, info) {
  const sign = info.higher ? 1 : -1;
  const good = curves.map((curve) => curve.y.filter((y) => y !== null).map((y) => sign * y)).filter((ys) => ys.length);
  const ends = good.map((ys) => ys[ys.length - 1]).sort((a, b) => a - b);
  const best = Math.max(...good.map((ys) => Math.max(...ys)));
  const quartile = ends[Math.floor((ends.length - 1) / 4)];
  const least = info.unit === "%" ? 2 : 0.02 * Math.max(Math.abs(best), 1e-6);
  const worst = Math.min(...ends.filter((end) => end >= quartile - 1.5 * Math.max(best - quartile, least)));
  const span = Math.max(best - worst, least);
  const late = Math.min(...good.filter((ys) => ys[ys.length - 1] >= worst).map((ys) => Math.min(...ys.slice(Math.floor(ys.length / 2)))));
  const edge = Math.max(Math.min(late, worst - 0.4 * span), worst - 1.5 * span);
  const [low, high] = [sign * edge, sign * (best + 0.1 * span)].sort((a, b) => a - b);
  return info.unit === "%" ? [Math.max(low, 0), Math.min(high, 100.5)] : [low, high];
}

function wholeRange(curves, info) {
  const every = curves.flatMap((curve) => curve.y.filter((y) => y !== null));
  const [low, high] = [Math.min(...every), Math.max(...every)];
  const pad = 0.04 * (high - low) || 1;
  return info.unit === "%" ? [Math.max(0, low - pad), Math.min(101, high + pad)] : [low - pad, high + pad];
}

function drawCurves(body, task, view) {
  const chips = view.lines.map((line) =>
    h("button", { type: "button", class: "chip", "aria-pressed": String(!state.hidden.has(line.method.id)), "data-method": line.i,
      onclick: () => toggleMethod(line.method.id), onpointerenter: () => highlight(line.i), onpointerleave: () => highlight(null),
      onfocus: () => highlight(line.i), onblur: () => highlight(null) },
      h("span", { class: `swatch ${colourOf(line.method)}` }), cut(line.name, 34)));
  const every = (words, hidden) => h("button", { type: "button", class: "plain", onclick: () => hideAll(hidden) }, words);
  const zoom = h("button", { type: "button", class: "plain", "aria-pressed": String(state.zoom), id: "zoom", onclick: toggleZoom }, "zoom to where they end");
  const known = Object.entries(ALONG).filter(([key]) => key === "rounds" || task.methods.some((method) => method[key]));
  if (!known.some(([key]) => key === state.along)) state.along = "rounds"; // another task may have recorded less
  const along = chooser("along", "along", known, state.along, chooseAlong);
  const curves = shownCurves(task, view).filter((curve) => curve.y.some((y) => y !== null));
  const controls = h("div", { class: "controls" }, h("div", { class: "chips", role: "group", "aria-label": "methods shown" }, ...chips),
    view.lines.length > 3 ? every("all", false) : null, view.lines.length > 3 ? every("none but the reference", true) : null, zoom, along);
  if (!curves.length) {
    body.replaceChildren(controls, h("p", { class: "quiet" }, "No method that is switched on has a curve here."));
    return;
  }
  const figure = h("figure", {});
  body.replaceChildren(controls, figure, curveTable(curves, view));
  curveFigure(figure, acrossOf(curves), view);
}

function curveFigure(figure, curves, view) {
  const width = Math.max(280, figure.clientWidth);
  const narrow = width < 560;
  const longest = Math.max(...curves.map((curve) => Math.min(curve.line.name.length, narrow ? 11 : 20)));
  const [left, right] = [44, clamp(longest * 7 + 34, 70, narrow ? 100 : 170)];
  const height = clamp(Math.max(width * 0.46, curves.length * 12.5 + 60), 260, 460);
  const bottom = height - 40;
  const [low, high] = state.zoom ? endsRange(curves, view.info) : wholeRange(curves, view.info);
  const far = Math.max(...curves.map((curve) => curve.x[curve.x.length - 1])) || 1;
  const x = scaleOf(0, far, left, width - right);
  const y = scaleOf(low, high, bottom, 10);
  const clip = `clip-${state.task}`;
  const parts = [s("clipPath", { id: clip }, s("rect", { x: left, y: 4, width: width - right - left + 3, height: bottom - 4 }))];
  for (const t of ticks(low, high, 6)) {
    parts.push(s("line", { x1: left, x2: width - right, y1: y(t), y2: y(t), class: "grid" }), label(left - 6, y(t) + 4, String(t), { "text-anchor": "end" }));
  }
  for (const t of ticks(0, far, narrow ? 3 : 6).filter((each) => state.along !== "rounds" || Number.isInteger(each))) {
    parts.push(label(x(t), bottom + 16, state.along === "rounds" ? String(t) : countText(t), { "text-anchor": "middle" }));
  }
  parts.push(label(width - right, bottom + 32, ALONG[state.along], { "text-anchor": "end", class: "label quiet" }));
  const lines = s("g", { "clip-path": `url(#${clip})` });
  for (const curve of curves) lines.append(...curveMarks(curve, x, y, view, curves.length <= 8));
  parts.push(lines, ...endNames(curves, x, y, [low, high], [left, width - right, bottom], narrow, view));
  const guide = s("line", { y1: 6, y2: bottom, class: "guide", visibility: "hidden" });
  parts.push(guide);
  const ends = curves.map((curve) => `${curve.line.name} ${valueText(lastOf(curve.y), view.info)}`);
  const svg = chart(width, height, `Learning curves; where they end: ${ends.join(", ")}.`, ...parts);
  const about = "Learning curves: the left and right arrow keys read the values round by round.";
  const stage = h("div", { class: "stage", tabindex: 0, role: "group", "aria-label": about }, svg);
  figure.replaceChildren(stage);
  readValues(figure, stage, svg, guide, curves, x, view, width);
}

const lastOf = (ys) => [...ys].reverse().find((y) => y !== null);

function curveMarks(curve, x, y, view, banded) {
  const kind = `${colourOf(curve.line.method)}${curve.line.i === view.against ? " reference" : ""}`;
  const points = curve.x.map((t, k) => (curve.y[k] === null ? null : [x(t), y(curve.y[k])]));
  const path = (list) => list.map((p, k) => (p ? `${k && list[k - 1] ? "L" : "M"}${p[0].toFixed(1)} ${clamp(p[1], -4000, 4000).toFixed(1)}` : "")).join("");
  const marks = [];
  if (curve.s && curve.x.length > 1) {
    const band = (sign) => curve.x.map((t, k) => (curve.y[k] === null ? null : [x(t), y(curve.y[k] + sign * (curve.s[k] || 0))])).filter(Boolean);
    const around = [...band(1), ...band(-1).reverse()];
    marks.push(s("path", { d: `${path(around)}Z`, class: `band ${kind}${banded ? "" : " faint"}`, "data-method": curve.line.i }));
  }
  if (curve.x.length === 1 && points[0]) marks.push(s("circle", { cx: points[0][0], cy: points[0][1], r: 4, class: `dot ${kind}`, "data-method": curve.line.i }));
  marks.push(s("path", { d: path(points), class: `curve ${kind}`, "data-method": curve.line.i }));
  return marks;
}

/** Names at the ends of lines; where there is no room for all, those with a colour. */
function endNames(curves, x, y, [low, high], [left, edge, bottom], narrow, view) {
  const size = 12.5;
  const room = Math.floor((bottom - 4) / size);
  const named = curves.length <= room ? curves : curves.filter((curve) => curve.line.method.colour !== null).slice(0, room);
  const ends = named.map((curve) => clamp(y(lastOf(curve.y)), 8, bottom - 4));
  const places = pushedApart(ends, size, 2, bottom + 2);
  return named.flatMap((curve, k) => {
    const end = lastOf(curve.y);
    const off = end < low || end > high ? ` (${valueText(end, view.info)})` : "";
    const from = x(curve.x[curve.x.length - 1]);
    const far = edge - from > 12 ? " far" : ""; // which is no part of the curve
    const marks = { class: `leader${far} ${colourOf(curve.line.method)}`, "data-method": curve.line.i };
    return [
      s("path", { d: `M${from.toFixed(1)} ${ends[k].toFixed(1)}L${edge + 7} ${places[k].toFixed(1)}H${edge + 11}`, ...marks }),
      label(edge + 14, places[k] + 4, cut(curve.line.name, narrow ? 11 : 20) + off, { "data-method": curve.line.i }),
    ];
  });
}

/** Values at the pointer, or where the arrow keys have gone. */
function readValues(figure, stage, svg, guide, curves, x, view, width) {
  const xs = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  let at = xs.length - 1;
  const show = (k, aloud) => {
    at = clamp(k, 0, xs.length - 1);
    const values = valuesAt(curves, xs[at], view.info);
    guide.setAttribute("x1", x(xs[at]));
    guide.setAttribute("x2", x(xs[at]));
    guide.setAttribute("visibility", "visible");
    const placed = (t) => (state.along === "rounds" ? `round ${t}` : `${countText(t)} ${ALONG[state.along]}`);
    const endOf = (ended) => (ended === null ? "" : ` (ended at ${placed(ended)})`);
    const where = placed(xs[at]);
    const rest = values.length - 14;
    const lines = values.slice(0, 14).map(({ line, y, ended }) => [`${valueText(y, view.info)}  ${cut(line.name, 28)}${endOf(ended)}`, `value ${colourOf(line.method)}`]);
    tip(figure, (x(xs[at]) / width) * figure.clientWidth, [[where, "title"], ...lines, ...(rest > 0 ? [[`and ${rest} more`, "quiet"]] : [])]);
    if (aloud) tell(`${where}: ${values.map(({ line, y, ended }) => `${line.name} ${valueText(y, view.info)}${endOf(ended)}`).join(", ")}`);
  };
  const hide = () => {
    guide.setAttribute("visibility", "hidden");
    untip(figure);
  };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * width;
    let near = 0;
    xs.forEach((t, k) => (Math.abs(x(t) - place) < Math.abs(x(xs[near]) - place) ? (near = k) : null));
    show(near, false);
  };
  stage.addEventListener("pointermove", point);
  stage.addEventListener("pointerdown", point);
  stage.addEventListener("pointerleave", hide);
  stage.addEventListener("blur", hide);
  stage.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -xs.length, End: xs.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    show(guide.getAttribute("visibility") === "visible" ? at + step : at, true);
  });
}

function curveTable(curves, view) {
  return unfoldable("These curves as a table", "curve-table", () => {
    const rounds = [...new Set(curves.flatMap((curve) => curve.rounds))].sort((a, b) => a - b);
    const every = Math.ceil(rounds.length / 20);
    const kept = rounds.filter((_, k) => k % every === 0 || k === rounds.length - 1);
    const cell = (curve, t) => {
      const k = curve.rounds.indexOf(t);
      return k < 0 || curve.y[k] === null ? "\u2013" : valueText(curve.y[k], view.info);
    };
    const rows = kept.map((t) => [String(t), ...curves.map((curve) => cell(curve, t))]);
    return tableOf("about", ["round", ...curves.map((curve) => curve.line.name)], rows, "learning curves");
  });
}
