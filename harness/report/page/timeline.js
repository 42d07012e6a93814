const data = JSON.parse(document.getElementById("data").textContent);
const DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
const COLLECTIVE = 9, UPDATE = 10; // below them: the index of a phase
const value = new Int8Array(128);
for (let i = 0; i < 64; i++) value[DIGITS.charCodeAt(i)] = i;

// One process's marks, from the string that harness/report/packed.py describes.
function unpack(process) {
  const text = process.marks;
  const at = new Float64Array(text.length >> 1), what = new Uint8Array(text.length >> 1), step = new Int32Array(text.length >> 1);
  let n = 0, i = 0, now = 0, done = 0;
  function number() {
    let total = 0, scale = 1, digit;
    while ((digit = value[text.charCodeAt(i++)]) >= 32) { total += (digit - 32) * scale; scale *= 32; }
    return total + digit * scale;
  }
  while (i < text.length) {
    const letter = text[i++];
    now += number();
    if (letter === "u") done += 1; else if (letter === "U") done = number();
    at[n] = process.begin + now * data.quantum;
    what[n] = letter === "c" ? COLLECTIVE : letter === "u" || letter === "U" ? UPDATE : letter.charCodeAt(0) - 65;
    step[n++] = done;
  }
  process.at = at.subarray(0, n); process.what = what.subarray(0, n); process.step = step.subarray(0, n);
  process.marks = null;
}
data.processes.forEach(unpack);
const rows = Array.from({ length: data.ranks }, () => []);
for (const process of data.processes) if (rows[process.rank]) rows[process.rank].push(process);

const canvas = document.getElementById("timeline"), readout = document.getElementById("readout");
const brush = canvas.getContext("2d");
const whole = [Math.min(0, data.end), Math.max(data.end, 1e-3) * 1.01];
let view = whole.slice(), cursor = null, chosen = 0, theme = {}, width = 0, gutter = 64, rowHeight = 44;
const TOP = 44;

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "soft", "line", "lane", "failed", "passed", "unknown", "band", "focus"]) theme[name] = style.getPropertyValue("--" + name).trim();
  theme.phases = data.phases.map((_, i) => style.getPropertyValue("--p" + i).trim());
}
function layout() {
  width = Math.max(280, canvas.parentElement.clientWidth);
  gutter = width < 500 ? 36 : 62;
  rowHeight = data.ranks <= 3 ? 60 : data.ranks <= 6 ? 46 : data.ranks <= 16 ? 30 : data.ranks <= 48 ? 18 : data.ranks <= 200 ? 12 : data.ranks <= 600 ? 5 : 3;
  const height = TOP + rowHeight * data.ranks + 6, dense = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * dense); canvas.height = Math.round(height * dense);
  canvas.style.height = height + "px";
  brush.setTransform(dense, 0, 0, dense, 0, 0);
}
const x = (t) => gutter + (t - view[0]) / (view[1] - view[0]) * (width - gutter);
const timeAt = (px) => view[0] + (px - gutter) / (width - gutter) * (view[1] - view[0]);
function firstFrom(at, t) { // index of the first mark at t or later
  let low = 0, high = at.length;
  while (low < high) { const mid = (low + high) >> 1; if (at[mid] < t) low = mid + 1; else high = mid; }
  return low;
}
function shortTime(t) {
  const span = view[1] - view[0];
  return t.toFixed(span > 20 ? 0 : span > 2 ? 1 : span > 0.2 ? 2 : 4) + " s";
}

function drawAxis() {
  const room = Math.max(2, Math.floor((width - gutter) / 90)), span = view[1] - view[0];
  let unit = 10 ** Math.floor(Math.log10(span / room));
  for (const times of [1, 2, 5, 10]) if (span / (unit * times) <= room) { unit *= times; break; }
  brush.textAlign = "left"; brush.font = "11px system-ui, sans-serif";
  for (let t = Math.ceil(view[0] / unit) * unit; t < view[1]; t += unit) {
    const px = Math.round(x(t)) + .5;
    brush.strokeStyle = theme.line; brush.beginPath(); brush.moveTo(px, TOP - 6); brush.lineTo(px, TOP + rowHeight * data.ranks); brush.stroke();
    brush.fillStyle = theme.soft; brush.fillText(shortTime(t), px + 3, TOP - 8);
  }
}

function drawProcess(process, top) {
  const left = Math.max(gutter, x(process.begin)), right = Math.min(width, x(process.end));
  if (right < gutter || left > width) return;
  const tall = rowHeight >= 28, pad = rowHeight >= 12 ? 2 : rowHeight >= 5 ? 1 : 0;
  const barTop = top + (tall ? 5 : pad), barHeight = tall ? rowHeight * .42 : rowHeight - 2 * pad;
  const { at, what, step } = process;
  const begin = Math.max(0, firstFrom(at, view[0]) - 1), end = Math.min(at.length, firstFrom(at, view[1]) + 1);
  // Phases: each to the next phase's begin; of those within one pixel the longest is drawn.
  let i = begin;
  while (i > 0 && what[i] >= COLLECTIVE) i--;
  let from = null, phase = -1, column = -1, best = 0;
  function span(t0, t1, name) {
    const a = Math.max(left, x(t0)), b = Math.min(right, x(t1));
    if (b < a) return;
    if (b - a < 1) {
      const here = Math.floor(a);
      if (here === column && b - a <= best) return;
      column = here; best = b - a;
      brush.fillStyle = theme.phases[name]; brush.fillRect(here, barTop, 1, barHeight);
      return;
    }
    brush.fillStyle = theme.phases[name]; brush.fillRect(a, barTop, b - a, barHeight);
  }
  for (; i < end; i++) {
    if (what[i] >= COLLECTIVE) continue;
    if (from !== null) span(from, at[i], phase);
    from = at[i]; phase = what[i];
  }
  if (from !== null) span(from, end < at.length ? view[1] : process.end, phase);
  if (process.replayed) drawReplayed(process, top, pad);
  if (!tall) return;
  // Below the bar: a tick for each collective, a notch and a number for each update, where there is room.
  const below = barTop + barHeight;
  let lastTick = -9, lastLabel = -99, lastNotch = -9;
  brush.font = "10px system-ui, sans-serif"; brush.textAlign = "right";
  for (i = begin; i < end; i++) {
    const px = x(at[i]);
    if (px < gutter || px > width) continue;
    if (what[i] === COLLECTIVE && px - lastTick >= 2) {
      brush.fillStyle = theme.ink; brush.globalAlpha = .55; brush.fillRect(px, below + 1, 1, 4); brush.globalAlpha = 1; lastTick = px;
    } else if (what[i] === UPDATE && px - lastNotch >= 2) {
      brush.fillStyle = theme.soft; brush.fillRect(px, barTop - 3, 1, barHeight + 3); lastNotch = px;
      if (px - lastLabel > 30 && px - 22 > left) { brush.fillText(step[i], px - 1, top + rowHeight - 5); lastLabel = px; }
    }
  }
}

function drawReplayed(process, top, pad) {
  const { at, what, step } = process, [first, last] = process.replayed;
  let from = process.begin, to = null;
  for (let i = 0; i < at.length; i++) {
    if (what[i] !== UPDATE) continue;
    if (step[i] < first) from = at[i];
    if (step[i] <= last) to = at[i];
  }
  const begins = at.findIndex((t, i) => t > from && data.phases[what[i]] === "load_batch");
  if (from === process.begin && begins >= 0) from = at[begins];
  if (to === null) return;
  const a = Math.max(gutter, x(from)), b = Math.min(width, Math.max(x(to), x(from) + 2));
  if (b <= a) return;
  brush.save(); brush.beginPath(); brush.rect(a, top + pad, b - a, rowHeight - 2 * pad); brush.clip();
  brush.strokeStyle = theme.phases[4]; brush.lineWidth = 1.5; brush.globalAlpha = .75; brush.beginPath();
  for (let px = Math.floor(a / 6) * 6 - rowHeight; px < b; px += 6) { brush.moveTo(px, top + rowHeight); brush.lineTo(px + rowHeight, top); }
  brush.stroke(); brush.restore();
}

function drawEnd(process, top) {
  const px = x(process.end);
  if (!process.ended || px < gutter || px > width + 4) return;
  const half = Math.min(5, rowHeight / 3), mid = top + rowHeight / 2;
  brush.strokeStyle = theme.failed; brush.lineWidth = 2; brush.beginPath();
  brush.moveTo(px - half, mid - half); brush.lineTo(px + half, mid + half); brush.moveTo(px - half, mid + half); brush.lineTo(px + half, mid - half);
  brush.stroke(); brush.lineWidth = 1;
  if (rowHeight < 18) return;
  brush.font = "11px system-ui, sans-serif";
  const words = process.ended.slice(0, 40), room = brush.measureText(words).width + 12;
  const next = rows[process.rank].find((other) => other.begin > process.end);
  const limit = Math.min(width, next ? x(next.begin) : width);
  brush.fillStyle = theme.failed;
  if (px + room <= limit) { brush.textAlign = "left"; brush.fillText(words, px + 8, mid + 4); }
  else if (!next && rowHeight >= 28) { brush.textAlign = "right"; brush.fillText(words, px - 8, top + rowHeight - 5); }
}

function drawGround() {
  const bottom = TOP + rowHeight * data.ranks, pad = rowHeight >= 12 ? 2 : rowHeight >= 5 ? 1 : 0;
  for (const process of data.processes) {
    const left = Math.max(gutter, x(process.begin)), right = Math.min(width, x(process.end));
    brush.fillStyle = theme.lane;
    if (right >= gutter && left <= width) brush.fillRect(left, TOP + process.rank * rowHeight + pad, Math.max(1, right - left), rowHeight - 2 * pad);
  }
  for (const band of data.bands) {
    const a = Math.max(gutter, x(band.begin_s)), b = Math.min(width, x(band.end_s));
    if (b <= gutter || a >= width) continue;
    brush.fillStyle = theme.band; brush.fillRect(a, TOP, b - a, bottom - TOP);
    if (rowHeight >= 5) for (const rank of band.ranks) brush.fillRect(a, TOP + rank * rowHeight, b - a, rowHeight);
  }
}
function drawMoments() {
  const bottom = TOP + rowHeight * data.ranks;
  for (const [begin, end, step] of data.saves) {
    const px = x(end === null ? begin : end);
    if (px < gutter || px > width) continue;
    brush.fillStyle = end === null ? theme.failed : theme.phases[5];
    brush.save(); brush.translate(px, TOP - 1); brush.rotate(Math.PI / 4); brush.fillRect(-3.5, -3.5, 7, 7); brush.restore();
    brush.globalAlpha = .35; brush.fillRect(px - .5, TOP, 1, bottom - TOP); brush.globalAlpha = 1;
  }
  let taken = [];
  brush.font = "600 11px system-ui, sans-serif"; brush.textAlign = "left";
  const words = { fault: "fault", deviation: "first deviation", recovered: "new step", launch: "launch" };
  for (const kind of ["deviation", "fault", "recovered", "launch"]) {
    for (const moment of data.moments) {
      if (moment.kind !== kind) continue;
      const px = x(moment.at_s);
      if (px < gutter - 1 || px > width) continue;
      brush.strokeStyle = brush.fillStyle = kind === "recovered" ? theme.passed : kind === "launch" ? theme.soft : theme.failed;
      brush.lineWidth = kind === "launch" ? 1 : 1.5; brush.setLineDash(kind === "fault" || kind === "deviation" ? [] : [3, 3]);
      brush.beginPath(); brush.moveTo(px, 16); brush.lineTo(px, bottom); brush.stroke(); brush.setLineDash([]); brush.lineWidth = 1;
      const label = kind === "launch" && moment.restart ? "restart " + moment.restart : words[kind], room = brush.measureText(label).width + 8;
      const place = px + room > width ? px - room : px;
      if (taken.some(([a, b]) => place < b && place + room > a)) continue;
      taken.push([place, place + room]);
      brush.fillText(label, place + 3, 12);
      if (kind === "deviation" && moment.rank !== null && rowHeight >= 5) {
        brush.lineWidth = 2; brush.strokeRect(px - 4, TOP + moment.rank * rowHeight + 1, 8, rowHeight - 2); brush.lineWidth = 1;
      }
    }
  }
}

let asked = false;
function redraw() { if (!asked) { asked = true; requestAnimationFrame(draw); } }
function draw() {
  asked = false;
  brush.clearRect(0, 0, width, canvas.height);
  drawAxis();
  brush.save(); brush.beginPath(); brush.rect(gutter - 1, 0, width - gutter + 1, canvas.height); brush.clip();
  drawGround();
  rows.forEach((processes, rank) => processes.forEach((process) => drawProcess(process, TOP + rank * rowHeight)));
  drawMoments();
  rows.forEach((processes, rank) => processes.forEach((process) => drawEnd(process, TOP + rank * rowHeight)));
  if (cursor !== null) {
    brush.fillStyle = theme.focus; brush.fillRect(x(cursor) - .5, 16, 1, TOP + rowHeight * data.ranks);
    brush.strokeStyle = theme.focus; brush.strokeRect(gutter, TOP + chosen * rowHeight + .5, width - gutter - 1, rowHeight - 1);
  }
  brush.restore();
  brush.font = "11px system-ui, sans-serif"; brush.textAlign = "left";
  const every = Math.max(1, Math.ceil(12 / rowHeight));
  for (let rank = 0; rank < data.ranks; rank += every) {
    brush.fillStyle = rank === chosen && cursor !== null ? theme.focus : theme.soft;
    brush.fillText(gutter < 50 ? "r" + rank : "rank " + rank, 2, TOP + (rank + .5) * rowHeight + 4);
  }
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
}

function say() {
  if (cursor === null) return;
  const parts = [cursor.toFixed(4) + " s", "rank " + chosen];
  const process = rows[chosen].find((each) => each.begin <= cursor && cursor <= each.end);
  if (!process) {
    const before = rows[chosen].filter((each) => each.end < cursor).pop();
    parts.push(before ? "no process: launch " + before.restart + " has ended" + (before.ended ? " (" + before.ended + ")" : "") : "no process yet");
  } else {
    parts.push("launch " + process.restart);
    let next = firstFrom(process.at, cursor);
    while (next < process.at.length && process.what[next] !== UPDATE) next++;
    let phase = firstFrom(process.at, cursor + 1e-9) - 1;
    while (phase >= 0 && process.what[phase] >= COLLECTIVE) phase--;
    if (next < process.at.length) {
      const step = process.step[next];
      parts.push("step " + step + (process.replayed && step >= process.replayed[0] && step <= process.replayed[1] ? " (done again)" : ""));
    } else parts.push("after its last step");
    if (phase >= 0) parts.push(data.phases[process.what[phase]]);
  }
  const near = (view[1] - view[0]) / 100;
  for (const moment of data.moments) if (Math.abs(moment.at_s - cursor) < near && (moment.rank === null || moment.rank === chosen || moment.kind !== "error")) { parts.push(moment.text); break; }
  readout.textContent = parts.join(" · ");
}
function show(begin, end) {
  const span = Math.min(whole[1] - whole[0], Math.max(1e-5, end - begin));
  begin = Math.max(whole[0], Math.min(begin, whole[1] - span));
  view = [begin, begin + span];
  redraw();
}
function zoom(factor, around) {
  const centre = around ?? (cursor !== null && cursor >= view[0] && cursor <= view[1] ? cursor : (view[0] + view[1]) / 2);
  show(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
}
function jump(t, rank) {
  cursor = t;
  if (rank !== null && rows[rank]) chosen = rank;
  const around = Math.max((whole[1] - whole[0]) / 25, Math.min(whole[1] - whole[0], stepLength(t, chosen) * 6));
  show(t - around / 2, t + around / 2);
  say();
}
function stepLength(t, rank) {
  const process = rows[rank].find((each) => each.begin <= t && t <= each.end + 1);
  if (!process) return 0;
  const times = [];
  for (let i = firstFrom(process.at, t) - 1; i >= 0 && times.length < 3; i--) if (process.what[i] === UPDATE) times.push(process.at[i]);
  return times.length > 1 ? (times[0] - times[times.length - 1]) / (times.length - 1) : 0;
}
function step(forward) {
  const times = data.moments.map((moment) => moment.at_s), now = cursor ?? view[0];
  const found = forward ? data.moments.find((m) => m.at_s > now + 1e-9) : data.moments.filter((m) => m.at_s < now - 1e-9).pop();
  if (found) jump(found.at_s, found.rank);
}

const actions = {
  in: () => zoom(.5), out: () => zoom(2), left: () => show(view[0] - (view[1] - view[0]) / 3, view[1] - (view[1] - view[0]) / 3),
  right: () => show(view[0] + (view[1] - view[0]) / 3, view[1] + (view[1] - view[0]) / 3), whole: () => { cursor = null; show(...whole); },
};
function move(by) {
  const span = view[1] - view[0];
  cursor = Math.max(whole[0], Math.min(whole[1], (cursor ?? (view[0] + view[1]) / 2) + by * span));
  if (cursor < view[0] || cursor > view[1]) show(cursor - span / 2, cursor + span / 2);
}
const keys = {
  ArrowLeft: () => move(-.02), ArrowRight: () => move(.02), "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.whole, Home: actions.whole,
  ArrowUp: () => { chosen = Math.max(0, chosen - 1); move(0); }, ArrowDown: () => { chosen = Math.min(data.ranks - 1, chosen + 1); move(0); },
  n: () => step(true), p: () => step(false),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault(); keys[event.key](); say(); redraw();
});
let drag = null;
canvas.addEventListener("pointerdown", (event) => { drag = { x: event.offsetX, view: view.slice() }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointerup", () => { drag = null; });
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("pointermove", (event) => {
  if (drag) { const by = (event.offsetX - drag.x) / (width - gutter) * (drag.view[1] - drag.view[0]); show(drag.view[0] - by, drag.view[1] - by); }
  if (event.offsetX < gutter || event.offsetY < TOP) return;
  cursor = timeAt(event.offsetX); chosen = Math.max(0, Math.min(data.ranks - 1, Math.floor((event.offsetY - TOP) / rowHeight)));
  say(); redraw();
});
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return; // plain scrolling belongs to the page
  event.preventDefault(); zoom(event.deltaY < 0 ? .8 : 1.25, timeAt(event.offsetX));
}, { passive: false });
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.do) actions[button.dataset.do]();
  else if (button.dataset.at) {
    jump(Number(button.dataset.at), button.dataset.rank ? Number(button.dataset.rank) : null);
    canvas.scrollIntoView({ block: "center" });
  }
});
new ResizeObserver(() => { const before = width; if (canvas.parentElement.clientWidth !== before) { layout(); redraw(); } }).observe(canvas.parentElement);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); redraw(); });
readTheme(); layout(); draw();
