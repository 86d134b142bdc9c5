"use strict";
// One step, or two under each other on one scale: rows of bars to pan and zoom, by mouse, fingers
// and keys. What is looked at is said in a line below, which screen readers read out.

const MOST_ZOOM = 1e5; // the step over the shortest span shown
const AXIS = 26, TOP = 4, GAP = 2;

/** The part of the time that all timelines of the page show, ns; `draw`: of each of them. */
const view = {from: 0, to: 1, length: 1, draws: []};

function look(start, span) {
  span = Math.min(Math.max(span, view.length / MOST_ZOOM), view.length);
  view.from = Math.min(Math.max(start, 0), view.length - span);
  view.to = view.from + span;
  view.draws.forEach(draw => draw());
}
const zoom = (factor, at) => look(at - (at - view.from) * factor, (view.to - view.from) * factor);
const pan = share => look(view.from + share * (view.to - view.from), view.to - view.from);

/** Fills a figure with the timeline of `step`, as `timeline_data` in step.py describes it. */
function drawTimeline(figure, step, name) {
  const [gapStart, gapEnd] = step.gap; // bars between them are left out
  const inGap = time => gapStart < time && time < gapEnd;
  const rows = step.rows, rowHeight = rows.length <= 16 ? 30 : rows.length <= 64 ? 20 : 13;
  const bottom = TOP + rows.length * (rowHeight + GAP);
  const hint = `hint-${view.draws.length}`;
  const canvas = make("canvas", {tabindex: 0, role: "application", "aria-roledescription": "timeline",
    "aria-label": `${name}: ${timeText(step.step)}, ${rows.length} rows`, "aria-describedby": hint});
  const what = make("p", {class: "what", role: "status"}, "\u00a0");
  let width = 0, label = 0, chosen = -1; // chosen: the row that keys describe, -1 for none

  const x = time => label + (time - view.from) / (view.to - view.from) * (width - label);
  const timeAt = px => view.from + (px - label) / (width - label) * (view.to - view.from);
  const yOf = i => TOP + i * (rowHeight + GAP);

  function paintRow(g, row, y, colours) {
    for (const [kind, start, duration, microBatch, chunk] of row.bars) {
      if (start + duration < view.from || start > view.to) continue;
      const left = Math.max(x(start), label), right = Math.min(x(start + duration), width);
      const wide = right - left;
      g.fillStyle = colours[kind].fill;
      // A line of the page's colour keeps neighbours apart where there is room for it
      g.fillRect(left, y, Math.max(wide - (wide > 4 ? 1 : 0), 0.4), rowHeight);
      if (chunk > 0 && wide > 4) {
        g.fillStyle = colours[kind].text;
        g.fillRect(left, y, wide - 1, 2 * chunk);
      }
      if (microBatch >= 0 && wide > 8 + 6 * String(microBatch).length && rowHeight > 16) {
        g.fillStyle = colours[kind].text;
        g.textAlign = "center";
        g.fillText(microBatch, (left + right) / 2, y + rowHeight / 2);
        g.textAlign = "left";
      }
    }
  }

  function paintPath(g) {
    g.strokeStyle = style("--ink");
    g.lineWidth = 3;
    g.beginPath();
    for (const [row, start, end] of step.critical) {
      if (end < view.from || start > view.to) continue;
      const y = yOf(row) + rowHeight - 1.5;
      g.moveTo(Math.max(x(start), label), y);
      g.lineTo(Math.min(x(end), width), y);
    }
    g.stroke();
  }

  function paintGap(g) {
    if (gapEnd <= view.from || gapStart >= view.to) return;
    const left = Math.max(x(gapStart), label), right = Math.min(x(gapEnd), width);
    g.fillStyle = style("--paper");
    g.fillRect(left, 0, right - left, bottom);
    if (bottom <= 120) return;
    g.save();
    g.translate((left + right) / 2, bottom / 2);
    g.rotate(-Math.PI / 2);
    g.fillStyle = style("--ink");
    g.textAlign = "center";
    g.fillText(`${step.hidden} micro-batches more`, 0, 0);
    g.restore();
  }

  function paintAxis(g) {
    g.fillStyle = style("--ink");
    g.textAlign = "center";
    for (const time of ticks(view.from, view.to, Math.max(3, Math.floor((width - label) / 110)))) {
      g.fillRect(x(time), bottom, 1, 5);
      const text = `${Number(timeText(time, view.length).split(" ")[0])} ${timeText(view.length).split(" ")[1]}`;
      g.fillText(text, Math.min(Math.max(x(time), label + 20), width - 24), bottom + 15);
    }
  }

  function paint() {
    const ratio = window.devicePixelRatio || 1, height = bottom + AXIS;
    width = canvas.clientWidth;
    label = width < 600 ? 34 : 74;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    const [ink, idle, link] = ["--ink", "--idle", "--link"].map(style);
    const colours = step.kinds.map(([kind]) =>
      ({fill: style(`--${kind}`), text: style(`--on-${kind}`)}));
    rows.forEach((row, i) => {
      const y = yOf(i);
      g.fillStyle = i === chosen ? link : ink;
      if (rowHeight > 12) g.fillText(label < 50 ? row.stage : `stage ${row.stage}`, 0, y + rowHeight / 2);
      g.fillStyle = idle;
      g.fillRect(label, y, width - label, rowHeight);
      paintRow(g, row, y, colours);
    });
    paintPath(g);
    paintGap(g);
    paintAxis(g);
  }

  /** Says what a row does at a time, and where it stands. */
  function describe(i, time) {
    const row = rows[i];
    if (!row) { what.textContent = "\u00a0"; return; }
    const place = `stage ${row.stage}: ${row.place}`;
    const bar = row.bars.find(([, start, duration]) => start <= time && time < start + duration);
    if (!bar) { what.textContent = `${inGap(time) ? "steady state, not shown" : "idle"}; ${place}`; return; }
    const [kind, start, duration, microBatch, chunk] = bar;
    const whose = microBatch < 0 ? "" : ` of micro-batch ${microBatch}${chunk ? `, chunk ${chunk}` : ""}`;
    what.textContent =
      `${step.kinds[kind][1]}${whose}, ${timeText(duration)} from ${timeText(start, step.step)}; ${place}`;
  }
  const rowAt = y => Math.floor((y - TOP) / (rowHeight + GAP));
  const shown = () => (inGap((view.from + view.to) / 2) ? view.from : (view.from + view.to) / 2);
  const told = () => {
    what.textContent = `shown: ${timeText(view.from, view.length)} to ${timeText(view.to, view.length)}`;
  };

  // Mouse and fingers
  const pointers = new Map();
  canvas.addEventListener("pointerdown", event => {
    pointers.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    describe(rowAt(event.offsetY), timeAt(event.offsetX));
  });
  canvas.addEventListener("pointermove", event => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) { describe(rowAt(event.offsetY), timeAt(event.offsetX)); return; }
    const second = [...pointers].find(([id]) => id !== event.pointerId);
    if (second) {
      const fixed = second[1], old = Math.abs(before - fixed), now = Math.abs(event.offsetX - fixed);
      if (old > 8 && now > 8) zoom(old / now, timeAt(fixed));
    } else pan((before - event.offsetX) / (width - label));
    pointers.set(event.pointerId, event.offsetX);
  });
  for (const ended of ["pointerup", "pointercancel"])
    canvas.addEventListener(ended, event => pointers.delete(event.pointerId));
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.offsetX));
  }, {passive: false});

  // Keys: the part that is shown; a row, and operation by operation along it
  function choose(i) {
    chosen = Math.min(Math.max(i, 0), rows.length - 1);
    paint();
    describe(chosen, shown());
  }
  function follow(direction) {
    const middle = (view.from + view.to) / 2, bars = rows[Math.max(chosen, 0)].bars;
    const centre = ([, start, duration]) => start + duration / 2;
    const later = bars.filter(bar => direction * (centre(bar) - middle) > 1);
    const next = direction > 0 ? later[0] : later.at(-1);
    if (!next) return;
    const time = centre(next);
    look(time - (view.to - view.from) / 2, view.to - view.from);
    describe(Math.max(chosen, 0), time);
  }
  const keys = {
    ArrowLeft: () => { pan(-0.2); told(); },
    ArrowRight: () => { pan(0.2); told(); },
    ArrowUp: () => choose(chosen - 1),
    ArrowDown: () => choose(chosen + 1),
    "+": () => { zoom(0.5, shown()); told(); },
    "=": () => keys["+"](),
    "-": () => { zoom(2, (view.from + view.to) / 2); told(); },
    "0": () => { look(0, view.length); told(); },
    ".": () => follow(1),
    ",": () => follow(-1),
  };
  keys.Home = keys["0"];
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  const button = (text, title, press) => {
    const element = make("button", {type: "button", "aria-label": title, title}, text);
    element.onclick = press;
    return element;
  };
  const tools = make("div", {class: "tools"},
    button("+", "zoom in", keys["+"]), button("\u2212", "zoom out", keys["-"]),
    button("\u2190", "earlier", keys.ArrowLeft), button("\u2192", "later", keys.ArrowRight),
    button("whole step", "whole step", keys["0"]),
    make("span", {id: hint, class: "hint"},
      "keys: \u2190 \u2192 pan, + \u2212 zoom, 0 whole step, \u2191 \u2193 stage, , . operation; " +
      "mouse: drag, Ctrl and the wheel"));
  const names = legend(step.kinds);
  names.append(make("li", {}, make("i", {class: "key path"}), "critical path: what the step waits for"));
  figure.append(tools, canvas, what, names);
  view.draws.push(paint);
  return canvas;
}

/** Timelines of all steps of the page, on one scale; of a long one the beginning is shown first. */
function drawTimelines(figure) {
  view.length = Math.max(...data.steps.map(step => step.step));
  data.steps.forEach((step, i) => {
    const name = data.names[i] ? `one step of ${data.names[i]}` : "one step";
    if (data.steps.length > 1) figure.append(make("h3", {}, `${name}: ${timeText(step.step)}`));
    drawTimeline(figure, step, name);
  });
  const gapStart = Math.max(...data.steps.map(step => step.gap[0]));
  look(0, gapStart ? 1.1 * gapStart : view.length);
  const again = () => view.draws.forEach(paint => paint());
  new ResizeObserver(again).observe(figure);
  for (const media of ["(prefers-color-scheme: dark)", "print"])
    matchMedia(media).addEventListener("change", again);
  addEventListener("beforeprint", again);
}
