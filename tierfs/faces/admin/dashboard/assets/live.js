"use strict";
// Asks for the same page again, and replaces the sections that changed. The page is complete without it.
(() => {
  const PERIOD_MS = 5000;
  const TIMEOUT_MS = 15000;
  const state = document.getElementById("live");
  const button = document.getElementById("pause");
  const focusable = "a[href], button, summary, [tabindex]";
  let paused = false;
  let timer = 0;

  const say = (text) => {
    if (state.textContent !== text) state.textContent = text;
  };

  const isRead = (section) => {
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && selection.containsNode(section, true);
  };

  const replace = (old, fresh) => {
    const places = [...old.querySelectorAll(focusable)];
    const focused = places.indexOf(document.activeElement);
    old.replaceWith(document.adoptNode(fresh));
    if (focused >= 0) fresh.querySelectorAll(focusable)[focused]?.focus();
  };

  const show = (page) => {
    document.title = page.title;
    const icon = page.querySelector("link[rel=icon]");
    if (icon) document.querySelector("link[rel=icon]").setAttribute("href", icon.getAttribute("href"));
    for (const old of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(old.id);
      if (fresh && fresh.outerHTML !== old.outerHTML && !isRead(old)) replace(old, fresh);
    }
  };

  const later = () => {
    clearTimeout(timer);
    if (!paused) timer = setTimeout(refresh, PERIOD_MS);
  };

  const refresh = () => {
    if (document.hidden) return later();
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.timeout = TIMEOUT_MS;
    request.onload = () => {
      const answered = new URL(request.responseURL || location.href);
      if (answered.pathname !== location.pathname) return location.reload(); // the session is over
      if (request.status !== 200 || request.response === null) {
        say(`Not updated: the server answered ${request.status}.`);
      } else {
        show(request.response);
        say("");
      }
      later();
    };
    request.onerror = request.ontimeout = () => {
      say("Not updated: the server does not answer.");
      later();
    };
    request.send();
  };

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    say(paused ? "Updates are paused." : "");
    if (paused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !paused) {
      clearTimeout(timer);
      refresh();
    }
  });
  later();
})();
