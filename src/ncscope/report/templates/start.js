"use strict";
// Draw the figures that this page has.

for (const [id, start] of [
  ["history", historyFigure],
  ["layers", layersFigure],
  ["gram", gramFigure],
  ["spectra", spectraFigure],
]) {
  const figure = document.getElementById(id);
  if (figure) start(figure);
}
