"use strict";
// What every chart shares: the data, the colours of the style sheet, drawing, and redrawing
// when the width, the colour scheme or the medium changes.

// All that the page holds, unpacked; `data` is the run that is shown.
let page = null;
let data = null;
const redraws = new Map();

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// The colour of one of `count` layers: the last one always stands out most.
function layerColour(place, count) {
  const stops = [0, 1, 2, 3, 4].map((stop) => channels(token(`ramp-${stop}`)));
  const along = count < 2 ? 4 : (4 * place) / (count - 1);
  const left = Math.min(3, Math.floor(along));
  const mixed = stops[left].map((from, c) => from + (along - left) * (stops[left + 1][c] - from));
  return `rgb(${mixed.map(Math.round).join(",")})`;
}

function axis(settings) {
  return {
    gridcolor: token("grid"),
    linecolor: token("line"),
    tickcolor: token("line"),
    zeroline: false,
    showline: true,
    ticks: "outside",
    ticklen: 4,
    automargin: true,
    fixedrange: true,
    exponentformat: "power",
    ...settings,
    title: { standoff: 8, ...(settings.title || {}) },
  };
}

function powerText(value, powers) {
  const exponent = Math.floor(Math.log10(value) + 1e-9);
  if (!powers || exponent === 0 || exponent === 1) return String(Number(value.toPrecision(3)));
  const mantissa = Number((value / 10 ** exponent).toPrecision(3));
  return `${mantissa === 1 ? "" : `${mantissa}×`}10<sup>${String(exponent).replace("-", "−")}</sup>`;
}

function steps(low, high, multiples) {
  const values = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) {
    values.push(...multiples.map((multiple) => multiple * 10 ** power));
  }
  return values;
}

// Values to mark between 10^low and 10^high: powers of ten, or round values where few fit.
function logMarks(low, high) {
  const span = high - low;
  const inside = (values) =>
    values.filter((value) => Math.log10(value) >= low - 1e-9 && Math.log10(value) <= high + 1e-9);
  if (span >= 2) {
    const every = Math.ceil(span / 6);
    return inside(steps(low, high, [1])).filter((value) => Math.round(Math.log10(value)) % every === 0);
  }
  if (span >= 0.6) return inside(steps(low, high, [1, 2, 5]));
  const size = (10 ** high - 10 ** low) / 4;
  const unit = 10 ** Math.floor(Math.log10(size));
  const step = [1, 2, 5, 10].map((multiple) => multiple * unit).find((value) => value >= size);
  const first = Math.ceil(10 ** low / step);
  return inside(Array.from({ length: 9 }, (_, place) => (first + place) * step).filter((v) => v > 0));
}

function emptyAxis(settings) {
  return axis({ range: [0, 1], showticklabels: false, ticks: "", ...settings });
}

// 0 has no logarithm: where the axis of these values has a mark for it, below all that have one.
function zeroPlace(values) {
  const logs = values.filter((value) => value > 0).map(Math.log10);
  if (!logs.length) return 1;
  const low = Math.min(...logs);
  return 10 ** (low - Math.max(0.15 * (Math.max(...logs) - low), 0.15));
}

// Values as they stand on the logarithmic axis of `all`; one below 0 has no place there.
function onLogAxis(values, all) {
  const zero = zeroPlace(all);
  return values.map((value) => (value === null || value < 0 ? null : value || zero));
}

// A logarithmic axis that holds the values from 0 on, its ticks all of one size.
function logAxis(values, settings, margin = 0.07) {
  const logs = values.filter((value) => value > 0).map(Math.log10);
  const zeros = values.includes(0) ? [zeroPlace(values)] : [];
  if (!logs.length && !zeros.length) return emptyAxis(settings);
  const low = Math.min(...logs);
  const high = Math.max(...logs, ...zeros.map(Math.log10));
  const bottom = zeros.length ? Math.log10(zeros[0]) : low;
  const room = margin * Math.max(high - bottom, 0.1);
  const marks = logs.length ? logMarks(zeros.length ? low : low - room, high + room) : [];
  const powers = marks.some((value) => value < 1e-3 || value >= 1e5);
  return axis({
    type: "log",
    range: [bottom - room, high + room],
    tickvals: [...zeros, ...marks],
    ticktext: [...zeros.map(() => "0"), ...marks.map((value) => powerText(value, powers))],
    ...settings,
  });
}

function linearAxis(values, settings) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return emptyAxis(settings);
  const low = Math.min(...known);
  const high = Math.max(...known);
  const room = 0.07 * (high - low || Math.abs(high) || 1);
  return axis({ range: [low - room, high + room], nticks: 6, ...settings });
}

const coarse = matchMedia("(pointer: coarse)").matches;

async function draw(node, traces, layout) {
  const label = node.getAttribute("aria-label");
  const camera = !coarse && !node.matches(".small");
  // The camera stands in a strip above the chart, where it hides nothing. A chart of rows has its own.
  node.classList.toggle("camera", camera && !node.matches(".rows"));
  const box = node.getBoundingClientRect();
  const strip = parseFloat(getComputedStyle(node).paddingTop);
  const common = {
    width: Math.floor(box.width),
    height: Math.floor(box.height - strip),
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: token("ink") },
    hoverlabel: { bgcolor: token("raised"), bordercolor: token("line"), font: { color: token("ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: token("soft"), activecolor: token("accent") },
    showlegend: false,
    dragmode: false,
    margin: { l: 8, r: 10, t: 8, b: 8 },
  };
  const config = {
    displaylogo: false,
    modeBarButtons: [["toImage"]],
    displayModeBar: camera ? "hover" : false,
    toImageButtonOptions: { format: "svg", filename: label },
  };
  await Plotly.react(node, traces, { ...common, ...layout }, config);
  node.dataset.drawn = "true";
}

// `redraw` draws all charts of one figure; it runs now and whenever the surroundings change.
function register(figure, redraw) {
  const known = redraws.has(figure);
  redraws.set(figure, redraw);
  redraw();
  if (known) return;
  let width = figure.clientWidth;
  new ResizeObserver(() => {
    if (figure.clientWidth === width) return;
    width = figure.clientWidth;
    if (redraws.has(figure)) requestAnimationFrame(() => redraws.get(figure)?.());
  }).observe(figure);
}

function redrawAll() {
  redraws.forEach((redraw) => redraw());
}

function setPrinting(printing) {
  if (document.documentElement.classList.contains("printing") === printing) return;
  document.documentElement.classList.toggle("printing", printing);
  redrawAll();
}

addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
