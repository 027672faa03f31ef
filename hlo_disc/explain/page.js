let program, profile, env, times, chosen;
const fill = (id, ...children) => byId(id).replaceChildren(...children.flat(2).filter((child) => child));

// Numbers.
function scaled(value, units, digits = 3) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (!value) return `0 ${units.at(-1)[1]}`.trim();
  const [factor, name] = units.find(([least]) => Math.abs(value) >= least) ?? units.at(-1);
  const number = value / factor;
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(number) || 1) + 1e-12));
  return `${number.toFixed(name || factor > 1 ? Math.min(places, digits) : 0)}${name ? ` ${name}` : ""}`;
}
const bytes = (value) => scaled(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
const seconds = (value) => scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
const amount = (value) => scaled(value, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
const percent = (value) => `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : noun.endsWith("ch") ? "es" : "s"}`;

// Sizes: a number, a symbol, or [operator, left, right].
const OPERATORS = {
  "+": (a, b) => a + b, "*": (a, b) => a * b, "/": (a, b) => Math.floor(a / b), "%": (a, b) => a - b * Math.floor(a / b),
  min: Math.min, max: Math.max,
};
function evaluate(size, values) {
  if (typeof size === "number") return size;
  if (typeof size === "string") return values[size];
  return OPERATORS[size[0]](evaluate(size[1], values), evaluate(size[2], values));
}
const sizeAt = (number, values = env) => evaluate(program.sizes[number], values);
const RELATIONS = {
  "==": (a, b) => a === b, "!=": (a, b) => a !== b, "<=": (a, b) => a <= b, "<": (a, b) => a < b,
  ">=": (a, b) => a >= b, ">": (a, b) => a > b, "multiple of": (a, b) => a % b === 0,
};
function holds([left, relation, right]) {
  const values = { ...env };
  for (const [name, size] of Object.entries(program.raw)) values[name] = sizeAt(size);
  return RELATIONS[relation](sizeAt(left, values), sizeAt(right, values));
}
// Which form of a launch is taken. Weights that do not change are packed.
const takenForm = (launch, values = env) => launch.forms.findIndex(([, when]) =>
  when.every(([size, relation, bound]) => RELATIONS[relation](sizeAt(size, values), bound)));
const largest = (name) => Math.max(program.largest[name] ?? 4096, 1);

// What a launch costs: its time where there is a profile, else what it must move and compute, as if ten operations took
// as long as a byte.
const work = (launch) => Math.max(sizeAt(launch.bytes), sizeAt(launch.operations) / 10, 0) || 0;
function costs() {
  const all = times ?? program.launches.map(work);
  const total = times ? profile.seconds : all.reduce((sum, x) => sum + x, 0);
  return all.map((x) => (total ? x / total : 0));
}

// The header.
function header() {
  const [constants, weights] = program.constants;
  byId("title").textContent = program.name;
  document.title = `${program.name} – hlo_disc`;
  byId("lede").textContent = [program.source && `From ${program.source}`, `for ${program.target}`].filter((text) => text).join(", ");
  const total = program.compile.reduce((sum, [, ms]) => sum + ms, 0);
  const tile = (figure, text) => html("li", {}, html("b", {}, figure), html("small", {}, text));
  fill("tiles",
    profile && tile(seconds(profile.seconds), `a call at ${sizesText(profile.dims)}`),
    tile(program.launches.length, `launches of ${count(program.kernels, "kernel")}`),
    tile(bytes(program.code), "of code"),
    tile(bytes(weights), `in ${count(constants, "constant")}, ${program.packs} packed weights`),
    tile(seconds(total / 1e3), "to compile"));
  const list = (title, rows) => rows.length > 0 && html("details", { class: "plain" },
    html("summary", {}, `${title} (${rows.length})`), html("ul", { class: "code" }, rows.map((row) => html("li", {}, row))));
  const stages = program.compile.filter(([, ms]) => ms >= 0.1).sort((a, b) => b[1] - a[1]);
  fill("signature", list("Arguments", program.inputs), list("Results", program.outputs),
    list("Guards: what must hold of a call", program.guards.map((guard) => `${guard.text}: ${guard.message}`)),
    list("Asked: what holds at the calls that this program is for", program.asked.map((guard) => guard.message)),
    list("Features of the machine that it needs", program.features),
    list("Stages of the compiler", stages.map(([name, ms]) => `${seconds(ms / 1e3)} ${name}`)));
}
const sizesText = (dims) => Object.entries(dims).map(([name, size]) => `${name}=${size}`).join(", ") || "fixed sizes";

// Sliders, logarithmic.
function sliders() {
  const made = program.symbols.map((name) => {
    const most = Math.log2(Math.max(largest(name), env[name], 2));
    const set = (value, other) => {
      const size = Math.min(Math.max(Math.round(value) || 0, 0), 2 ** 40);
      env[name] = size;
      other(size);
      update();
    };
    const range = html("input", { type: "range", min: 0, max: most, step: most / 400, value: Math.log2(Math.max(env[name], 1)),
      "aria-label": `${name}, by a slider`, oninput: () => set(2 ** range.value, (size) => (box.value = size)) });
    const box = html("input", { type: "number", min: 0, value: env[name], "aria-label": name,
      oninput: () => set(box.value, (size) => (range.value = Math.log2(Math.max(size, 1)))) });
    return html("label", { class: "slider" }, html("b", {}, name), range, box);
  });
  fill("sliders", made, html("span", { id: "holds", class: "holds", role: "status" }));
}
function guards() {
  const broken = [...program.guards, ...program.asked].filter((guard) => !holds(guard.test));
  const all = program.guards.length + program.asked.length;
  const text = broken.length ? `a call is refused: ${broken[0].text} does not hold` : all ? `✓ ${count(all, "condition")} hold${all === 1 ? "s" : ""}` : "";
  byId("holds").textContent = text;
  byId("holds").className = `holds ${broken.length ? "no" : "yes"}`;
}

// The user's lines.
function source() {
  const owners = new Map();
  program.launches.forEach((launch, number) => launch.lines.forEach(([place]) => {
    const [file, line] = program.places[place];
    const key = `${file}:${line}`;
    if (file >= 0) owners.set(key, (owners.get(key) ?? new Set()).add(number));
  }));
  const parts = program.files.flatMap(([name, lines], file) => {
    let before = null;
    return [html("div", { class: "file", title: name }, name.split("/").slice(-2).join("/")), ...lines.flatMap(([number, text]) => {
      const gap = before != null && number > before + 1 ? [html("div", { class: "gap" }, "⋮")] : [];
      before = number;
      const launches = owners.get(`${file}:${number}`);
      const inside = [html("span", {}, String(number)),
        html("span", { class: "count", title: launches && count(launches.size, "launch") }, launches ? `${launches.size} ×` : ""),
        html("span", {}, text || " ")];
      if (!launches) return [...gap, html("div", { class: "row code" }, inside)];
      return [...gap, html("button", { class: "row code", type: "button", "data-line": `${file}:${number}`,
        onclick: () => choose({ line: `${file}:${number}`, launches }) }, inside)];
    })];
  });
  fill("source", parts.length ? parts : html("p", { class: "muted inside" }, "The program has no lines."));
}
// Marks what belongs together: the launches of a line, or the lines of a launch.
function choose(choice) {
  chosen = choice;
  const lines = choice.line ? [choice.line]
    : program.launches[choice.launch].lines.map(([place]) => program.places[place].slice(0, 2).join(":"));
  const launches = choice.launches ?? new Set([choice.launch]);
  const found = [];
  document.querySelectorAll("[data-line]").forEach((row) => {
    const marked = lines.includes(row.dataset.line);
    row.classList.toggle("marked", marked);
    if (marked && !choice.line) found.push(row);
  });
  document.querySelectorAll("[data-launch]").forEach((row) => {
    const marked = launches.has(Number(row.dataset.launch));
    row.classList.toggle(row.matches("details") ? "marked" : "chosen", marked);
    if (row.matches("details") && marked && choice.open) row.open = true;
    if (row.matches("details") && marked && (choice.line || choice.open)) found.push(row);
  });
  // The first of each pane comes into sight.
  document.querySelectorAll(".tall").forEach((pane) => {
    const first = found.find((row) => pane.contains(row));
    if (first) pane.scrollTop += first.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 4;
  });
}

// Launches.
function launches() {
  byId("bar-means").textContent = times ? `– share of a call at ${sizesText(profile.dims)}`
    : "– share of the work: bytes, or operations ÷ 10";
  const walk = (flow, depth) => flow.flatMap((item) => {
    if (typeof item === "number") return [launchRow(item, depth)];
    const [text, parts] = item;
    return [html("div", { class: "part", style: `margin-left: ${depth}rem` }, text), ...parts.flatMap(([name, inside]) =>
      [html("div", { class: "part", style: `margin-left: ${depth + 0.6}rem` }, `${name}:`), ...walk(inside, depth + 1.2)])];
  });
  fill("launches", walk(program.flow, 0));
  const reasons = program.unplaced.map(([op, place, why]) => html("li", {}, `${op} (${placeText(place)}): ${why}`));
  fill("unplaced", reasons.length > 0 && html("details", { class: "plain" },
    html("summary", {}, `Not fused, outside of launches (${reasons.length})`), html("ul", {}, reasons)));
}
function placeText(place) {
  const [file, line, name] = program.places[place];
  return file < 0 ? name || "unknown line" : `${program.files[file][0].split("/").at(-1)}:${line}${name ? ` (${name})` : ""}`;
}
function launchRow(number, depth) {
  const launch = program.launches[number];
  const inside = html("div", { class: "inside" });
  return html("details", { class: "launch", "data-launch": number, style: depth ? `margin-left: ${depth}rem` : null,
    ontoggle: (event) => event.target.open && details(number, inside) },
    html("summary", { onclick: () => choose({ launch: number }) },
      html("span", { class: "number" }, String(number)), html("span", { class: "kernel code" }),
      html("span", { class: "what" }, launch.reasons.length ? "✂ " : "", launch.ops),
      html("span", { class: "share" }, html("i", {}), html("span", {}))),
    inside);
}
function details(number, into) {
  const launch = program.launches[number];
  const [moved, operations] = [sizeAt(launch.bytes), sizeAt(launch.operations)];
  const taken = takenForm(launch);
  const forms = launch.forms.map(([kernel, when, packed, declines], k) => {
    const conditions = [...when.map((condition) => condition[3]), packed && "the weight is packed",
      declines && "the vendor's library takes it"].filter((text) => text);
    return html("li", { class: k === taken ? "taken" : null }, html("b", {}, kernel),
      conditions.length ? ` if ${conditions.join(" and ")}` : k ? " otherwise" : "");
  });
  const row = (name, ...content) => content.some((part) => part && part.length !== 0) && [html("dt", {}, name), html("dd", {}, content)];
  const timed = times?.[number];
  into.replaceChildren(html("dl", {},
    row("forms", html("ul", { class: "forms code" }, forms)),
    row("writes", html("span", { class: "code" }, launch.writes.join(", "))),
    row("computes", launch.lines.map(([place, ops]) => html("div", {}, html("b", {}, placeText(place)), ` ${ops}`))),
    row("work", `${bytes(moved)} moved, ${amount(operations)} operations`,
      moved > 0 && `, ${(operations / moved).toPrecision(2)} a byte`),
    row("time", timed && `${seconds(timed)}, ${amount(sizeAtProfile(launch.operations) / timed)}FLOP/s`),
    row("not fused", launch.reasons.map(([op, place, why]) =>
      html("div", {}, `${op} (${placeText(place)}) starts a kernel of its own: ${why}`)))));
}
const sizeAtProfile = (number) => evaluate(program.sizes[number], profile.dims);
function showLaunches() {
  const shares = costs();
  const most = Math.max(...shares, 1e-9);
  document.querySelectorAll("details.launch").forEach((row) => {
    const number = Number(row.dataset.launch);
    const launch = program.launches[number];
    row.querySelector(".kernel").textContent = launch.forms[takenForm(launch)]?.[0] ?? launch.forms.at(-1)[0];
    row.querySelector(".share i").style.width = `${(100 * shares[number]) / most}%`;
    row.querySelector(".share span").textContent = percent(shares[number]);
    if (row.open) details(number, row.querySelector(".inside"));
  });
}

// Which form runs at which sizes: of each dim that decides, a strip over its sizes, the other dims as they are.
const COLORS = ["#4c7be0", "#e0923c", "#3fa37a", "#b865c9", "#d1606a", "#8a8f3c"];
const STEPS = 96;
function variants() {
  const kinds = new Map();
  program.launches.forEach((launch, number) => {
    const dims = [...new Set(launch.forms.flatMap(([, when]) => when.flatMap(([size]) => symbolsOf(program.sizes[size]))))];
    const key = JSON.stringify(launch.forms);
    if (dims.length) kinds.set(key, { launch, dims, numbers: [...(kinds.get(key)?.numbers ?? []), number] });
  });
  if (!kinds.size) {
    fill("variants", html("p", { class: "muted" }, "No launch has forms between which sizes choose."));
    return;
  }
  fill("variants", html("p", { class: "muted" }, "Along each strip one dim goes from 1 to its largest size, the others are as above."),
    [...kinds.values()].map(({ launch, dims, numbers }) => html("div", { class: "strip" },
      html("div", { class: "key" }, html("div", {}, `${count(numbers.length, "launch")}: ${launch.ops}`), launch.forms.map(([kernel, when, packed], k) =>
        html("div", { class: "code" }, html("span", { class: "swatch", style: `background: ${COLORS[k % COLORS.length]}` }), kernel,
          packed ? " (packed)" : ""))),
      html("div", {}, dims.map((dim) => strip(launch, dim))))));
}
const symbolsOf = (size) => (typeof size === "string" ? [size] : typeof size === "number" ? [] : [...symbolsOf(size[1]), ...symbolsOf(size[2])]);
function strip(launch, dim) {
  const most = Math.log2(Math.max(largest(dim), env[dim], 2));
  const runs = [];
  for (let k = 0; k < STEPS; k++) {
    const size = Math.round(2 ** ((most * k) / (STEPS - 1)));
    const form = takenForm(launch, { ...env, [dim]: size });
    if (runs.at(-1)?.form === form) runs.at(-1).end = k + 1;
    else runs.push({ form, start: k, end: k + 1, size });
  }
  const place = (k) => `${(100 * k) / STEPS}%`;
  const here = (Math.log2(Math.max(env[dim], 1)) / most) * (STEPS - 1) + 0.5;
  return html("div", { class: "axis" }, html("b", { class: "code" }, dim), svg("svg", { height: 22, role: "img", "aria-label": `forms over ${dim}` },
    runs.map(({ form, start, end, size }) => svg("rect", { x: place(start), y: 3, width: place(end - start), height: 16,
      fill: form < 0 ? "transparent" : COLORS[form % COLORS.length] }, svg("title", {}, `${launch.forms[form]?.[0] ?? "none"} from ${dim}=${size}`))),
    svg("line", { class: "here", x1: place(here), x2: place(here), y1: 0, y2: 22 })));
}

// Memory over steps: a rectangle is a value in its slot of the arena.
function memory() {
  let end = 0;
  const slots = program.slots.filter(([, late]) => !late).map(([size, , values]) => {
    const start = end;
    end += Math.ceil(Math.max(sizeAt(size), 0) / 64) * 64;
    return { start, values };
  });
  const held = slots.flatMap(({ start, values }) => values.map(([type, size, first, last]) => ({ type, start, size: Math.max(sizeAt(size), 0), first, last })));
  const late = program.slots.filter(([, isLate]) => isLate).length;
  if (!held.length || !end) {
    fill("memory", html("p", { class: "muted" }, held.length || late ? "At these sizes nothing is kept between launches." : "Nothing is kept between launches."));
    return;
  }
  const last = Math.max(...held.map((value) => value.last), ...program.launches.map((launch) => launch.at)) + 1;
  const at = new Map(program.launches.map((launch, number) => [launch.at, number]));
  let peak = 0;
  for (let step = 0; step < last; step++) {
    peak = Math.max(peak, held.filter((value) => value.first <= step && step <= value.last).reduce((sum, value) => sum + value.size, 0));
  }
  const [height, order] = [260, new Map()];
  const color = (type) => COLORS[(order.has(type) ? order : order.set(type, order.size)).get(type) % COLORS.length];
  const x = (step) => `${(100 * step) / last}%`;
  const y = (bytes) => (height * bytes) / end;
  fill("memory",
    html("p", { class: "muted" }, `The arena of a call has ${bytes(end)} in ${count(slots.length, "slot")}; at most ${bytes(peak)} of it are in use at a time. `,
      `Rectangles are values, in the order of launches from left to right.`, late ? ` ${count(late, "slot")} more of sizes that only the run knows.` : ""),
    html("figure", {}, html("figcaption", {}, bytes(end)), svg("svg", { height, role: "img", "aria-label": "values in the arena over launches" },
      held.map((value) => svg("rect", { class: "value", "data-launch": at.get(value.first), x: x(value.first), width: x(value.last + 1 - value.first),
        y: height - y(value.start + value.size), height: Math.max(y(value.size), 0.5), fill: color(value.type),
        onclick: at.has(value.first) ? () => choose({ launch: at.get(value.first), open: true }) : null },
      svg("title", {}, `${value.type}, ${bytes(value.size)}, from ${placeOf(at, value.first)} to ${placeOf(at, value.last)}`)))),
    html("figcaption", {}, `0 B · ${count(program.launches.length, "launch")}, the first on the left`)));
}
const placeOf = (at, step) => (at.has(step) ? `launch ${at.get(step)}` : `step ${step}`);

// Time: a call as one bar, kernels in a table, and their place under the roof.
function time() {
  if (!profile) {
    fill("times", html("p", { class: "muted" }, "There are no times: ", html("code", {}, "hlo-disc profile FILE --dim … --html PAGE"), ", or ",
      html("code", {}, "exe.explain(html=PAGE, profile=exe.profile(…))"), "."));
    return;
  }
  const rate = (value, taken) => (value == null || !taken ? "–" : (value / taken / 1e9).toPrecision(3));
  const kernels = profile.kernels.map((row, k) => ({ ...row, color: COLORS[k % COLORS.length] }));
  const colors = new Map(kernels.map((row) => [row.kernel, row.color]));
  let from = 0;
  const bars = profile.launches.map((launch) => {
    const [start, width] = [from, (100 * launch.seconds) / profile.seconds];
    from += width;
    return svg("rect", { x: `${start}%`, width: `${width}%`, y: 0, height: 26, fill: colors.get(launch.kernel), class: "value", "data-launch": launch.number,
      onclick: launch.number == null ? null : () => choose({ launch: launch.number, open: true }) },
    svg("title", {}, `${launch.kernel}, ${seconds(launch.seconds)}: ${launch.ops}`));
  });
  const row = (x) => html("tr", {}, html("td", { class: "left" }, html("span", { class: "swatch", style: `background: ${x.color}` }), html("code", {}, x.kernel)),
    html("td", {}, percent(x.share)), html("td", {}, seconds(x.seconds)), html("td", {}, String(x.launches)),
    html("td", {}, x.least == null || !x.seconds ? "–" : percent(x.least / x.seconds)), html("td", {}, rate(x.operations, x.seconds)),
    html("td", {}, rate(x.bytes, x.seconds)), html("td", { class: "wide" }, x.ops));
  const heads = ["kernel", "share", "time", "launches", "of limit", "GFLOP/s", "GB/s", "what it computes"];
  fill("times",
    html("p", { class: "muted" }, `At ${sizesText(profile.dims)}: ${seconds(profile.seconds)} a call on ${count(profile.threads, "thread")}, medians of `,
      `${count(profile.calls, "call")}. The host's are ${seconds(profile.host)} (${percent(profile.host / profile.seconds)}): taking arguments and giving results, `,
      `planning memory, launching, and what is too little for a kernel.`),
    html("figure", {}, svg("svg", { height: 26, role: "img", "aria-label": "launches of a call, in order" }, bars),
      html("figcaption", {}, "a call: its launches in order, then the host")),
    html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Kernels" }, html("table", {},
      html("thead", {}, html("tr", {}, heads.map((head, k) => html("th", { scope: "col", class: k % 7 ? null : "left" }, head)))),
      html("tbody", {}, kernels.map(row)))),
    html("div", { class: "charts" }, roofline(kernels)));
}
// Operations a second over operations a byte, both logarithmic; what the machine can do is a line for each place of the data.
function roofline(kernels) {
  const shown = kernels.filter((row) => row.operations > 0 && row.bytes > 0 && row.seconds > 0)
    .map((row) => ({ ...row, x: row.operations / row.bytes, y: row.operations / row.seconds }));
  if (!shown.length) return null;
  const limits = profile.limits;
  const roofs = limits ? Object.entries(limits.read).map(([size, read]) => [Number(size), Math.max(read, limits.copy[size])]) : [];
  const slopes = roofs.length ? [roofs[0], roofs.at(-1)] : [];
  const half = profile.launches.some((launch) => launch.work?.factors === "bfloat16");
  const peak = limits && Math.max(limits.fma_f32, half ? limits.fma_bf16 ?? 0 : 0);
  const [left, right] = [Math.min(...shown.map((row) => row.x), 0.25) / 1.5, Math.max(...shown.map((row) => row.x), 64) * 1.5];
  const [low, high] = [Math.min(...shown.map((row) => row.y)) / 2, Math.max(...shown.map((row) => row.y), peak ?? 0) * 1.6];
  const [width, height, edge] = [560, 320, 46];
  const x = (value) => edge + ((width - edge - 8) * Math.log(value / left)) / Math.log(right / left);
  const y = (value) => height - 30 - ((height - 40) * Math.log(value / low)) / Math.log(high / low);
  const powers = (from, to) => Array.from({ length: 40 }, (_, k) => 10 ** (k - 6)).filter((value) => value >= from && value <= to);
  const roof = ([size, bandwidth]) => {
    const start = Math.max(left, low / bandwidth);
    const knee = Math.min(peak / bandwidth, right);
    return [svg("path", { class: "roof", d: `M${x(start)} ${y(start * bandwidth)}L${x(knee)} ${y(knee * bandwidth)}L${x(right)} ${y(peak)}` }),
      svg("text", { x: x(start) + 4, y: Math.max(y(start * bandwidth) - 6, 20) }, `${(bandwidth / 1e9).toFixed(0)} GB/s, ${bytes(size)}`)];
  };
  return html("figure", {}, html("figcaption", {}, "Kernels under the roof: GFLOP/s over operations a byte; an area is a share of time"),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline" },
      powers(left, right).map((value) => [svg("line", { class: "grid", x1: x(value), x2: x(value), y1: 8, y2: height - 30 }),
        svg("text", { x: x(value), y: height - 14, "text-anchor": "middle" }, String(Number(value.toPrecision(3))))]),
      powers(low, high).map((value) => [svg("line", { class: "grid", x1: edge, x2: width - 8, y1: y(value), y2: y(value) }),
        svg("text", { x: edge - 5, y: y(value) + 4, "text-anchor": "end" }, String(Number((value / 1e9).toPrecision(3))))]),
      slopes.flatMap(roof),
      peak && svg("text", { x: width - 10, y: y(peak) - 5, "text-anchor": "end" }, `${(peak / 1e9).toFixed(0)} GFLOP/s`),
      shown.map((row) => svg("circle", { class: "dot", cx: x(row.x), cy: y(row.y), r: 3 + 22 * Math.sqrt(row.share), style: `fill: ${row.color}; stroke: ${row.color}` },
        svg("title", {}, `${row.kernel}: ${(row.y / 1e9).toPrecision(3)} GFLOP/s, ${row.x.toPrecision(2)} operations a byte, ${percent(row.share)}`)))));
}

// Everything that sizes change.
function update() {
  guards();
  showLaunches();
  variants();
  memory();
}
function show(number) {
  program = data.programs[number];
  profile = data.profile?.name === program.name ? data.profile : null;
  env = Object.fromEntries(program.symbols.map((name) => [name, profile?.dims[name] ?? Math.min(32, largest(name))]));
  times = null;
  if (profile?.launches.every((launch) => launch.number != null)) {
    times = program.launches.map(() => 0);
    profile.launches.forEach((launch) => (times[launch.number] += launch.seconds));
  }
  header();
  sliders();
  source();
  launches();
  time();
  update();
  const shares = costs();
  const most = shares.indexOf(Math.max(...shares));
  if (most >= 0) choose({ launch: most, open: true });
}
if (data.programs.length) {
  byId("choice").append(...data.programs.map((each, number) =>
    html("option", { value: number }, `${number + 1}: ${each.name} (${each.inputs.slice(0, 2).join(", ")}${each.inputs.length > 2 ? ", …" : ""})`)));
  byId("choice").addEventListener("change", (event) => show(Number(event.target.value)));
  byId("pick").hidden = data.programs.length === 1;
  show(Math.max(data.programs.findIndex((each) => each.name === data.profile?.name), 0));
} else {
  byId("title").textContent = "There is no program.";
}
