"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("step"), what = document.getElementById("what");
  const [gapStart, gapEnd] = data.gap;  // bars between them are left out
  const length = data.step, inGap = t => gapStart < t && t < gapEnd;
  const COLOURS = {forward: [["#4c86c6", "#86b3e3"], ["#2f5687", "#5b83ad"]],
    backward: [["#3f9a5b", "#7cc491"], ["#2a6a3e", "#569a6a"]],
    weight: [["#b5567f", "#dc9bb8"], ["#b5567f", "#dc9bb8"]], sync: [["#f0a030", "#f0a030"]],
    embedding: [["#b279c9", "#b279c9"]], optimizer: [["#8c6d5a", "#8c6d5a"]], gather: [["#e0cb3c", "#e0cb3c"]]};
  const rowHeight = data.rows.length <= 16 ? 30 : data.rows.length <= 64 ? 20 : 13;
  const axis = 26, top = 4;
  let from = 0, to = gapStart ? Math.min(1.1 * gapStart, length) : length, width = 0, label = 0;

  const fill = (kind, microBatch, chunk) => {
    const shades = COLOURS[kind];
    return shades[chunk > 0 && shades.length > 1 ? 1 : 0][Math.max(microBatch, 0) % 2];
  };
  const text = (ns, like) => {
    const [factor, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([f]) => (like || ns) >= f) || [1, "ns"];
    return `${Number((ns / factor).toPrecision(5))} ${unit}`;
  };
  const x = shown => label + (shown - from) / (to - from) * (width - label);
  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function ticks() {
    const raw = (to - from) / Math.max(3, Math.floor((width - label) / 110));
    const power = 10 ** Math.floor(Math.log10(raw));
    const distance = [1, 2, 5, 10].map(f => f * power).find(d => d >= raw);
    const found = [];
    for (let t = Math.ceil(from / distance) * distance; t <= to; t += distance) found.push(t);
    return found;
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1, height = top + data.rows.length * (rowHeight + 2) + axis;
    width = canvas.clientWidth;
    label = width < 600 ? 34 : 74;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    const ink = style("--ink"), idle = style("--idle");
    data.rows.forEach((row, i) => {
      const y = top + i * (rowHeight + 2);
      g.fillStyle = ink;
      if (rowHeight > 12) g.fillText(label < 50 ? row.stage : `stage ${row.stage}`, 0, y + rowHeight / 2);
      g.fillStyle = idle;
      g.fillRect(label, y, width - label, rowHeight);
      for (const [kind, start, duration, microBatch, chunk] of row.bars) {
        if (start + duration < from || start > to) continue;
        const left = Math.max(x(start), label), right = Math.min(x(start + duration), width);
        g.fillStyle = fill(data.kinds[kind][0], right - left > 3 ? microBatch : 0, chunk);
        g.fillRect(left, y, Math.max(right - left, .4), rowHeight);
        if (microBatch >= 0 && right - left > 8 + 6 * String(microBatch).length && rowHeight > 16) {
          g.fillStyle = microBatch % 2 && !chunk ? "#111" : "#fff";
          g.textAlign = "center";
          g.fillText(microBatch, (left + right) / 2, y + rowHeight / 2);
          g.textAlign = "left";
        }
      }
    });
    const bottom = top + data.rows.length * (rowHeight + 2);
    g.strokeStyle = style("--critical");
    g.lineWidth = 2;
    g.beginPath();
    for (const [row, start, end] of data.critical) {
      if (end < from || start > to) continue;
      const y = top + row * (rowHeight + 2) + rowHeight - 1.5;
      g.moveTo(Math.max(x(start), label), y);
      g.lineTo(Math.min(x(end), width), y);
    }
    g.stroke();
    if (gapEnd > from && gapStart < to) {
      const left = Math.max(x(gapStart), label), right = Math.min(x(gapEnd), width);
      g.fillStyle = style("--paper");
      g.fillRect(left, 0, right - left, bottom);
      g.save();
      g.translate((left + right) / 2, bottom / 2);
      g.rotate(-Math.PI / 2);
      g.fillStyle = ink;
      g.textAlign = "center";
      if (bottom > 120) g.fillText(`${data.hidden} micro-batches more`, 0, 0);
      g.restore();
    }
    g.fillStyle = ink;
    g.textAlign = "center";
    for (const t of ticks()) {
      g.fillRect(x(t), bottom, 1, 5);
      g.fillText(text(t, data.step), Math.min(Math.max(x(t), label + 20), width - 24), bottom + 15);
    }
    g.textAlign = "left";
  }

  function view(start, span) {
    span = Math.min(Math.max(span, length / 1e5), length);
    from = Math.min(Math.max(start, 0), length - span);
    to = from + span;
    draw();
  }
  const zoom = (factor, at) => view(at - (at - from) * factor, (to - from) * factor);
  const time = px => from + (px - label) / (width - label) * (to - from);

  function describe(px, py) {
    const i = Math.floor((py - top) / (rowHeight + 2)), t = time(px), row = data.rows[i];
    if (!row || px < label) { what.textContent = row ? `stage ${row.stage}: ${row.place}` : "\u00a0"; return; }
    const bar = row.bars.find(([, start, duration]) => start <= t && t < start + duration);
    const place = `stage ${row.stage}: ${row.place}`;
    if (!bar) { what.textContent = `${place}; ${inGap(t) ? "steady state, not shown" : "idle"}`; return; }
    const [kind, start, duration, microBatch, chunk] = bar;
    const whose = microBatch < 0 ? "" : ` of micro-batch ${microBatch}${chunk ? `, chunk ${chunk}` : ""}`;
    what.textContent = `${data.kinds[kind][1]}${whose}, ${text(duration)} from ${text(start, data.step)}; ${place}`;
  }

  const pointers = new Map();
  canvas.addEventListener("pointerdown", event => {
    pointers.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    describe(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointermove", event => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) { describe(event.offsetX, event.offsetY); return; }
    const others = [...pointers].filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const fixed = others[0][1], old = Math.abs(before - fixed), now = Math.abs(event.offsetX - fixed);
      if (old > 8 && now > 8) zoom(old / now, time(fixed));
    } else view(from - (event.offsetX - before) / (width - label) * (to - from), to - from);
    pointers.set(event.pointerId, event.offsetX);
  });
  for (const name of ["pointerup", "pointercancel"])
    canvas.addEventListener(name, event => pointers.delete(event.pointerId));
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : .8, time(event.offsetX));
  }, {passive: false});
  const shown = () => inGap((from + to) / 2) ? from : (from + to) / 2;  // where to look closer
  document.getElementById("in").onclick = () => zoom(.5, shown());
  document.getElementById("out").onclick = () => zoom(2, (from + to) / 2);
  document.getElementById("all").onclick = () => view(0, length);
  for (const [kind, name] of data.kinds) {
    const item = document.createElement("li"), key = document.createElement("i");
    key.style.background = fill(kind, 0, 0);
    item.append(key, name);
    document.getElementById("kinds").append(item);
  }
  const path = document.createElement("li"), line = document.createElement("i");
  line.style.cssText = "height:3px;vertical-align:3px;background:var(--critical)";
  path.append(line, "critical path: what the step has to wait for");
  document.getElementById("kinds").append(path);
  new ResizeObserver(draw).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", draw);
  draw();
})();
