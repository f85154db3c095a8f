// What it costs: the metric against gradients, bytes or seconds, and the best to be had for the cost.

const COSTS = { gradients: "gradients of the federation in the run", megabytes: "megabytes sent in the run", seconds: "seconds of the run" };

function drawCost(body, task, view) {
  const known = Object.entries(COSTS).filter(([key]) => task.methods.some((method) => method[key] !== null));
  if (!known.length) {
    body.replaceChildren(h("p", { class: "quiet" }, "These records do not hold what their runs took."));
    return;
  }
  const kind = known.some(([key]) => key === state.cost) ? state.cost : known[0][0];
  const points = view.lines.filter((line) => line.number && line.method[kind] !== null).map((line) => ({ line, cost: line.method[kind], value: line.number.mean }));
  const figure = h("figure", {});
  const bars = points.some(({ line }) => line.number.std !== null) ? " Bars: one standard deviation over seeds." : "";
  const words = `Dashed: the best to be had for the cost.${bars}`;
  body.replaceChildren(h("div", { class: "controls" }, chooser("cost", "cost", known, kind, chooseCost), h("p", { class: "quiet hint" }, words)), figure);
  if (points.length) costFigure(figure, points, kind, view);
}

/** The points that no cheaper one equals or beats, the cheapest first. */
function frontierOf(points, info) {
  const sign = info.higher ? 1 : -1;
  let best = -Infinity;
  return [...points].sort((a, b) => a.cost - b.cost || sign * (b.value - a.value)).filter((point) => {
    if (sign * point.value <= best) return false;
    best = sign * point.value;
    return true;
  });
}

function costFigure(figure, points, kind, view) {
  const width = Math.max(280, figure.clientWidth);
  const [left, right, height] = [44, 24, clamp(width * 0.42, 240, 360)];
  const bottom = height - 44;
  const positive = points.map((point) => point.cost).filter((cost) => cost > 0);
  const [low, high] = positive.length ? [Math.min(...positive) / 1.25, Math.max(...positive) * 1.25] : [1, 10];
  const free = points.some((point) => point.cost <= 0);
  const along = scaleOf(Math.log(low), Math.log(high), left + (free ? 60 : 8), width - right);
  const x = (cost) => (cost > 0 ? along(Math.log(cost)) : left + 18);
  const spread = points.flatMap(({ line, value }) => [value - (line.number.std || 0), value + (line.number.std || 0)]);
  const [under, over] = [Math.min(...spread), Math.max(...spread)];
  const pad = 0.08 * (over - under) || 1;
  const y = scaleOf(under - pad, over + pad, bottom, 12);
  const parts = [];
  for (const t of ticks(under - pad, over + pad, 5)) {
    parts.push(s("line", { x1: left, x2: width - right, y1: y(t), y2: y(t), class: "grid" }), label(left - 6, y(t) + 4, String(t), { "text-anchor": "end" }));
  }
  const round = positive.length ? logTicks(low, high) : [];
  const marks = round.length ? round : positive.slice(0, 1); // costs that are all alike may lie between round numbers
  const every = Math.ceil(marks.length / (width < 560 ? 4 : 9));
  marks.filter((_, k) => k % every === 0).forEach((t) => parts.push(label(x(t), bottom + 16, countText(t), { "text-anchor": "middle" })));
  if (free) parts.push(label(x(0), bottom + 16, "0", { "text-anchor": "middle" }));
  parts.push(label(width - right, bottom + 34, `${COSTS[kind]} (log scale)`, { "text-anchor": "end", class: "label quiet" }));
  const frontier = frontierOf(points, view.info);
  const path = frontier.map((point, k) => (k ? `H${x(point.cost).toFixed(1)}V${y(point.value).toFixed(1)}` : `M${x(point.cost).toFixed(1)} ${y(point.value).toFixed(1)}`)).join("");
  parts.push(s("path", { d: `${path}H${width - right}`, class: "frontier" }));
  const taken = points.map((point) => [x(point.cost) - 6, y(point.value) - 6, 12, 12]);
  const names = [];
  for (const { line, cost, value } of [...frontier, ...points.filter((point) => !frontier.includes(point))]) {
    const [cx, cy, colour] = [x(cost), y(value), colourOf(line.method)];
    if (line.number.std) parts.push(s("line", { x1: cx, x2: cx, y1: y(value - line.number.std), y2: y(value + line.number.std), class: `error ${colour}` }));
    const text = `${line.name}: ${numberText(line.number, view.info)} at ${countText(cost)}`;
    parts.push(s("circle", { cx, cy, r: line.i === view.against ? 6 : 4.8, class: `dot ${colour}`, "data-method": line.i }, s("title", {}, text)));
    const words = cut(line.name, width < 560 ? 12 : 22);
    const place = freePlace(cx, cy, words.length * 7.3 + 4, taken, width - right + 20, bottom);
    if (place) {
      taken.push(place);
      names.push(label(place[0] + 2, place[1] + 11, words, { "data-method": line.i }));
    }
  }
  const told = points.map(({ line, cost }) => `${line.name} ${valueText(line.number.mean, view.info)} at ${countText(cost)}`);
  const about = `${view.info.words} against ${COSTS[kind]}: ${told.join(", ")}. Best for the cost: ${frontier.map(({ line }) => line.name).join(", ")}.`;
  figure.replaceChildren(chart(width, height, about, ...parts, ...names));
}

/** A place beside a point that covers nothing else: [x, y, width, height], or null. */
function freePlace(cx, cy, size, taken, edge, bottom) {
  const tries = [[6, -20], [6, 4], [-size - 6, -20], [-size - 6, 4], [8, -8], [-size - 8, -8], [-size / 2, -24], [-size / 2, 8]];
  for (const [dx, dy] of tries) {
    const place = [cx + dx, cy + dy, size, 15];
    const inside = place[0] >= 40 && place[0] + size <= edge && place[1] >= 0 && place[1] + 15 <= bottom + 2;
    const clear = taken.every(([a, b, c, d]) => place[0] + size <= a || a + c <= place[0] || place[1] + 15 <= b || b + d <= place[1]);
    if (inside && clear) return place;
  }
  return null;
}
