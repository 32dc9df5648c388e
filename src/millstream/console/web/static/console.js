// Keeps a page up to date: fetches the same page again and replaces what has changed. Without it the page is
// complete, but not updated.
"use strict";

(() => {
  const refreshMs = Number(document.documentElement.dataset.refresh) * 1000;
  const controls = document.getElementById("controls");
  const seen = document.getElementById("seen");
  if (!refreshMs || !controls || !seen) return;

  let isPaused = false;
  let timer = 0;
  let isFetching = false;

  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Pause";
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume" : "Pause";
    if (!isPaused) update();
  });
  controls.append(button);

  // Only nodes that differ are touched, so the others keep focus, selection and open details.
  const morph = (old, fresh) => {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
      old.replaceWith(fresh.cloneNode(true));
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.nodeName === "FORM") return; // the user may be filling it in
    morphAttributes(old, fresh);
    morphChildren(old, fresh);
  };

  const morphAttributes = (old, fresh) => {
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      const isUnfolded = old.nodeName === "DETAILS" && name === "open";
      if (!fresh.hasAttribute(name) && !isUnfolded) old.removeAttribute(name);
    }
  };

  const morphChildren = (old, fresh) => {
    const before = [...old.childNodes];
    const after = [...fresh.childNodes];
    after.forEach((node, place) => {
      if (place < before.length) morph(before[place], node);
      else old.append(node.cloneNode(true));
    });
    before.slice(after.length).forEach((node) => node.remove());
  };

  const update = async () => {
    clearTimeout(timer);
    if (isFetching || isPaused || document.hidden) return;
    isFetching = true;
    try {
      const response = await fetch(location.href, { cache: "no-store", headers: { Accept: "text/html" } });
      if (response.redirected) {
        location.reload(); // the session has ended: shows the login
        return;
      }
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (!isPaused) {
        for (const old of document.querySelectorAll("[data-live]")) {
          const fresh = page.getElementById(old.id);
          if (fresh) morph(old, fresh);
        }
        document.title = page.title || document.title;
      }
    } catch {
      seen.textContent = "the console does not answer; retrying";
    } finally {
      isFetching = false;
      timer = setTimeout(update, refreshMs);
    }
  };

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) update();
  });
  timer = setTimeout(update, refreshMs);
})();
