"use strict";
// A metric against time, one line a layer.

// Counts may be drawn as log(1 + count); values of a parameter not, as they may be small or negative.
function countsUp(run, times) {
  return ["epoch", "step", "iteration"].includes(run.unit) && Math.min(...times) >= 0;
}

function allTimes(run) {
  return Object.values(run.series).flatMap((split) => split.times);
}

// Counts are drawn as log(1 + count) where the last is many times the first; short runs are not.
function spreadsOut(run, times = allTimes(run)) {
  const first = Math.min(...times.filter((time) => time > 0));
  return countsUp(run, times) && Math.max(...times) >= 30 * first;
}

// Time 0 has no logarithm: times are placed at log10(1 + time), and the ticks say which they are.
function timePlace(time, logarithmic) {
  return logarithmic ? Math.log10(1 + time) : time;
}

function timeTicks(times, logarithmic, width) {
  const last = Math.max(...times);
  const candidates = [0];
  for (let power = 1; power <= last; power *= 10) candidates.push(power, 2 * power, 5 * power);
  candidates.push(last);
  const first = Math.min(...times);
  candidates.push(first);
  const span = timePlace(last, true) - timePlace(first, true) || 1;
  const room = 44 / Math.max(width, 200);
  const kept = [];
  // The last time is always marked; the others where they fit, round ones first.
  const digits = (time) => (time === last || time === first ? 0 : [1, 5, 2].indexOf(Number(String(time)[0])) + 1);
  candidates
    .filter((time) => time >= first && time <= last)
    .sort((a, b) => digits(a) - digits(b))
    .forEach((time) => {
      const far = (other) => Math.abs(timePlace(time, true) - timePlace(other, true)) / span > room;
      if (kept.every(far)) kept.push(time);
    });
  return {
    tickvals: kept.map((time) => timePlace(time, logarithmic)),
    ticktext: kept.map((time) => time.toLocaleString("en")),
  };
}

function timeAxis(run, times, logarithmic, width) {
  const unit = escapeText(run.unit);
  const title = logarithmic ? `${unit} t, spaced as log(1 + t)` : unit;
  // Few whole steps would have fractions between them.
  const whole = times.every(Number.isInteger) && Math.max(...times) - Math.min(...times) < 5;
  if (!logarithmic) return axis({ title: { text: title }, ...(whole && { tick0: 0, dtick: 1 }) });
  return axis({ title: { text: title }, ...timeTicks(times, true, width) });
}

function aboutMetric(node, metric) {
  const fixed = metric.fixed && "two classes fix it by construction: it is no sign of collapse";
  const collapsed = fixed || (metric.collapsed ? `collapsed at ${metric.collapsed}` : metric.direction);
  const facts = [collapsed, metric.zero && `0 means ${metric.zero}`].filter(Boolean);
  const sentence = facts.length ? `${capitalised(facts.join("; "))}.` : "";
  const parts = [element("p", { textContent: `${metric.title}. ${sentence}` })];
  // The formula is SVG that this package made from its own registry.
  const formula = page.formulas[metric.formula];
  if (formula) parts.push(element("div", { className: "display", innerHTML: formula }));
  if (metric.source) parts.push(element("p", { className: "source", textContent: metric.source }));
  node.replaceChildren(...parts);
}

// Splits are told apart by dash and dot, as the colours are those of the layers.
const SPLIT_MARKS = [
  { kind: "", dash: "solid", symbol: "circle" },
  { kind: "dashed", dash: "dash", symbol: "circle-open" },
  { kind: "dots", dash: "dot", symbol: "square" },
  { kind: "dashdot", dash: "dashdot", symbol: "diamond-open" },
];

function splitMark(run, split) {
  return SPLIT_MARKS[Object.keys(run.series).indexOf(split) % SPLIT_MARKS.length];
}

function splitKeys(run) {
  const splits = Object.keys(run.series);
  return splits.length < 2 ? [] : splits.map((split) => legendKey(splitMark(run, split).kind, token("soft"), split));
}

function historyTraces(run, metric, splits, hidden, logarithmic, small = false) {
  const traces = [];
  const layers = run.layers;
  // The last layer stands out; no run does.
  const emphasis = (place) => layers.length > 1 && !(page.together && run === page.runs[page.together]) && place === layers.length - 1;
  splits.forEach((split) => {
    const { times, values, gaps } = run.series[split];
    const { dash, symbol } = splitMark(run, split);
    layers.forEach((layer, place) => {
      const own = values[metric.key][place];
      if (hidden.has(layer) || own.every((value) => value === null)) return;
      // A line passes over times at which nothing was measured, and breaks where the value is undefined.
      const undefinedAt = (gaps[metric.key] || []).filter(([layer]) => layer === place).map(([, at]) => at);
      const shown = times.map((_, at) => at).filter((at) => own[at] !== null || undefinedAt.includes(at));
      const text = shown.map((at) => own[at]);
      const last = emphasis(place);
      traces.push({
        type: "scatter",
        mode: "lines+markers",
        name: `${layer}, ${split}`,
        x: shown.map((at) => timePlace(times[at], logarithmic)),
        y: text,
        text,
        customdata: shown.map((at) => times[at]),
        line: {
          color: layerColour(place, layers.length),
          width: (last ? 3 : 1.75) - (small ? 0.5 : 0),
          dash,
        },
        marker: { symbol, size: (last ? 6 : 4) - (small ? 1 : 0) },
        hovertemplate: `${escapeText(layer)}, ${escapeText(split)}<br>${escapeText(run.unit)} %{customdata}: %{text:.4g}<extra></extra>`,
      });
    });
  });
  return traces;
}

// Plotly reads a few tags in hover text; names of layers are text.
function escapeText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/%/g, "&#37;");
}

function historyReading(metric, traces) {
  const sentences = [];
  const values = traces.flatMap((trace) => trace.text);
  const omitted = metric.log ? values.filter((value) => value !== null && value < 0).length : 0;
  const plural = omitted === 1 ? "value below 0 is" : "values below 0 are";
  if (omitted) sentences.push(`${omitted} ${plural} not drawn on the logarithmic axis.`);
  if (metric.log && values.includes(0)) {
    sentences.push("Values of exactly 0 stand at the mark 0, below the logarithmic scale.");
  }
  const drawn = traces.some((trace) => trace.y.some((value) => value !== null));
  if (!drawn) sentences.push("There is nothing to draw: no layer shown has a value that is defined.");
  return sentences;
}

// Where a metric's value at collapse is known, a dotted line marks it.
function collapseLine(metric, named = true) {
  if (metric.collapse === null) return {};
  const text = `at collapse to a simplex: ${metric.collapse.toPrecision(4)}`;
  return {
    shapes: [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: metric.collapse, y1: metric.collapse,
      line: { color: token("soft"), width: 1.5, dash: "dot" },
    }],
    annotations: !named ? [] : [{
      text, xref: "paper", x: 0, xanchor: "left", y: metric.collapse, yanchor: "bottom",
      showarrow: false, font: { color: token("soft"), size: 12 },
    }],
  };
}

function historyLegend(list, hidden, redraw) {
  const layers = data.layers.map((layer, place) => {
    const button = element("button", { type: "button" }, [
      swatch("", layerColour(place, data.layers.length)),
      layer,
    ]);
    button.setAttribute("aria-pressed", String(!hidden.has(layer)));
    button.addEventListener("click", () => {
      if (!hidden.delete(layer)) hidden.add(layer);
      button.setAttribute("aria-pressed", String(!hidden.has(layer)));
      redraw();
    });
    return element("li", {}, [button]);
  });
  list.replaceChildren(...splitKeys(data), ...layers);
}

// The metric and the axis that the reader chose, which another run keeps where it has them.
const chosen = { metric: "nc1_quotient", logarithmic: null };

function historyFigure(figure) {
  const choice = figure.querySelector("#history-metric");
  const logarithmic = figure.querySelector("#history-log");
  const chart = figure.querySelector(".chart");
  const legend = figure.querySelector(".legend");
  const hidden = new Set();
  const measured = Object.keys(data.series);
  logarithmic.closest("label").hidden = !countsUp(data, allTimes(data));
  logarithmic.checked = spreadsOut(data);
  if (chosen.logarithmic !== null && countsUp(data, allTimes(data))) logarithmic.checked = chosen.logarithmic;
  const boxes = [...figure.querySelectorAll(".history-split")];
  boxes.forEach((box) => (box.closest("label").hidden = !measured.includes(box.value)));
  const keys = data.metrics.map((entry) => entry.key);
  [...choice.options].forEach((option) => (option.disabled = !keys.includes(option.value)));
  choice.value = keys.includes(chosen.metric) ? chosen.metric : keys[0];

  const drawChart = () => {
    const metric = data.metrics.find((entry) => entry.key === choice.value);
    const all = measured;
    const checked = boxes.filter((box) => box.checked).map((box) => box.value);
    const splits = boxes.length ? all.filter((split) => checked.includes(split)) : all;
    const traces = historyTraces(data, metric, splits, hidden, logarithmic.checked);
    const values = [...traces.flatMap((trace) => trace.text), metric.collapse];
    if (metric.log) traces.forEach((trace) => Object.assign(trace, { y: onLogAxis(trace.text, values) }));
    const times = all.flatMap((split) => data.series[split].times);
    chart.setAttribute("aria-label", `${metric.title} of every layer against ${data.unit}`);
    draw(chart, traces, {
      xaxis: timeAxis(data, times, logarithmic.checked, chart.clientWidth),
      yaxis: (metric.log ? logAxis : linearAxis)(
        values,
        { title: { text: metric.title } }
      ),
      hovermode: "closest",
      ...collapseLine(metric),
    });
    fillList(figure.querySelector(".reading"), historyReading(metric, traces));
    aboutMetric(figure.querySelector("#history-about"), metric);
  };
  [choice, logarithmic, ...boxes].forEach((control) => control.addEventListener("change", drawChart));
  choice.addEventListener("change", () => (chosen.metric = choice.value));
  logarithmic.addEventListener("change", () => (chosen.logarithmic = logarithmic.checked));
  register(figure, () => {
    historyLegend(legend, hidden, drawChart);
    drawChart();
  });
}
