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
  data = page.runs[name];
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
    const section = figure.closest("section");
    section.classList.toggle("absent", !present());
    const link = document.querySelector(`nav a[href="#${section.getAttribute("aria-labelledby")}"]`);
    link?.parentElement.classList.toggle("absent", !present());
    if (present()) start(figure);
    else redraws.delete(figure);
  }
}

// Data and the chart library stand in the page packed, at less than half of their size.
async function unpack(id) {
  const text = document.getElementById(id).textContent;
  const packed = new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function start() {
  page = JSON.parse(await unpack("data"));
  for (const node of document.querySelectorAll("[data-latex]")) {
    node.outerHTML = page.formulas[node.dataset.latex];
  }
  const script = document.createElement("script");
  script.textContent = await unpack("plotly");
  document.head.append(script);
  const headlines = document.getElementById("headlines");
  if (headlines) headlinesFigure(headlines);
  const runChoice = document.getElementById("run");
  if (runChoice) {
    runChoice.value = page.shown;
    runChoice.addEventListener("change", () => showRun(runChoice.value));
  }
  showRun(page.shown);
}

start();
