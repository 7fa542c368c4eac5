"use strict";
// Figures of one layer at one moment: the Gram matrix of the class means, and the spectra.

// A symmetric matrix, of which the data have the rows up to the diagonal.
function mirror(rows) {
  return rows.map((_, row) => rows.map((_, column) => rows[Math.max(row, column)][Math.min(row, column)]));
}

function simplexCosines(shown, classes) {
  const off = classes > 1 ? -1 / (classes - 1) : 0;
  return Array.from({ length: shown }, (_, row) =>
    Array.from({ length: shown }, (_, column) => (row === column ? 1 : off))
  );
}

function minus(left, right) {
  return left.map((row, i) => row.map((value, j) => (value === null ? null : value - right[i][j])));
}

// Names of classes on an axis of a chart: as many as fit, shortened where they are long.
function classTicks(names, chart) {
  if (!names.length) return {};
  const every = Math.ceil((names.length * 13) / (chart.clientWidth - 70));
  const kept = names.map((_, place) => place).filter((place) => place % every === 0);
  const short = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name);
  return {
    showticklabels: true,
    tickvals: kept,
    ticktext: kept.map((place) => escapeText(short(names[place]))),
    tickfont: { size: kept.length > 16 ? 10 : 11 },
    ticklabelstandoff: 4,
    automargin: true,
  };
}

function heatmap(chart, values, limit, names) {
  const whole = values.map((_, place) => escapeText(names[place] || String(place)));
  const trace = {
    type: "heatmap",
    z: values,
    zmin: -limit,
    zmax: limit,
    colorscale: [
      [0, token("negative")],
      [0.5, token("neutral")],
      [1, token("positive")],
    ],
    xgap: values.length > 24 ? 0 : 1,
    ygap: values.length > 24 ? 0 : 1,
    text: values.map((row, y) => row.map((_, x) => `${whole[y]} and ${whole[x]}`)),
    hovertemplate: "%{text}: %{z:.3f}<extra></extra>",
    colorbar: {
      orientation: "h",
      thickness: 8,
      len: 0.9,
      y: -0.06,
      yanchor: "top",
      outlinewidth: 0,
      nticks: 5,
      tickfont: { size: 11 },
    },
  };
  const bare = { showgrid: false, showline: false, ticks: "", showticklabels: false, zeroline: false };
  return draw(chart, [trace], {
    xaxis: { ...bare, constrain: "domain", side: "top", ...classTicks(names, chart), tickangle: -60 },
    yaxis: { ...bare, autorange: "reversed", scaleanchor: "x", constrain: "domain", ...classTicks(names, chart) },
    margin: { l: 4, r: 4, t: 4, b: 44 },
  });
}

function gramFigure(figure) {
  const frames = data.grams;
  const furthest = Object.values(frames)
    .flat()
    .flatMap((frame) => minus(mirror(frame.cosines), simplexCosines(frame.cosines.length, frame.classes)).flat())
    .reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
  const redraw = () => {
    const { classes, names, reading, ...frame } = current();
    const cosines = mirror(frame.cosines);
    const simplex = simplexCosines(cosines.length, classes);
    heatmap(figure.querySelector("#gram-measured"), cosines, 1, names);
    heatmap(figure.querySelector("#gram-difference"), minus(cosines, simplex), furthest || 1, names);
    fillList(figure.querySelector(".reading"), reading);
  };
  const current = frameChooser(figure, frames, redraw);
  register(figure, redraw);
}

const CURVES = [
  ["between", "between classes", "accent", "circle"],
  ["within", "within classes", "second", "diamond"],
  ["total", "total", "third", "cross-thin-open"],
];

function spectrumTrace(curve, colour, symbol, name) {
  return {
    type: "scatter",
    mode: "lines+markers",
    name,
    x: curve.index,
    y: curve.values,
    line: { color: token(colour), width: 1.25 },
    marker: { color: token(colour), size: 6, symbol },
    hovertemplate: `${name}<br>number %{x}: %{y:.4g}<extra></extra>`,
  };
}

function spectrumAxes(frames, names) {
  const curves = frames.flatMap((frame) => names.map((name) => frame.curves[name]).filter(Boolean));
  const last = Math.max(2, ...curves.flatMap((curve) => curve.index));
  return {
    xaxis: logAxis([1, last], { title: { text: "index" } }, 0.05),
    yaxis: logAxis(curves.flatMap((curve) => curve.values), {}),
    hovermode: "closest",
  };
}

function spectraFigure(figure) {
  const frames = data.spectra;
  const all = Object.values(frames).flat();
  const measured = (names) => names.filter((name) => all.some((frame) => frame.curves[name]?.values.length));
  const covariances = measured(CURVES.map(([name]) => name));
  const signal = measured(["snr_singular_values"]);
  if (!covariances.length) figure.querySelector("#spectra-covariance").remove();
  if (!signal.length) figure.querySelectorAll("#spectra-signal, .of-classes").forEach((part) => part.remove());
  const redraw = () => {
    const { curves } = current();
    if (covariances.length) {
      const shown = CURVES.filter(([name]) => curves[name]);
      draw(
        figure.querySelector("#spectra-eigenvalues"),
        shown.map(([name, title, colour, symbol]) => spectrumTrace(curves[name], colour, symbol, title)).reverse(),
        spectrumAxes(all, covariances)
      );
      const keys = shown.map(([, title, colour]) => legendKey("dot", token(colour), title));
      figure.querySelector(".legend").replaceChildren(...keys);
    }
    if (signal.length) {
      const own = curves.snr_singular_values;
      const traces = own ? [spectrumTrace(own, "accent", "circle", "signal to noise")] : [];
      draw(figure.querySelector("#spectra-snr"), traces, spectrumAxes(all, signal));
    }
    // Nothing is said of values for which there is no chart at all.
    const charted = [...(covariances.length ? CURVES.map(([name]) => name) : []), ...signal];
    fillList(figure.querySelector(".reading"), charted.map((name) => curves[name]?.omitted).filter(Boolean));
  };
  const current = frameChooser(figure, frames, redraw);
  register(figure, redraw);
}
