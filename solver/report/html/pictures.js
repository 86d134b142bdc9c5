"use strict";
// Pictures that stand still. Each fills a <figure>; the table below it says the same in numbers.

const MANY_MACHINES = 64; // from here on GPUs are small
const MOST_LINKS = 24; // that are drawn

/** A picture that is read out as one sentence. */
const picture = (label, kind, ...children) =>
  make("div", {role: "img", "aria-label": label, class: kind}, ...children);

/** A part of a bar, so many per cent wide. */
function part(name, share, title) {
  const piece = make("i", {class: classOf(name), title});
  piece.style.width = `${100 * share}%`;
  return piece;
}

/** The chain of layers, cut into stages, in the colours of the GPU types that run them. */
function drawChain(figure) {
  const total = data.chain.reduce((sum, stage) => sum + stage.layers, 0);
  const stages = data.chain.map(stage => {
    const title = `stage ${stage.stage}: layers ${stage.text} on ${stage.types.join(", ")}`;
    const block = make("div", {class: `stage ${classOf(stage.types[0])}`, title}, `${stage.stage}`);
    if (stage.types.length > 1) block.append(
      make("span", {class: "types"}, ...stage.types.map(type => make("i", {class: classOf(type)}))));
    block.style.width = `${100 * stage.layers / total}%`;
    return block;
  });
  figure.append(picture("layers of the model, stage by stage", "chain", ...stages));
}

/** Numbers from the least to the largest: "3", or "0-7". */
const range = numbers => [...new Set([Math.min(...numbers), Math.max(...numbers)])].join("-");

/** Every machine with its GPUs, and the ranks of their processes in the kind of group chosen.
 *  A rank stands on each GPU; of many machines those of a machine stand in its heading. */
function drawMachines(figure) {
  const many = data.hosts.length > MANY_MACHINES;
  const machines = new Map(data.hosts.map(([host, type, zone, gpus]) => {
    const cells = Array.from({length: gpus}, (_, gpu) =>
      make("i", {class: "gpu idle", title: `${host}, GPU ${gpu}: idle`}));
    const place = make("span", {}, zone ? ` ${type} in ${zone}` : ` ${type}`);
    const card = make("div", {class: "node"}, make("p", {}, make("b", {}, host), place),
      make("div", {class: "gpus"}, ...cells));
    return [host, {type, cells, place, card, ranks: []}];
  }));
  const order = new Set(); // machines of the plan in its node order, then idle ones
  data.ranks.forEach(([host, , gpu, tensor, context, share, stage], rank) => {
    const machine = machines.get(host), cell = machine.cells[gpu];
    order.add(host);
    cell.className = `gpu ${classOf(machine.type)}`;
    cell.title = `rank ${rank}: ${host}, GPU ${gpu}; pipeline ${stage}, data ${share}, ` +
      `context ${context}, tensor ${tensor}`;
    machine.ranks.push([cell, {pipeline: stage, data: share, context, tensor}]);
  });
  for (const host of machines.keys()) order.add(host);

  function show(kind) {
    for (const {place, ranks} of machines.values())
      if (!many) for (const [cell, of] of ranks) cell.textContent = of[kind];
      else if (ranks.length) place.textContent = `: ${range(ranks.map(([, of]) => of[kind]))}`;
  }
  const choice = make("fieldset", {class: "tools"}, make("legend", {}, "ranks"));
  for (const kind of ["pipeline", "data", "context", "tensor"]) {
    const input = make("input", {type: "radio", name: "ranks"});
    input.checked = kind === "pipeline";
    input.onchange = () => show(kind);
    choice.append(make("label", {}, input, ` ${kind}`));
  }
  show("pipeline");
  const cards = [...order].map(host => machines.get(host).card);
  figure.append(choice,
    picture("GPUs of every machine, by type", many ? "nodes many" : "nodes", ...cards),
    legend(data.types.map(type => [type, type])));
}

/** What memory holds: its field, the kind of cost that goes with it and gives its colour, its name. */
const HELD = [
  ["weights_bytes", "gather", "weights"],
  ["gradients_bytes", "sync", "gradients"],
  ["optimizer_bytes", "optimizer", "optimizer state"],
  ["activations_bytes", "forward", "activations"],
  ["buffers_bytes", "transfers", "buffers"],
  ["reserve_bytes", "reserve", "framework reserve"],
];

/** The memory of a GPU of every stage: a bar of what it holds, its limit, and the margin beyond. */
function drawMemory(figure) {
  const capacity = row => row.limit / (1 - data.margin);
  const largest = Math.max(...data.memory.map(capacity));
  const rows = data.memory.map(row => {
    const texts = HELD.map(([field, , name]) => `${name} ${sizeText(row.parts[field], row.limit)}`);
    const title = `${texts.join(", ")}; limit ${sizeText(row.limit)}`;
    const bar = make("div", {class: "bar", title},
      ...HELD.map(([field, kind], i) => part(kind, row.parts[field] / largest, texts[i])));
    const limit = make("b", {class: "limit"}), margin = make("b", {class: "margin"});
    limit.style.left = margin.style.left = `${100 * row.limit / largest}%`;
    margin.style.width = `${100 * (capacity(row) - row.limit) / largest}%`;
    bar.append(margin, limit);
    if (data.margin) {
      const used = Object.values(row.parts).reduce((sum, size) => sum + size, 0);
      const error = make("b", {class: "error"});
      error.style.left = `${100 * used / largest}%`;
      error.style.width = `${100 * used * data.margin / largest}%`;
      bar.append(error);
    }
    return make("div", {class: "row"}, make("span", {}, row.name), bar);
  });
  const marks = [["limit", "limit of the plan"]];
  if (data.margin) marks.push(["margin", "margin that is kept free"],
    ["error", "how much more measured peaks may be"]);
  const keys = legend(HELD.map(([, kind, name]) => [kind, name]));
  keys.append(...marks.map(([mark, text]) => make("li", {}, make("i", {class: `key ${mark}`}), text)));
  figure.append(picture("memory of a GPU of every stage, against its limit", "rows", ...rows), keys);
}

/** Where the time of the critical path goes, as one bar; its parts are named in the table. */
function drawSpent(figure) {
  const total = data.steps[0].step;
  const bar = data.spent.map(([text, time, kind]) =>
    part(kind, time / total, `${text}: ${timeText(time)}, ${percent(time / total)}`));
  figure.append(picture("the step along its critical path", "bar tall", ...bar));
  const rows = figure.parentElement.querySelector("tbody").rows;
  data.spent.forEach(([, , kind], i) =>
    rows[i].cells[0].prepend(make("i", {class: `key ${classOf(kind)}`})));
}

/** How full links are: bars of what crosses them, as shares of the step, fullest first. */
function drawLinks(figure) {
  const shown = data.links.slice(0, MOST_LINKS), kinds = new Set();
  const share = busy => 1e9 * busy / data.steps[0].step;
  const full = parts => Object.values(parts).reduce((sum, [, busy]) => sum + share(busy), 0);
  const fullest = Math.max(1, ...shown.map(([, parts]) => full(parts)));
  const rows = shown.map(([name, parts]) => {
    const bar = make("div", {class: "bar"}, ...Object.entries(parts).map(([kind, [bytes, busy]]) => {
      kinds.add(kind);
      const text = `${data.traffic[kind]} ${sizeText(bytes)}, ${percent(share(busy))} of the step`;
      return part(kind, share(busy) / fullest, `${name}: ${text}`);
    }));
    return make("div", {class: "row"}, make("span", {}, name), bar);
  });
  if (!rows.length) return;
  const axis = make("div", {class: "row"}, make("span"), make("div", {class: "axis"},
    ...[0, 0.25, 0.5, 0.75, 1].map(tick => make("span", {}, percent(tick * fullest)))));
  const more = data.links.length - shown.length;
  figure.append(picture("links, by the share of the step that they are busy", "rows", ...rows, axis),
    ...(more > 0 ? [make("p", {class: "note"}, `and ${more} rows more, in the table`)] : []),
    legend([...kinds].map(kind => [kind, data.traffic[kind]])));
}

/** Best plan and bound against search time, as shares of the last plan. */
function drawSearch(figure) {
  const [step, runtime] = data.found, height = 230;
  const width = Math.min(760, figure.parentElement.clientWidth); // texts keep their size
  const edge = {left: 64, right: 12, top: 12, bottom: 42};
  const best = data.history.filter(note => note[1]).map(([at, time]) => [at, time / step]);
  let highest = 0;
  const proved = data.history.filter(note => note[2] !== null)
    .map(([at, , share]) => [at, highest = Math.max(highest, share)]);
  if (!best.length || !proved.length) return; // nothing was noted
  const end = Math.max(runtime, best.at(-1)[0], proved.at(-1)[0]) || 1;
  const high = Math.max(1.02, Math.min(2, ...best.map(([, share]) => Math.max(share, 1))));
  const low = Math.max(0, proved[0][1] - 0.02);
  const x = at => edge.left + at / end * (width - edge.left - edge.right);
  const y = share => edge.top + (high - Math.min(share, high)) / (high - low) *
    (height - edge.top - edge.bottom);
  const svg = draw("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "best plan and bound against search time"});
  for (const share of ticks(low, high, 5)) svg.append(
    draw("path", {class: "grid", d: `M${x(0)} ${y(share)}H${x(end)}`}),
    draw("text", {x: edge.left - 8, y: y(share) + 4, "text-anchor": "end"}, percent(share)));
  for (const at of ticks(0, end, 7)) svg.append(
    draw("path", {class: "grid", d: `M${x(at)} ${edge.top}V${y(low)}`}),
    draw("text", {x: x(at), y: y(low) + 16, "text-anchor": "middle"}, `${Number(at.toPrecision(3))}`));
  svg.append(draw("text", {x: x(end / 2), y: height - 6, "text-anchor": "middle"},
    "search time, s; 100 % is the best plan in the end"));
  for (const [points, kind] of [[best, "best"], [proved, "proved"]]) {
    const steps = points.map(([at, share], i) => (i ? `H${x(at)}V${y(share)}` : `M${x(at)} ${y(share)}`));
    svg.append(draw("path", {class: `line ${kind}`, d: `${steps.join("")}H${x(end)}`}));
  }
  const names = [["best", "best plan so far"], ["proved", "proved: no plan is below"]];
  figure.append(svg, make("ul", {class: "legend"}, ...names.map(([kind, text]) =>
    make("li", {}, make("i", {class: `key line ${kind}`}), text))));
}
