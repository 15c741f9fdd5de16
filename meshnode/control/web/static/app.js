// What htmx leaves open: saying that the node is away, keys, the theme, and what a person opened staying open.
(function () {
  "use strict";
  const root = document.documentElement;
  const all = (selector) => document.querySelectorAll(selector);
  const one = (selector) => document.querySelector(selector);

  // A morph keeps what the person did: sections that were opened, what is being typed.
  Idiomorph.defaults.ignoreActiveValue = true;
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = function (name, node) {
    return !(name === "open" && (node.nodeName === "DETAILS" || node.nodeName === "DIALOG"));
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
  function connected(is) {
    const lost = one("[data-lost]");
    if (!lost || lost.hidden === is) return;
    one("[data-lost-since]").textContent = is ? "" : "What you see is from " + new Date().toLocaleTimeString() + ".";
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
    if (document.hidden) {
      timer = setTimeout(() => { if (source) { resting = true; source.close(); } }, HIDDEN_MS);
    } else if (resting && source) {
      source.dispatchEvent(new Event("error")); // the extension opens a new one
    }
  });

  // Where the keys are: what an action or a morph took away is followed by what stands in its place in the list.
  let held = null;
  function hold(target) {
    const item = target.closest && target.closest("[data-list] > *");
    held = item ? { target: target, item: item, list: item.parentElement.id, at: 0 } : null;
    place();
  }
  function place() {
    if (held && held.item.isConnected) held.at = Array.from(held.item.parentElement.children).indexOf(held.item);
  }
  function regain() {
    if (!held || document.activeElement !== document.body) return;
    const list = document.getElementById(held.list);
    const left = list ? Array.from(list.children) : [];
    const next = left[Math.min(held.at, left.length - 1)];
    if (held.target.isConnected && !held.target.disabled) held.target.focus();
    else if (held.target.isConnected) return; // an action is under way
    else if (held.item.isConnected) held.item.focus();
    else (next || one("#main")).focus();
  }
  document.addEventListener("focusin", (event) => hold(event.target));
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest("button, a, summary, input")) held = null; });
  document.addEventListener("htmx:sseBeforeMessage", place);
  document.addEventListener("htmx:sseMessage", regain);
  document.addEventListener("htmx:afterRequest", () => setTimeout(regain, 0));

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
