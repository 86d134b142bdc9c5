"use strict";
// What a test asks of a page in a browser: keys as people press them, what was drawn and said, and
// axe-core's verdict where it is there. The answers stand in the page, as JSON.
(async () => {
  const high = document.body.offsetHeight, painted = performance.now(); // laid out and drawn
  const canvas = document.querySelector("canvas"), said = document.querySelector(".what");
  const sum = () => [...canvas.toDataURL()].reduce((total, c) => (total * 31 + c.charCodeAt(0)) % 1000003, 7);
  canvas.focus();
  const told = {}, drawn = {start: sum()};
  for (const key of ["0", "+", "ArrowRight", "ArrowLeft", "-", "ArrowDown", ".", ","]) {
    canvas.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    told[key] = said.textContent;
    drawn[key] = sum();
  }
  const answers = {
    high,
    painted,
    told,
    drawn,
    focus: document.activeElement === canvas,
    label: canvas.getAttribute("aria-label"),
    pictures: [...document.querySelectorAll("figure")].map(each => [each.dataset.picture, each.children.length]),
    gpus: document.querySelectorAll(".gpu.type").length,
    loaded: performance.getEntriesByType("resource").length,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    violations: [],
  };
  if (window.axe) {
    const verdict = await axe.run(document, {resultTypes: ["violations"]});
    answers.violations = verdict.violations.map(({id, nodes}) => [id, nodes[0].html]);
    answers.contrast = verdict.passes.some(({id}) => id === "color-contrast");
  }
  document.body.append(make("pre", {id: "answers"}, JSON.stringify(answers)));
})();
