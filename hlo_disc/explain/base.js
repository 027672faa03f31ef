"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// Elements. Strings become text, never markup.
function element(create, tag, attributes, children) {
  const made = create(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(2).filter((child) => child != null && child !== false));
  return made;
}
const html = (tag, attributes = {}, ...children) =>
  element((name) => document.createElement(name), tag, attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  element((name) => document.createElementNS("http://www.w3.org/2000/svg", name), tag, attributes, children);
