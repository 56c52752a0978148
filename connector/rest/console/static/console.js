// Keeps pages fresh, and draws plots. Everything can be read and done without it.
"use strict";

const live = document.getElementById("live");
const fresh = document.getElementById("fresh");
const news = document.getElementById("news");  // What a screen reader says when it changes.
const updates = document.getElementById("updates");
const againMs = 10000;  // After the server refused a stream.
let paused = false;
let last = new Date();
let stream = null;  // Says when what the page shows has changed.
let again = 0;

function said(text, isOld) {
  fresh.textContent = text;
  live.classList.toggle("old", isOld);
}

// Replaces what the page shows; what was opened, focused or scrolled stays so.
function replaceWith(page) {
  const found = page.getElementById("live");
  if (!found) return;
  for (const part of live.querySelectorAll("details[id]")) {
    const same = found.querySelector("#" + CSS.escape(part.id));
    if (same) same.open = part.open;
  }
  const plots = document.getElementById("plots");
  const place = found.querySelector("#plots");
  if (plots && place) place.replaceWith(plots);
  const key = (element) => element.id || element.getAttribute("href") || element.getAttribute("aria-label");
  const focused = live.contains(document.activeElement) && key(document.activeElement);
  const across = [...live.querySelectorAll(".wide")].map((part) => part.scrollLeft);
  const summary = () => live.querySelector(".said")?.textContent || "";
  const before = summary();
  live.replaceChildren(...found.childNodes);
  if (summary() !== before) news.textContent = summary();
  live.querySelectorAll(".wide").forEach((part, number) => { part.scrollLeft = across[number] || 0; });
  if (focused) {
    const same = [...live.querySelectorAll("[id], a, [tabindex]")].find((each) => key(each) === focused);
    if (same) same.focus({ preventScroll: true });
  }
}

async function refresh() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html,application/xhtml+xml" } });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    replaceWith(new DOMParser().parseFromString(await answer.text(), "text/html"));
    await draw();
    last = new Date();
    said("", false);
  } catch (error) {
    noAnswer(error.message);
  }
}

function noAnswer(reason) {
  said(`No answer since ${last.toLocaleTimeString()} (${reason})`, true);
}

// A page that is hidden or paused has no stream. The first line of a new one says whether it missed something.
function follow() {
  clearTimeout(again);
  if (stream) stream.close();
  stream = null;
  if (paused || document.hidden) return;
  const query = new URLSearchParams(location.search);
  query.set("mark", live.dataset.mark);
  stream = new EventSource(`${live.dataset.events}?${query}`);
  stream.onopen = () => { last = new Date(); said("", false); };
  stream.onmessage = (event) => { live.dataset.mark = event.lastEventId; refresh(); };
  stream.addEventListener("seen", (event) => {
    last = new Date();
    const time = document.getElementById("as-of");
    if (time) time.textContent = event.data;
  });
  stream.onerror = () => {
    noAnswer("the stream ended");
    if (stream.readyState === EventSource.CLOSED) again = setTimeout(follow, againMs);
  };
}

if (live.dataset.events) {
  updates.hidden = false;
  updates.addEventListener("click", () => {
    paused = !paused;
    updates.setAttribute("aria-pressed", String(paused));
    updates.textContent = paused ? "Resume updates" : "Pause updates";
    said(paused ? `As of ${new Date().toLocaleTimeString()}` : "", false);
    follow();
  });
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", () => { if (stream) stream.close(); });
  addEventListener("pageshow", (event) => { if (event.persisted) follow(); });
  follow();
}

// In a narrow window the list of pages scrolls. To scroll to an element would move where Tab starts.
const current = document.querySelector("[aria-current=page]");
if (current) {
  const list = current.closest("ul");
  list.scrollLeft = current.offsetLeft - (list.clientWidth - current.offsetWidth) / 2;
}

const drawn = new Map();
const units = ["", "k", "M", "G", "T"];

function shortNumber(value) {
  if (value === null || value === undefined) return "–";
  let step = 0;
  while (Math.abs(value) >= 1000 && step < units.length - 1) { value /= 1000; step += 1; }
  return Number(value.toPrecision(3)) + units[step];
}

async function draw() {
  const place = document.getElementById("plots");
  if (!place || !window.uPlot) return;
  const found = await (await fetch(place.dataset.from)).json();
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const inks = ["--line-1", "--line-2", "--line-3"].map(colour);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule") } };
  const iso = (seconds) => new Date(seconds * 1000).toISOString();  // As all times of the pages.
  const clock = (seconds) => iso(seconds).slice(11, 16);
  const time = { label: "Time", value: (_, at) => (at === null ? "–" : `${iso(at).slice(0, 19)}Z`) };
  for (const plot of found.plots) {
    const data = [found.times, ...plot.lines.map((line) => line.values)];
    const known = drawn.get(plot.name);
    if (known) { known.setData(data); continue; }
    const box = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = `${plot.title}, ${plot.unit}`;
    box.append(caption);
    place.append(box);
    const series = plot.lines.map((line, number) => ({
      label: line.name, stroke: inks[number], width: 2, value: (_, value) => shortNumber(value),
    }));
    drawn.set(plot.name, new uPlot({
      width: box.clientWidth, height: 180, series: [time, ...series],
      axes: [{ ...axis, space: 60, values: (_, values) => values.map(clock) }, { ...axis, size: 56, values: (_, values) => values.map(shortNumber) }],
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    }, data, box));
  }
}

addEventListener("resize", () => {
  for (const plot of drawn.values()) plot.setSize({ width: plot.root.parentElement.clientWidth, height: 180 });
});
draw().catch((error) => noAnswer(error.message));
