"use strict";
// PFC1-3 against layer, with the geodesic's prediction.

// Tick labels of a layer axis: as many names as fit.
function layerTicks(names, width) {
  const every = Math.max(1, Math.ceil((names.length * 26) / Math.max(width - 60, 100)));
  const kept = names.map((_, place) => place).filter((place) => (names.length - 1 - place) % every === 0);
  const short = (name) => (name.length > 14 ? `…${name.slice(-13)}` : name);
  return {
    tickvals: kept,
    ticktext: kept.map((place) => escapeText(short(names[place]))),
    tickangle: -60,
    ticklabeloverflow: "allow",
  };
}

// All values drawn in any frame: moving through time then moves the curves and not the axis.
function drawnValues(frames, key, byPosition) {
  return frames.flatMap((frame) => [
    ...frame.values[key].filter((_, place) => !byPosition || frame.positions[place] !== null),
    ...(byPosition && frame.geodesic ? frame.geodesic.values[key] : []),
  ]);
}

function measuredTrace(frame, metric, byPosition, all) {
  const places = frame.names.map((_, place) => place).filter((place) => {
    const value = frame.values[metric.key][place];
    const drawn = value === null ? frame.gaps[metric.key].includes(place) : !metric.log || value >= 0;
    return drawn && (!byPosition || frame.positions[place] !== null);
  });
  const values = places.map((place) => frame.values[metric.key][place]);
  return {
    type: "scatter",
    mode: "lines+markers",
    x: places.map((place) => (byPosition ? frame.positions[place] : place)),
    y: metric.log ? onLogAxis(values, all) : values,
    text: values,
    customdata: places.map((place) => escapeText(frame.names[place])),
    line: { color: token("accent"), width: 1.25 },
    marker: { color: token("accent"), size: 8 },
    hovertemplate: "%{customdata}<br>%{text:.4g}<extra></extra>",
  };
}

function geodesicTrace(frame, metric, all) {
  const values = frame.geodesic.values[metric.key];
  return {
    type: "scatter",
    mode: "lines",
    x: frame.geodesic.t,
    y: metric.log ? onLogAxis(values, all) : values,
    text: values,
    line: { color: token("second"), width: 2, dash: "dash" },
    hovertemplate: "predicted at %{x:.2f}<br>%{text:.4g}<extra></extra>",
  };
}

function depthLine(frame, byPosition) {
  const place = frame.depth;
  const at = place === null ? null : byPosition ? frame.positions[place] : place;
  if (at === null) return [];
  const line = { color: token("third"), width: 1.5, dash: "dot" };
  return [{ type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", layer: "below", line }];
}

function layerAxis(frame, byPosition, width) {
  return byPosition
    ? axis({ title: { text: "relative position" }, range: [-0.04, 1.04], dtick: 0.25 })
    : axis({
        title: { text: "layer" },
        range: [-0.4, frame.names.length - 0.6],
        ...layerTicks(frame.names, width),
      });
}

function layersLegend(list, frame, byPosition) {
  const keys = [legendKey("dot", token("accent"), "measured")];
  if (byPosition && frame.geodesic) {
    keys.push(legendKey("dashed", token("second"), "predicted by the geodesic"));
  }
  if (depthLine(frame, byPosition).length) {
    keys.push(legendKey("dotted", token("third"), "effective depth"));
  }
  list.replaceChildren(...keys);
}

function axisChoice(host, redraw, preferred) {
  const choice = select(
    [
      ["position", "relative position"],
      ["layer", "every layer, in order"],
    ],
    preferred
  );
  choice.className = "layers-axis";
  choice.addEventListener("change", redraw);
  host.append(element("label", {}, ["Against ", choice]));
  return choice;
}

function layersFigure(figure) {
  const frames = data.profiles;
  const all = Object.values(frames).flat();
  const placed = Math.max(...all.map((frame) => frame.positions.filter((at) => at !== null).length));
  const most = Math.max(...all.map((frame) => frame.names.length));
  let choice = null;
  const redraw = () => {
    const frame = current();
    const byPosition = choice !== null && choice.value === "position";
    data.pfc.forEach((metric) => {
      const chart = figure.querySelector(`#layers-${metric.key}`);
      const values = drawnValues(all, metric.key, byPosition);
      const traces = [measuredTrace(frame, metric, byPosition, values)];
      if (byPosition && frame.geodesic) traces.unshift(geodesicTrace(frame, metric, values));
      draw(chart, traces, {
        xaxis: layerAxis(frame, byPosition, chart.clientWidth),
        yaxis: (metric.log ? logAxis : linearAxis)(values, {}),
        shapes: depthLine(frame, byPosition),
        hovermode: "closest",
      });
    });
    layersLegend(figure.querySelector(".legend"), frame, byPosition);
    fillList(figure.querySelector(".reading"), frame.reading);
  };
  const current = frameChooser(figure, frames, redraw);
  // Positions hide the layers that have none: where these are the majority, every layer is shown.
  const preferred = 2 * placed >= most ? "position" : "layer";
  if (placed > 1) choice = axisChoice(figure.querySelector(".controls"), redraw, preferred);
  register(figure, redraw);
}
