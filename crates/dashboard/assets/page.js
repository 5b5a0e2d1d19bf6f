// Puts the sections of the page that have changed in their place, and says when nothing comes any more.
"use strict";
(() => {
  const main = document.getElementById("main");
  const lost = document.getElementById("lost");
  if (!main || !main.dataset.stream) return;

  // The clock comes each second: after so many milliseconds without anything the page is not live.
  const SILENT = 5000;
  let source = null;
  let heard = Date.now();
  const waiting = new Map();

  const isSelectedIn = (element) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && element.contains(selection.anchorNode);
  };

  // What tells an element from others of its kind; a summary by its details.
  const nameOf = (it) =>
    it.getAttribute("href") || it.getAttribute("aria-label") || (it.tagName === "SUMMARY" ? it.parentElement.id : it.id);

  // What a reader has done with a section outlives its replacement: focus, open details, scrolled tables.
  const replace = (element, html) => {
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    const tag = focused && focused.tagName;
    const key = focused && nameOf(focused);
    const open = [...element.querySelectorAll("details[open]")].map((details) => details.id);
    const scrolled = [...element.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    element.innerHTML = html;
    for (const details of element.querySelectorAll("details")) details.open = open.includes(details.id);
    element.querySelectorAll(".scroll").forEach((box, at) => {
      if (scrolled[at]) [box.scrollLeft, box.scrollTop] = scrolled[at];
    });
    if (!focused) return;
    for (const candidate of element.querySelectorAll(tag)) {
      if (nameOf(candidate) === key) return candidate.focus({ preventScroll: true });
    }
  };

  const apply = () => {
    for (const [id, html] of waiting) {
      const element = document.getElementById(id);
      // A text that is being selected stays until it is not any more.
      if (element && isSelectedIn(element)) continue;
      waiting.delete(id);
      if (element) replace(element, html);
    }
  };

  const hear = () => {
    heard = Date.now();
    if (lost.hidden) return;
    lost.hidden = true;
    lost.textContent = "";
    document.body.classList.remove("lost");
  };

  const lose = () => {
    if (!lost.hidden) return;
    const since = new Date(heard).toISOString().slice(11, 19);
    lost.textContent = `Not live since ${since} UTC: the command sluice dashboard does not answer. ` +
      "What is grey is as it was then. It is tried again and again.";
    lost.hidden = false;
    document.body.classList.add("lost");
  };

  const open = () => {
    if (source) return;
    source = new EventSource(main.dataset.stream);
    source.onmessage = (message) => {
      hear();
      for (const { id, html } of JSON.parse(message.data)) waiting.set(id, html);
      apply();
    };
    source.onerror = () => {
      lose();
      // The browser tries again by itself but for an answer that is no stream.
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 2000);
      }
    };
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  // A browser has few connections to one server: pages that nobody sees take none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    heard = Date.now();
    open();
  });
  document.addEventListener("selectionchange", apply);
  setInterval(() => {
    if (!document.hidden && Date.now() - heard > SILENT) lose();
  }, 1000);
  open();
})();
