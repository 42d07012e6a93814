"use strict";
// Commands to copy, and the interval that follows from the figures in the form; both pages have them.
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch { // a page opened from a file may not write there: select it, so that Ctrl+C does
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
(function () {
  const output = document.getElementById("daly");
  if (!output) return;
  const number = (id) => Number(document.getElementById(id).value.replace(",", "."));
  const duration = (s) => {
    if (s < 0.9995) return Number((s * 1e3).toPrecision(3)) + " ms";
    if (s < 99.95) return Number(s.toPrecision(3)) + " s";
    const whole = Math.round(s), pad = (n) => String(n).padStart(2, "0");
    const minutes = Math.floor(whole / 60);
    return minutes < 60 ? minutes + " min " + pad(whole % 60) + " s" : Math.floor(minutes / 60) + " h " + pad(minutes % 60) + " min";
  };
  function advise() {
    const save = number("save_s"), recovery = number("recovery_s"), mtbf = number("mtbf_h") * 3600;
    if (!(save > 0 && mtbf > 0 && recovery >= 0)) { output.textContent = "A save and the time between failures must be above 0."; return; }
    const young = Math.sqrt(2 * save * mtbf), ratio = save / (2 * mtbf);
    const daly = save >= 2 * mtbf ? mtbf : young * (1 + Math.sqrt(ratio) / 3 + ratio / 9) - save;
    const cost = mtbf / daly * Math.exp(recovery / mtbf) * Math.expm1((daly + save) / mtbf) - 1;
    const share = !isFinite(cost) ? "without end" : cost < .1 ? (100 * cost).toFixed(2) + "%" : (100 * cost).toFixed(0) + "%";
    const best = document.createElement("b");
    best.textContent = duration(daly);
    output.replaceChildren("Save every ", best, ` of training (Daly; Young says ${duration(young)}). Saves, rework and recovery then add ${share} to the training time.`);
  }
  for (const id of ["save_s", "recovery_s", "mtbf_h"]) document.getElementById(id).addEventListener("input", advise);
  document.querySelector("form.inputs").addEventListener("submit", (event) => event.preventDefault());
})();
