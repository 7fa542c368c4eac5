"use strict";
// The grid of headline charts: a curve for each layer or run, or, of reports, a dot for each.

// Small charts have small marks.
const SMALL = { tickfont: { size: 10 }, ticklen: 3 };
// The marks below a small chart are of one line: what is left of its height is the curves'.
const BELOW = { ...SMALL, automargin: false, title: { text: "" } };

function headlineCurves(run, key, width) {
  const metric = run.metrics.find((entry) => entry.key === key);
  const splits = Object.keys(run.series);
  const times = splits.flatMap((split) => run.series[split].times);
  const logarithmic = spreadsOut(run, times);
  const traces = historyTraces(run, metric, splits, new Set(), logarithmic, true);
  const values = [...traces.flatMap((trace) => trace.text), metric.collapse];
  if (metric.log) traces.forEach((trace) => Object.assign(trace, { y: onLogAxis(trace.text, values) }));
  return [traces, {
    xaxis: { nticks: 5, ...timeAxis(run, times, logarithmic, width), ...BELOW },
    yaxis: (metric.log ? logAxis : linearAxis)(values, { ...SMALL, nticks: 4 }),
    ...collapseLine(metric, false),
  }];
}

function headlineDots(key, width) {
  const { log, values, ends, around } = page.dots.metrics[key];
  const all = [...values, ...ends.flat(), ...around];
  const place = (numbers) => (log ? onLogAxis(numbers, all) : numbers);
  const at = place(values);
  const reach = (side) => place(ends.map((pair) => pair[side]))
    .map((end, row) => (end === null || at[row] === null ? 0 : Math.abs(end - at[row])));
  const trace = {
    type: "scatter",
    mode: "markers",
    x: at,
    y: values.map((_, row) => row),
    text: page.dots.names.map(escapeText),
    customdata: values,
    marker: { color: token("accent"), size: 9 },
    error_x: { type: "data", symmetric: false, array: reach(1), arrayminus: reach(0), color: token("accent"), thickness: 1.5, width: 4 },
    hovertemplate: "%{text}: %{customdata:.4g}<extra></extra>",
  };
  const yaxis = { ...classRows(page.dots.names, Math.floor(width / 13)), tickfont: { size: 11 } };
  return [[trace], { xaxis: (log ? logAxis : linearAxis)(all, { ...BELOW, nticks: 4 }), yaxis }];
}

function quoteNumber(name) {
  return /^[\d.]+$/.test(name) ? `layer '${name}'` : name;
}

function headlineLegend(list, run) {
  const keys = splitKeys(run);
  const count = run.layers.length;
  const shown = count > 6 ? [0, count - 1] : run.layers.map((_, place) => place);
  if (count > 1) keys.push(...shown.map((place) => legendKey("", layerColour(place, count), quoteNumber(run.layers[place]))));
  keys.push(legendKey("none", "", spreadsOut(run) ? `${run.unit}s, spaced as log(1 + t)` : `${run.unit}s`));
  list.replaceChildren(...keys);
}

function headlinesFigure(figure) {
  const run = page.runs[page.grid];
  const choice = document.getElementById("history-metric");
  const cells = [...figure.querySelectorAll(".cell")];
  figure.classList.toggle("of-dots", !run);
  for (const cell of cells) {
    cell.querySelector("button")?.addEventListener("click", () => {
      choice.value = cell.dataset.key;
      choice.dispatchEvent(new Event("change"));
      document.getElementById("history-heading").scrollIntoView({ behavior: "smooth" });
      choice.focus({ preventScroll: true });
    });
    if (!run) cell.querySelector(".chart").style.height = `${36 + 22 * page.dots.names.length}px`;
  }
  register(figure, () => {
    for (const cell of cells) {
      const chart = cell.querySelector(".chart");
      const [traces, layout] = run ? headlineCurves(run, cell.dataset.key, chart.clientWidth) : headlineDots(cell.dataset.key, chart.clientWidth);
      draw(chart, traces, { hovermode: "closest", margin: { l: 4, r: 10, t: 8, b: 20 }, minreducedheight: 20, ...layout });
    }
    if (run) headlineLegend(figure.querySelector(".legend"), run);
  });
}
