"use strict";
// What all pictures share: the figures of the page, elements, units and colours.

/** The figures embedded in the page; `page_data` in page.py says what each field is. */
const data = JSON.parse(document.getElementById("data").textContent);

/** An element with attributes and children; texts are never read as HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** An element of an SVG picture. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

/** A value in the unit that fits the value `like`; units: factor and name, largest first. */
function inUnit(value, units, like = value) {
  const [factor, name] = units.find(unit => Math.abs(like) >= unit[0]) || units.at(-1);
  return `${Number((value / factor).toPrecision(4))} ${name}`;
}
const timeText = (ns, like) => inUnit(ns, TIMES, like);
const sizeText = (bytes, like) => inUnit(bytes, SIZES, like);
const percent = share => `${Number((100 * share).toPrecision(3))} %`;

/** Round numbers between two ends, about `count` of them. */
function ticks(from, to, count) {
  const raw = (to - from) / count, power = 10 ** Math.floor(Math.log10(raw));
  const distance = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= raw);
  const first = Math.ceil(from / distance);
  return Array.from({length: Math.max(0, Math.floor(to / distance) - first + 1)},
    (_, i) => (first + i) * distance);
}

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The style class of a GPU type or of a kind of cost; both are in page.css, and share no hue. */
function classOf(name) {
  const type = data.types.indexOf(name);
  return type < 0 ? `kind ${name}` : `type type${type % 8}`;
}

/** What the colours of a picture mean: pairs of a GPU type or kind of cost, and its name. */
function legend(pairs) {
  const items = pairs.map(([name, text]) =>
    make("li", {}, make("i", {class: `key ${classOf(name)}`}), text));
  return make("ul", {class: "legend"}, ...items);
}
