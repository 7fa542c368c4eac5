"use strict";
// Classes as dots, the least separated on top: overlap with the nearest class, variability, accuracy.

// Height of a chart: room for the camera, so that it hides no dot, a row for each class, and the axis below.
const CAMERA = 32;
const ROW = 19;
const MARGIN = { l: 8, r: 10, t: CAMERA, b: 8 };

function classRows(names, longest = 14) {
  const short = (name) => (name.length > longest ? `${name.slice(0, longest - 1)}…` : name);
  return axis({
    tickvals: names.map((_, place) => place),
    ticktext: names.map((name) => escapeText(short(name))),
    range: [names.length - 0.4, -0.6],
    ticks: "",
    showline: false,
    ticklabelstandoff: 4,
    tickfont: { size: 11 },
  });
}

function classDots(values, at, { names, nearest }, colour, symbol, name) {
  return {
    type: "scatter",
    mode: "markers",
    name,
    x: at,
    y: names.map((_, place) => place),
    text: names.map((own, place) => `${escapeText(own)}, nearest ${escapeText(nearest[place])}`),
    customdata: values,
    marker: { color: token(colour), size: 8, symbol },
    hovertemplate: `%{text}<br>${name} %{customdata:.3g}<extra></extra>`,
  };
}

// A class whose mean coincides with another: its CDNV is infinite.
function infinityMark(place) {
  return { x: 1, xref: "paper", xanchor: "right", y: place, text: "∞", showarrow: false, font: { size: 15 } };
}

const ACCURACIES = [
  ["ncc", "by nearest mean", "second", "diamond"],
  ["accuracy", "by the head", "accent", "circle"],
];

function classesFigure(figure) {
  const frames = data.classes;
  const all = Object.values(frames).flat();
  const drawn = (key) => all.flatMap((frame) => frame[key] ?? []).filter((value) => value !== null);
  const counted = ACCURACIES.filter(([key]) => drawn(key).length);
  if (!counted.length) {
    figure.querySelector("#classes-accuracies").remove();
    figure.querySelector(".panels").classList.add("two", "alike");
  }
  const most = Math.max(...all.map((frame) => frame.names.length));
  figure.querySelectorAll(".chart").forEach((chart) => (chart.style.height = `${48 + CAMERA + ROW * most}px`));
  const redraw = () => {
    const frame = current();
    const yaxis = classRows(frame.names);
    for (const [key, name] of [["overlap", "CDNV"], ["spread", "NC1"]]) {
      const values = drawn(key);
      const trace = classDots(frame[key], onLogAxis(frame[key], values), frame, "accent", "circle", name);
      const layout = { xaxis: logAxis(values, {}), yaxis, hovermode: "closest", margin: MARGIN };
      if (key === "overlap") layout.annotations = frame.coincide.map(infinityMark);
      draw(figure.querySelector(`#classes-${key}`), [trace], layout);
    }
    const shown = counted.filter(([key]) => frame[key]);
    if (counted.length) {
      const traces = shown.map(([key, name, colour, symbol]) =>
        classDots(frame[key], frame[key], frame, colour, symbol, name)
      );
      const values = counted.flatMap(([key]) => drawn(key));
      const layout = { xaxis: linearAxis(values, {}), yaxis, hovermode: "closest", margin: MARGIN };
      draw(figure.querySelector("#classes-accuracy"), traces, layout);
    }
    const keys = shown.map(([, name, colour]) => legendKey("dot", token(colour), `accuracy ${name}`));
    figure.querySelector(".legend").replaceChildren(...keys);
    fillList(figure.querySelector(".reading"), frame.reading);
  };
  const current = frameChooser(figure, frames, redraw);
  register(figure, redraw);
}
