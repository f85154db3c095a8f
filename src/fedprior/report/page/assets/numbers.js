// Arithmetic on the numbers of the page. The tests compare it with the library's, choice by choice.

const EQUAL = 1e-9;
const LEVEL = 0.05;
const FEW = 20;

const sum = (xs) => xs.reduce((total, x) => total + x, 0);
const inOrder = (x) => Math.round(x * 1e6); // beyond six digits, two numbers are equal when they are put in order
const mean = (xs) => sum(xs) / xs.length;

/** The least and the largest; there may be too many for arguments of a function. */
const extent = (xs) => xs.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);

/** The standard deviation with n - 1; null for a single number. */
function deviation(xs) {
  if (xs.length < 2) return null;
  const middle = mean(xs);
  return Math.sqrt(sum(xs.map((x) => (x - middle) ** 2)) / (xs.length - 1));
}

/** The two-sided p-value of Student's t, in closed form for whole degrees of freedom (Abramowitz & Stegun 26.7.3-4). */
function twoSided(t, dof) {
  const angle = Math.atan(Math.abs(t) / Math.sqrt(dof));
  const [sine, square] = [Math.sin(angle), Math.cos(angle) ** 2];
  let term = dof % 2 ? Math.cos(angle) : 1;
  let series = dof === 1 ? 0 : term;
  for (let k = dof % 2 ? 3 : 2; k < dof; k += 2) {
    term *= (square * (k - 1)) / k;
    series += term;
  }
  const inside = dof % 2 ? (2 / Math.PI) * (angle + sine * series) : sine * series;
  return Math.min(1, Math.max(0, 1 - inside));
}

/** The p-value of paired differences; null for a single one, and for those that agree by chance to the last digit. */
function pValue(differences) {
  if (differences.length < 2) return null;
  const middle = mean(differences);
  const error = deviation(differences) / Math.sqrt(differences.length);
  if (error <= EQUAL) return Math.abs(middle) <= EQUAL ? 1 : null;
  return twoSided(middle / error, differences.length - 1);
}

/** Holm's adjustment; a null stays one and is not counted. */
function holm(ps) {
  const order = ps.map((p, i) => i).filter((i) => ps[i] !== null).sort((a, b) => ps[a] - ps[b]);
  const adjusted = ps.map(() => null);
  let above = 0;
  order.forEach((i, k) => {
    above = Math.max(above, Math.min(1, (order.length - k) * ps[i]));
    adjusted[i] = above;
  });
  return adjusted;
}

/** Wilson's 95 % interval, in percent, of a share that was seen on so many samples. */
function wilson(percent, samples) {
  const [p, z] = [percent / 100, 1.959963984540054];
  const middle = (p + (z * z) / (2 * samples)) / (1 + (z * z) / samples);
  const half = (z / (1 + (z * z) / samples)) * Math.sqrt((p * (1 - p)) / samples + (z * z) / (4 * samples * samples));
  return [Math.max(0, 100 * (middle - half)), Math.min(100, 100 * (middle + half))];
}

/** A number with so many digits after the point; exact halves go to the even digit, as in the library's tables. */
function fixed(x, digits, sign = false) {
  let shown = Math.abs(x).toFixed(digits);
  const exact = Math.abs(x).toFixed(Math.min(100, digits + 25)).slice(shown.length + (digits ? 0 : 1));
  if (/^50*$/.test(exact) && Number(shown[shown.length - 1]) % 2) {
    shown = (Number(shown) - 10 ** -digits).toFixed(digits);
  }
  if (!/[1-9]/.test(shown)) return shown; // what rounds to nothing has no sign
  return (x < 0 ? "\u2212" : sign ? "+" : "") + shown;
}

/** A value of a metric as text: percentages with two digits, other numbers with three. */
const valueText = (x, info, sign = false) => fixed(x, info.unit === "%" ? 2 : 3, sign);

/** A large number with three digits and a letter for its size. */
function countText(count) {
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= 0.9995 * size) return `${Number((count / size).toPrecision(3))}${letter}`;
  }
  return `${Number(Number(count).toPrecision(3))}`;
}

/** Round numbers between two others. */
function ticks(low, high, most = 6) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * (1 - 1e-9));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= Math.floor(high / step + 1e-9); k++) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

/** 1, 2 and 5 times powers of ten between two positive numbers. */
function logTicks(low, high) {
  const found = [];
  for (let k = Math.floor(Math.log10(low)) - 1; k <= Math.ceil(Math.log10(high)); k++) {
    for (const m of [1, 2, 5]) {
      const tick = m * 10 ** k;
      if (tick * (1 + 1e-9) >= low && tick <= high * (1 + 1e-9)) found.push(tick);
    }
  }
  return found;
}

/** Where to centre labels of one size so that they do not overlap and stay near to where they belong. */
function pushedApart(wanted, size, low, high) {
  const order = wanted.map((w, i) => i).sort((a, b) => wanted[a] - wanted[b] || a - b);
  const blocks = [];
  for (const i of order) {
    blocks.push({ members: [i], at: wanted[i] });
    while (blocks.length > 1) {
      const [one, two] = blocks.slice(-2);
      const gap = (size * (one.members.length + two.members.length)) / 2;
      if (two.at - one.at >= gap - 1e-9) break;
      const members = [...one.members, ...two.members];
      const start = mean(members.map((m, k) => wanted[m] - size * k));
      blocks.splice(-2, 2, { members, at: start + (size * (members.length - 1)) / 2 });
    }
  }
  const placed = Array(wanted.length).fill(0);
  let before = low;
  const room = high - size * wanted.length >= low;
  for (const block of blocks) {
    let start = block.at - (size * block.members.length) / 2;
    if (room) start = Math.max(start, before);
    block.members.forEach((m, k) => (placed[m] = start + size * (k + 0.5)));
    before = start + size * block.members.length;
  }
  if (room) {
    let after = high;
    for (const i of [...order].reverse()) {
      placed[i] = Math.min(placed[i], after - size / 2);
      after = placed[i] - size / 2;
    }
  }
  return placed;
}
