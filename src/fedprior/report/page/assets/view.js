// What is shown at one choice of metric, model, data, average, round and reference.

/** One method's numbers at a choice: averages by seed, none if any is infinite, and every client's value. */
function cellOf(task, choice, i) {
  const block = ((task.blocks[choice.metric] || {})[choice.model] || {})[choice.round];
  const cell = block && block.cells[i];
  if (!cell) return null;
  const seeds = task.arrays[cell.seeds];
  const key = choice.data === "pooled" ? "pooled" : choice.average;
  const [stored, infinite, values] = [cell.averages[key], infiniteOf(cell, key), {}];
  if (stored !== undefined && !infinite.length) {
    task.arrays[stored].forEach((value, k) => {
      if (value !== null) values[seeds[k]] = value;
    });
  }
  return { ...cell, seeds, values, beyond: infinite, ends: [...new Set(task.arrays[cell.rounds])].sort((a, b) => a - b) };
}

/** The seeds with which an average is infinite. */
const infiniteOf = (cell, key) => (cell.infinite && cell.infinite[key]) || [];

/** The clients' values averaged over seeds, null for a client without one; null if there are none at all. */
function clientValues(task, cell, seeds) {
  if (!cell || !cell.clients) return null;
  const together = cell.groups === 1;
  const groups = together ? [0] : seeds.map((seed) => cell.seeds.indexOf(seed));
  const every = groups.map((g) => {
    const [place, evaluations] = cell.clients[g];
    return task.arrays[place].map((x, c) =>
      x === null || !evaluations ? x : (100 * x) / (task.samples[c] * evaluations),
    );
  });
  return task.samples.map((_, c) => (every.some((each) => each[c] === null) ? null : mean(every.map((each) => each[c]))));
}

/** A variant minus another over the seeds that both have; null if there are none. */
function apartOf(task, ours, theirs) {
  const seeds = Object.keys(ours).map(Number).filter((seed) => seed in theirs).sort((a, b) => a - b);
  if (!seeds.length) return null;
  const differences = seeds.map((seed) => ours[seed] - theirs[seed]);
  const middle = mean(differences);
  const n = differences.length;
  const agree = Math.max(...differences) - Math.min(...differences) <= EQUAL && Math.abs(middle) > EQUAL;
  const half = n > 1 && !agree ? (task.quantiles[n - 2] * deviation(differences)) / Math.sqrt(n) : null;
  return {
    mean: middle,
    low: half === null ? null : middle - half,
    high: half === null ? null : middle + half,
    p: pValue(differences),
    seeds,
  };
}

/** How many clients gain, stay and lose. */
function countsOf(differences, info) {
  const known = differences.filter((d) => d !== null);
  if (!known.length) return null;
  const higher = known.filter((d) => d > EQUAL).length;
  const lower = known.filter((d) => d < -EQUAL).length;
  const [wins, losses] = info.higher ? [higher, lower] : [lower, higher];
  return { wins, ties: known.length - wins - losses, losses };
}

/** All methods at a choice, and what can be said of them. */
function viewOf(task, choice) {
  const info = task.metrics[choice.metric];
  const against = Math.max(0, task.methods.findIndex((method) => method.id === choice.against));
  const cells = task.methods.map((_, i) => cellOf(task, choice, i));
  const numbers = cells.map((cell) => (cell ? cell.values : {}));
  const aparts = numbers.map((ours, i) => (i === against ? null : apartOf(task, ours, numbers[against])));
  const adjusted = holm(aparts.map((apart) => (apart ? apart.p : null)));
  const lines = task.methods.map((method, i) => {
    const values = Object.values(numbers[i]);
    const apart = aparts[i];
    const seeds = apart ? apart.seeds : Object.keys(numbers[i]).map(Number);
    const clients = seeds.length ? clientValues(task, cells[i], seeds) : null;
    const theirs = apart && clients ? clientValues(task, cells[against], seeds) : null;
    const differences = theirs ? clients.map((x, c) => (x === null || theirs[c] === null ? null : x - theirs[c])) : null;
    return {
      i,
      name: method.name,
      method,
      cell: cells[i],
      number: values.length ? { mean: mean(values), std: deviation(values), seeds: Object.keys(numbers[i]) } : null,
      infinite: cells[i] ? cells[i].beyond : [],
      apart,
      adjusted: adjusted[i],
      clients,
      differences,
      counts: differences && choice.data === "own" ? countsOf(differences, info) : null,
    };
  });
  const block = ((task.blocks[choice.metric] || {})[choice.model] || {})[choice.round];
  const present = task.samples.map((_, c) => cells.some((cell) => cell && holdsClient(task, cell, c)));
  return {
    choice,
    info,
    against,
    lines,
    ...bestOf(task, lines, numbers, info),
    equal: block ? block.equal : [],
    few: info.share ? task.samples.filter((n, c) => present[c] && n < FEW).length : 0,
    clients: present.filter(Boolean).length,
  };
}

const holdsClient = (task, cell, c) => (cell.clients || []).some(([place]) => task.arrays[place][c] !== null);

/** The methods with the best mean as it is written, several in a tie: which others all of them beat, not all can be told from, or
 *  one is worse than over the seeds that both have. They were chosen by looking at the very numbers that are compared, so that
 *  the adjustment is for all pairs. */
function bestOf(task, lines, numbers, info) {
  const found = { best: [], beaten: [], untold: [], ahead: [], pairs: 0 };
  const sign = info.higher ? 1 : -1;
  const known = lines.filter((line) => line.number);
  if (!known.length) return found;
  const top = known.reduce((one, two) => (sign * two.number.mean > sign * one.number.mean ? two : one));
  found.best = known.filter((line) => valueText(line.number.mean, info) === valueText(top.number.mean, info)).map((line) => line.i);
  const pairs = known.flatMap((one, k) => known.slice(k + 1).map((two) => [one.i, two.i]));
  const aparts = pairs.map(([one, two]) => apartOf(task, numbers[one], numbers[two]));
  const adjusted = holm(aparts.map((apart) => (apart ? apart.p : null)));
  found.pairs = adjusted.filter((p) => p !== null).length;
  const gain = (one, other) => {
    const k = pairs.findIndex((pair) => pair.includes(one) && pair.includes(other));
    return adjusted[k] !== null && adjusted[k] < LEVEL ? sign * aparts[k].mean * (pairs[k][0] === one ? 1 : -1) : 0;
  };
  for (const other of known.map((line) => line.i).filter((i) => !found.best.includes(i))) {
    const least = Math.min(...found.best.map((one) => gain(one, other)));
    (least < 0 ? found.ahead : least > 0 ? found.beaten : found.untold).push(other);
  }
  return found;
}

/** A curve with its gaps: rounds, values and deviations. */
function curveOf(task, choice, i) {
  const stored = (((task.curves[choice.metric] || {})[choice.model] || {})[choice.average] || { of: [] });
  let found = stored.of[i];
  let model = choice.model;
  if (!found && stored.of.length && task.blocks[choice.metric][choice.model]) {
    const instead = { global: "personal", "newcomer-global": "newcomer" }[choice.model];
    const other = instead && task.curves[choice.metric][instead] && task.curves[choice.metric][instead][choice.average];
    found = other && other.of[i];
    if (found) return unpackCurve(task, found, other, instead);
  }
  return found ? unpackCurve(task, found, stored, model) : null;
}

function unpackCurve(task, found, { step, band }, model) {
  const running = (array, unit) => {
    let at = 0;
    return task.arrays[array].map((x) => (x === null ? null : (at += x) * unit));
  };
  return {
    model,
    x: running(found.x, 1),
    y: running(found.y, step),
    s: found.s === undefined ? null : task.arrays[found.s].map((x) => (x === null ? null : x * band)),
  };
}
