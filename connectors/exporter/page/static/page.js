// Keeps the page as it is on the server: asks every two seconds, and renews the parts that have changed.
"use strict";

const INTERVAL_MS = 2000;
const LONGEST_WAIT_MS = 30000;
const TIMEOUT_MS = 10000;
const live = document.getElementById("live");
let etag = null;
let failures = 0;
let answeredAt = null;
let clockAheadMs = 0;
const sources = new WeakMap();

async function ask() {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), TIMEOUT_MS);
  try {
    const headers = etag ? {"If-None-Match": etag} : {};
    const answer = await fetch(location.pathname, {headers, cache: "no-store", signal: abort.signal});
    if (answer.status !== 304) {
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const text = await answer.text();
      renew(new DOMParser().parseFromString(text, "text/html"));
      etag = answer.headers.get("ETag");
    }
    clockAheadMs = Date.now() - Date.parse(answer.headers.get("Date"));
    answeredAt = Date.now();
    failures = 0;
  } catch {
    failures += 1;
  } finally {
    clearTimeout(timer);
  }
  show();
}

// Only what differs is replaced, so that a selection, the focus and what is unfolded stay.
function renew(fresh) {
  if (document.title !== fresh.title) {
    document.title = fresh.title;
    document.getElementById("news").textContent = fresh.title;  // announced; ages and numbers are not
  }
  live.dataset.state = fresh.getElementById("live").dataset.state;
  const main = document.querySelector("main");
  const before = units(main);
  const after = units(fresh.querySelector("main"));
  if (before.map((each) => each.id).join() === after.map((each) => each.id).join()) {
    before.forEach((old, i) => {
      if (sources.get(old) !== after[i].outerHTML) swap(old, after[i]);
    });
  } else {
    swap(main, fresh.querySelector("main"));
  }
  filter();
}

// The words of the search are in the URL, so that a link shows the same.
const search = document.getElementById("search");
search.value = new URLSearchParams(location.search).get("q") ?? "";

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const each of document.querySelectorAll("[data-search]")) {
    const text = each.dataset.search.toLowerCase();
    each.classList.toggle("filtered", !words.every((word) => text.includes(word)));
  }
}

search.addEventListener("input", () => {
  const query = search.value ? `?${new URLSearchParams({q: search.value})}` : "";
  history.replaceState(null, "", location.pathname + query);
  filter();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && document.activeElement === search) {
    search.value = "";
    search.dispatchEvent(new Event("input"));
    search.blur();
  }
});

function units(main) {
  return [...main.querySelectorAll("[data-unit]")];
}

function swap(old, fresh) {
  const unfolded = [old, ...old.querySelectorAll("details")].filter((each) => each.open).map((each) => each.id);
  remember(fresh);
  old.replaceWith(document.adoptNode(fresh));
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
}

// What the server said of each unit: what stands in the page differs from it, in the ages.
function remember(part) {
  for (const each of part.matches("[data-unit]") ? [part] : units(part)) sources.set(each, each.outerHTML);
}

// The instants in sentences are UTC; each becomes an element, which shows the local time.
const INSTANT = /(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z| UTC)/;

const LOCAL = {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
};  // 2026-11-21 15:49:03 CET

function findInstants() {
  for (const sentence of document.querySelectorAll(".in-force, .sentence, .alerts p, .decisions p")) {
    for (const node of [...sentence.childNodes].filter((each) => each.nodeType === Node.TEXT_NODE)) {
      let rest = node;
      for (let found = INSTANT.exec(rest.data); found; found = INSTANT.exec(rest.data)) {
        const at = document.createElement("time");
        at.className = "at";
        at.dateTime = `${found[1]}T${found[2]}Z`;
        const written = rest.splitText(found.index);
        rest = written.splitText(found[0].length);
        written.replaceWith(at);
      }
    }
  }
}

function show() {
  findInstants();
  for (const each of document.querySelectorAll("main time")) {
    const at = new Date(each.dateTime);
    const local = at.toLocaleString("sv", LOCAL);
    each.textContent = each.className === "at" ? local : age(Date.now() - clockAheadMs - at);
    each.title = `${local}, ${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  }
  if (failures === 0) {
    const decides = live.dataset.state === "live";
    live.textContent = !answeredAt ? "" : decides ? "live" : "the loop does not decide";
    live.className = !answeredAt ? "" : decides ? "live" : "dead";
  } else {
    const since = answeredAt ? ` for ${span((Date.now() - answeredAt) / 1000)}` : "";
    live.textContent = `no answer${since}`;
    live.className = "dead";
  }
}

function age(ms) {
  return ms < 0 ? `in ${span(-ms / 1000)}` : `${span(ms / 1000)} ago`;
}

function span(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

async function run() {
  for (;;) {
    if (!document.hidden) await ask();
    const wait = Math.min(INTERVAL_MS * 2 ** Math.min(failures, 4), LONGEST_WAIT_MS);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

remember(document.querySelector("main"));
filter();
setInterval(show, 1000);
document.addEventListener("visibilitychange", () => document.hidden || ask());
run();
