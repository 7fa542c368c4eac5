"use strict";
// Controls and legends: small pieces of page, built from the data.

function element(tag, properties = {}, children = []) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function fillList(list, sentences) {
  list.replaceChildren(...sentences.map((text) => element("li", { textContent: text })));
}

function swatch(kind, colour) {
  const mark = element("span", { className: `swatch ${kind}` });
  mark.style.color = colour;
  mark.setAttribute("aria-hidden", "true");
  return mark;
}

function legendKey(kind, colour, text) {
  return element("li", { className: "key" }, [swatch(kind, colour), text]);
}

function select(options, chosen) {
  const node = element(
    "select",
    {},
    options.map(([value, text]) => element("option", { value, textContent: text }))
  );
  node.value = chosen;
  return node;
}

function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// Controls that choose one frame of `frames` (split -> list of frames): a split where there are
// several, and a slider through time or a list of layers. Returns a function for the choice.
function frameChooser(figure, frames, onChange) {
  const host = figure.querySelector(".controls");
  const splits = Object.keys(frames);
  const state = { split: splits[0], place: frames[splits[0]].length - 1 };
  const current = () => frames[state.split][Math.min(state.place, frames[state.split].length - 1)];

  const describe = () => {
    const words = [state.split === "all" ? "" : state.split, current().label];
    figure.querySelector(".moment").textContent = capitalised(words.filter(Boolean).join(", "));
    const output = host.querySelector("output");
    if (output) output.textContent = current().label;
  };
  const changed = () => {
    describe();
    onChange();
  };
  if (splits.length > 1) {
    const choice = select(splits.map((name) => [name, name]), state.split);
    choice.className = "frame-split";
    choice.addEventListener("change", () => {
      const { step } = current();
      state.split = choice.value;
      state.place = nearestFrame(frames[state.split], step);
      const slider = host.querySelector(".frame-time");
      if (slider) {
        slider.max = frames[state.split].length - 1;
        slider.value = state.place;
      }
      changed();
    });
    host.append(element("label", {}, ["Split ", choice]));
  }
  const most = Math.max(...splits.map((name) => frames[name].length));
  if (most > 1) {
    host.append(
      ...(data.unit === "layer"
        ? [layerChoice(frames[state.split], state, changed)]
        : timeSlider(frames, state, current, changed))
    );
  }
  describe();
  return current;
}

// The frame measured nearest to a step: splits may be measured at different steps.
function nearestFrame(frames, step) {
  return frames.reduce(
    (best, frame, place) =>
      Math.abs(frame.step - step) < Math.abs(frames[best].step - step) ? place : best,
    0
  );
}

function layerChoice(frames, state, changed) {
  const choice = select(frames.map((frame, place) => [String(place), frame.label]), String(state.place));
  choice.className = "frame-layer";
  choice.addEventListener("change", () => {
    state.place = Number(choice.value);
    changed();
  });
  return element("label", {}, ["Layer ", choice]);
}

function timeSlider(frames, state, current, changed) {
  const count = () => frames[state.split].length;
  const slider = element("input", { type: "range", min: 0, max: count() - 1, step: 1 });
  slider.className = "frame-time";
  slider.value = state.place;
  const output = element("output", { textContent: current().label });
  const show = (place) => {
    state.place = place;
    slider.value = place;
    slider.setAttribute("aria-valuetext", current().label);
    changed();
  };
  slider.setAttribute("aria-valuetext", current().label);
  slider.addEventListener("input", () => show(Number(slider.value)));
  slider.setAttribute("aria-label", capitalised(data.unit));
  return [element("div", { className: "time" }, [slider, output, playButton(count, state, show)])];
}

// The timers of play buttons, to be stopped where the page moves on to another run.
const timers = new Set();

function playButton(count, state, show) {
  const button = element("button", { type: "button", textContent: "Play" });
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timers.delete(timer);
    timer = null;
    button.textContent = "Play";
  };
  button.addEventListener("click", () => {
    if (timer !== null) {
      stop();
      return;
    }
    button.textContent = "Stop";
    show(state.place >= count() - 1 ? 0 : state.place);
    timer = setInterval(() => {
      if (state.place >= count() - 1) stop();
      else show(state.place + 1);
    }, 450);
    timers.add(timer);
  });
  return button;
}
