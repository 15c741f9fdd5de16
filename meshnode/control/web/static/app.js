// What htmx leaves open: saying that the node is away, keys, the theme, and what a person opened staying open.
(function () {
  "use strict";
  const root = document.documentElement;
  const all = (selector) => document.querySelectorAll(selector);
  const one = (selector) => document.querySelector(selector);

  // A morph keeps what the person did: sections that were opened, what is being typed, a button that waits for its answer.
  // Not `ignoreActiveValue`: it would leave the words of a focused button as they were, whatever it does by now.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = function (name, node) {
    if (name === "open") return !(node.nodeName === "DETAILS" || node.nodeName === "DIALOG");
    if (name === "value" || name === "checked") return node !== document.activeElement;
    if (name === "selected") return !node.closest("select:focus");
    if (name === "disabled" || name === "data-disabled-by-htmx") return !node.hasAttribute("data-disabled-by-htmx");
    return true;
  };

  Idiomorph.defaults.callbacks.beforeNodeMorphed = function (old) {
    return !(old.dataset && "keeps" in old.dataset); // forms that are being filled in, and what was asked for here
  };

  // An invite is on the page that asked for it, while it is of use: not in a page that the browser keeps to go back to.
  function hide(spent) {
    all("[data-secret]").forEach((each) => { if (spent(each.dataset.secret)) each.remove(); });
  }
  document.addEventListener("htmx:sseMessage", () => hide((id) => {
    const line = document.getElementById("invite-" + id);
    return line && line.dataset.state !== "open";
  }));
  window.addEventListener("pagehide", () => hide(() => true));

  function copy(button) {
    const source = document.getElementById(button.dataset.copies);
    getSelection().selectAllChildren(source); // where the clipboard is refused, a key copies it
    navigator.clipboard.writeText(source.textContent.trim()).then(
      () => { button.textContent = "Copied"; },
      () => { button.textContent = "Press Ctrl+C"; });
    setTimeout(() => { button.textContent = "Copy"; }, 3000);
  }

  // The stream: said to be lost at once; closed while nobody looks, since a browser has few connections to one host.
  const HIDDEN_MS = 20000;
  let source = null;
  let resting = false;
  let timer = 0;
  let over = false;
  htmx.createEventSource = function (url) {
    if (over) return source; // closed: nothing connects again
    source = new EventSource(url);
    source.addEventListener("ended", ended);
    return source;
  };
  function clock(at) { // as the server says times: 24 hours, and how far from UTC
    const text = at.toLocaleTimeString("en-GB", { timeZoneName: "shortOffset" });
    return text.replace("GMT", "UTC");
  }
  function ended() {
    over = true;
    source.close();
    connected(true);
    one("[data-ended]").hidden = false;
    root.toggleAttribute("data-stale", true);
  }
  // A stream that is refused tells no reason: a look at the page itself does.
  function whyLost() {
    fetch(location.pathname, { method: "HEAD", cache: "no-store" })
      .then((answer) => { if (answer.status === 403) ended(); }, () => {});
  }
  // Where the node was opened anew at the same address, in this browser, the page is good again once it is looked at.
  function revive() {
    if (!over || document.hidden) return;
    fetch(location.pathname, { method: "HEAD", cache: "no-store" })
      .then((answer) => { if (answer.ok) location.reload(); }, () => {});
  }
  window.addEventListener("focus", revive);
  function connected(is) {
    const lost = one("[data-lost]");
    if (!lost || lost.hidden === is) return;
    one("[data-lost-since]").textContent = is ? "" : "What you see is from " + clock(new Date()) + ".";
    lost.hidden = is;
    root.toggleAttribute("data-stale", !is);
  }
  document.addEventListener("htmx:sseOpen", () => { resting = false; connected(true); });
  document.addEventListener("htmx:sseError", () => {
    if (resting || over) return;
    connected(false);
    if (source.readyState === EventSource.CLOSED) whyLost();
  });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    revive();
    if (document.hidden) {
      timer = setTimeout(() => { if (source) { resting = true; source.close(); } }, HIDDEN_MS);
    } else if (resting && source) {
      source.dispatchEvent(new Event("error")); // the extension opens a new one
    }
  });

  // Where the keys are: a button that was off while its action lasted has them back; what an action or a morph took away
  // is followed by what stands in its place in the list, or else by the page.
  let held = null;
  function hold(target) {
    const item = target.closest("[data-list] > *");
    held = { target: target, item: item, list: item ? item.parentElement.id : "", at: 0 };
    place();
  }
  function place() {
    if (held && held.item && held.item.isConnected) held.at = Array.from(held.item.parentElement.children).indexOf(held.item);
  }
  function regain() {
    if (!held || document.activeElement !== document.body) return;
    const { target, item, list, at } = held;
    if (target.isConnected && target.disabled) return; // an action is under way
    const left = list ? Array.from((document.getElementById(list) || document.createElement("ul")).children) : [];
    const same = target.isConnected ? target : target.id && document.getElementById(target.id);
    const next = same || (item && item.isConnected ? item : left[Math.min(at, left.length - 1)]) || one("#main");
    next.focus({ preventScroll: next === same });
  }
  document.addEventListener("focusin", (event) => hold(event.target));
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest("button, a, summary, input")) held = null; });
  document.addEventListener("htmx:sseBeforeMessage", place);
  document.addEventListener("htmx:sseMessage", regain);
  document.addEventListener("htmx:afterRequest", () => setTimeout(regain, 0));

  // What is told of an action done was true then: it goes after a while, unless it is being read, or nobody looks.
  const PASSES_MS = 20000;
  let passing = 0;
  function pass() {
    clearTimeout(passing);
    passing = setTimeout(() => {
      const told = one("#said [data-passes]");
      if (told && (document.hidden || told.matches(":hover"))) pass(); else if (told) told.remove();
    }, PASSES_MS);
  }
  document.addEventListener("htmx:afterRequest", pass);

  // The theme: as the system has it, or as it was chosen here; the server draws the next page with it.
  const THEMES = ["auto", "light", "dark"];
  function theme(next) {
    if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
    all("[data-says=theme]").forEach((each) => { each.textContent = next; });
  }
  function chooseTheme() {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme || "auto") + 1) % THEMES.length];
    document.cookie = "meshnode-theme=" + next + "; path=/; samesite=strict; max-age=" + (next === "auto" ? 0 : 31536000);
    theme(next);
  }

  // Keys: g and a letter goes to a page, ? lists them; they can be turned off (WCAG 2.1.4).
  const OFF = "meshnode-keys-off";
  let leading = false;
  function typing(target) {
    return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.nodeName);
  }
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (localStorage.getItem(OFF)) return;
    if (event.key === "?") { event.preventDefault(); one("[data-keys]").showModal(); return; }
    if (leading) {
      leading = false;
      const at = Array.from(all("[data-keys] dt")).find((dt) => dt.textContent.trim() === "g " + event.key);
      if (at) {
        const title = at.nextElementSibling.textContent;
        const link = Array.from(all("nav.places a")).find((a) => a.firstChild.textContent.trim() === title);
        if (link) { event.preventDefault(); link.click(); }
      }
    } else {
      leading = event.key === "g";
      setTimeout(() => { leading = false; }, 1500);
    }
  }

  document.addEventListener("keydown", keys);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-does]");
    if (!button) return;
    if (button.dataset.does === "theme") chooseTheme();
    if (button.dataset.does === "copy") copy(button);
    if (button.dataset.does === "keys") one("[data-keys]").showModal();
  });
  document.addEventListener("change", (event) => {
    if (event.target.dataset.does !== "keys-off") return;
    if (event.target.checked) localStorage.setItem(OFF, "1"); else localStorage.removeItem(OFF);
  });
  theme(root.dataset.theme || "auto");
  all("[data-does=theme],[data-does=keys]").forEach((each) => { each.hidden = false; });
  const here = one("nav.places [aria-current]");
  if (here) here.parentElement.scrollIntoView({ block: "nearest", inline: "center", behavior: "instant" });
  const off = one("[data-does=keys-off]");
  if (off) off.checked = Boolean(localStorage.getItem(OFF));
})();
