"use strict";
// Draw the figures that this page has; where it holds several runs, those of the chosen one.

const FIGURES = [
  ["history", historyFigure, () => Object.keys(data.series).length > 0],
  ["layers", layersFigure, () => Object.keys(data.profiles).length > 0],
  ["gram", gramFigure, () => Object.keys(data.grams).length > 0],
  ["classes", classesFigure, () => Object.keys(data.classes).length > 0],
  ["spectra", spectraFigure, () => Object.keys(data.spectra).length > 0],
];

// What the page holds before anything is drawn, to start again from for another run.
const blank = new Map();

function showRun(name) {
  data = runs[name];
  timers.forEach((timer) => clearInterval(timer));
  timers.clear();
  for (const [id, start, present] of FIGURES) {
    const figure = document.getElementById(id);
    if (!figure) continue;
    if (blank.has(id)) {
      figure.querySelectorAll(".chart").forEach((chart) => Plotly.purge(chart));
      figure.innerHTML = blank.get(id);
    } else {
      blank.set(id, figure.innerHTML);
    }
    figure.closest("section").classList.toggle("absent", !present());
    if (present()) start(figure);
    else redraws.delete(figure);
  }
}

// The chart library stands in the page packed, at less than half of its size.
async function unpackPlotly() {
  const text = document.getElementById("plotly").textContent;
  const packed = new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))]);
  const code = packed.stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(code).text();
  document.head.append(script);
}

unpackPlotly().then(() => {
  const runChoice = document.getElementById("run");
  if (runChoice) {
    runChoice.value = shown;
    runChoice.addEventListener("change", () => showRun(runChoice.value));
  }
  showRun(shown);
});
