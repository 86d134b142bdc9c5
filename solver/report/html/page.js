"use strict";
// Draws every picture of the page, and makes commands easy to copy.

const PICTURES = {
  chain: drawChain,
  machines: drawMachines,
  memory: drawMemory,
  timeline: drawTimelines,
  spent: drawSpent,
  links: drawLinks,
  search: drawSearch,
};
for (const figure of document.querySelectorAll("figure")) PICTURES[figure.dataset.picture](figure);

/** A button behind every command that copies it. */
for (const command of document.querySelectorAll("#launch td:nth-child(2)")) {
  const text = command.textContent;
  if (!text.startsWith("hetplan ")) continue;
  const button = make("button", {type: "button", "aria-label": `copy: ${text}`}, "copy");
  button.onclick = async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  };
  command.append(" ", button);
}

/** On paper folded tables are open, unless they take pages. */
const MOST_PRINTED = 100;
const folded = [...document.querySelectorAll("details")]
  .filter(details => details.querySelector("tbody").rows.length <= MOST_PRINTED);
let opened = [];
addEventListener("beforeprint", () => {
  opened = folded.filter(details => !details.open);
  opened.forEach(details => { details.open = true; });
});
addEventListener("afterprint", () => opened.forEach(details => { details.open = false; }));

/** Tables wider than the page are scrolled with keys, too. */
const frames = new ResizeObserver(entries => {
  for (const {target} of entries)
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
});
document.querySelectorAll(".scroll").forEach(frame => frames.observe(frame));
