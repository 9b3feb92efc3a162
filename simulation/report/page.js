'use strict';
// The page of one run. Everything it knows is in the JSON of #data: see picture in
// picture.go. All text gets into the page as text, never as HTML.
(() => {
const errors = [];
addEventListener('error', e => errors.push(e.message));

const $ = id => document.getElementById(id);
const run = JSON.parse($('data').textContent);
const last = run.events.length;
const view = {lanes: 'workers', scale: run.by_order ? 'order' : 'time', zoom: 1, at: last};
const labelWidth = 130, zoomMax = 256;

// ---- small helpers ----

function html(name, props, ...inside) {
  const e = Object.assign(document.createElement(name), props);
  e.append(...inside);
  return e;
}

function shape(parent, name, attributes, title) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (title) shape(e, 'title', {}).textContent = title;
  parent.append(e);
  return e;
}

const ruler = document.createElement('canvas').getContext('2d');

function textWidth(text) {
  ruler.font = '11px system-ui, sans-serif';
  return ruler.measureText(text).width;
}

// time writes nanoseconds with four digits or so: 1.5s, 2m30s, 20ms.
function time(ns) {
  const digits = v => String(+v.toFixed(3));
  if (ns < 1e3) return ns ? ns + 'ns' : '0s';
  if (ns < 1e6) return digits(ns / 1e3) + 'µs';
  if (ns < 1e9) return digits(ns / 1e6) + 'ms';
  if (ns < 60e9) return digits(ns / 1e9) + 's';
  const h = Math.floor(ns / 3600e9), m = Math.floor(ns / 60e9) % 60, s = ns % 60e9 / 1e9;
  return (h ? h + 'h' : '') + (m ? m + 'm' : '') + (+s.toFixed(3) ? digits(s) + 's' : '');
}

const event = n => run.events[n - 1];
const isEnded = state => ['acked', 'dead', 'dropped'].includes(run.states[state]);

// what is an event in words, without its instant.
function what(e) {
  let s = e.kind;
  if (e.verb) s += ' ' + e.verb;
  if (e.message) s += ' ' + e.message + (e.generation ? '+' + e.generation : '') + (e.deliveries ? '#' + e.deliveries : '');
  if (e.worker || e.consumer) s += ' · ' + (e.worker || e.consumer);
  if (e.reason) s += ' · ' + e.reason;
  return s;
}

// more is what has no column of its own; beside what(e), the reason is said already.
function more(e, isBesideWhat) {
  const parts = [];
  if (e.queue && run.many_queues) parts.push(e.queue);
  if (e.tag) parts.push('tag ' + e.tag);
  if (e.attempt) parts.push('attempt ' + e.attempt);
  if (e.deadline) parts.push('until ' + time(e.deadline));
  if (e.reason && !isBesideWhat) parts.push(e.reason);
  if (e.detail) parts.push('(' + e.detail + ')');
  return parts.join(' ');
}

// ---- scale ----

let plot = 0; // width of the time axis

const x = (n, at) => plot * (view.scale === 'order' ? n / (last + 1) : Math.min(at, run.end) / run.end);
const xOf = n => n ? x(n, event(n).at) : 0;
const xOver = (n, at) => n ? x(n, at) : plot; // 0: it lasts to the end

// firstAt is the number of the first event at or after an instant.
function firstAt(at) {
  let low = 0, high = last;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.events[middle].at < at) low = middle + 1; else high = middle;
  }
  return low + 1;
}

// ---- lanes ----

const lane = p => view.lanes === 'workers' ? p.w : p.m;
const row = p => (view.lanes === 'workers' ? p.wr : p.mr) || 0;
let lanes = []; // {y, height} by lane
let rowHeight = 13, signHeight = 13;

function layLanes() {
  const all = run[view.lanes], tight = all.length > 60;
  rowHeight = tight ? 11 : 13;
  signHeight = tight ? 11 : 13;
  let y = 0;
  lanes = all.map((l, i) => {
    const height = signHeight + (l.rows ? l.rows * rowHeight + 3 : 6);
    const placed = {y, height};
    y += height;
    return placed;
  });
  return y;
}

const rowTop = (l, r) => lanes[l].y + signHeight + r * rowHeight;
const yOf = p => run[view.lanes][lane(p)].rows ? rowTop(lane(p), row(p)) + rowHeight / 2 - 1 : lanes[lane(p)].y + lanes[lane(p)].height / 2;

let drawn = []; // bars as drawn, for the self-test

function draw() {
  plot = Math.max(300, $('chart').clientWidth - labelWidth - 18) * view.zoom;
  const height = layLanes(), width = plot + 16;
  for (const id of ['axis', 'area', 'lanes']) {
    $(id).replaceChildren();
    $(id).setAttribute('width', width);
  }
  drawAxis();
  drawArea();
  const svg = $('lanes');
  svg.setAttribute('height', height);
  const pattern = shape(shape(svg, 'defs', {}), 'pattern', {id: 'hatch', width: 5, height: 5, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'});
  shape(pattern, 'path', {class: 'hatch', d: 'M0,0V5'});
  lanes.forEach((l, i) => i % 2 || shape(svg, 'rect', {class: 'band', x: 0, y: l.y, width, height: l.height}));
  for (const t of ticks) shape(svg, 'path', {class: 'grid', d: `M${t},0V${height}`, opacity: .6});
  $('lane-labels').replaceChildren(...run[view.lanes].map((l, i) => {
    const label = html('div', {title: l.name}, l.name);
    label.style.height = label.style.lineHeight = lanes[i].height + 'px';
    return label;
  }));
  for (const f of run.findings) {
    if (f.event) shape(svg, 'path', {class: 'finding', d: `M${xOf(f.event)},0V${height}`}, f.text);
  }
  drawBars(svg);
  drawSigns(svg);
  shape(svg, 'g', {id: 'arrows'});
  for (const b of document.querySelectorAll('[data-lanes]')) b.setAttribute('aria-pressed', b.dataset.lanes === view.lanes);
  for (const b of document.querySelectorAll('[data-scale]')) b.setAttribute('aria-pressed', b.dataset.scale === view.scale);
}

let ticks = [];

// drawAxis draws the instants, at round times or, by event, at every so many events.
function drawAxis() {
  const svg = $('axis'), room = 90;
  const marks = [];
  if (view.scale === 'order') {
    const every = Math.max(1, Math.ceil(last / (plot / room)));
    for (let n = 1; n <= last; n += every) marks.push([xOf(n), time(event(n).at)]);
  } else {
    const every = roundStep(run.end / (plot / room));
    for (let at = 0; at <= run.end; at += every) marks.push([x(0, at), time(at)]);
  }
  svg.setAttribute('height', 20);
  ticks = marks.map(m => m[0]);
  marks.forEach(([at, text], i) => shape(svg, 'text', {class: 'soft', x: at, y: 14, 'text-anchor': !i ? 'start' : at > plot - 16 ? 'end' : 'middle'}).textContent = text);
  $('axis-label').textContent = view.scale === 'order' ? 'time, by event' : 'virtual time';
}

// roundStep is the next round duration.
function roundStep(ns) {
  for (let unit = 1; unit < 1e9; unit *= 10) for (const k of [1, 2, 5]) if (unit * k >= ns) return unit * k;
  for (const s of [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200]) if (s * 1e9 >= ns) return s * 1e9;
  return Math.ceil(ns / 86400e9) * 86400e9;
}

// drawArea draws how many messages are in each state, ended ones at the bottom.
function drawArea() {
  const svg = $('area'), height = 84, pad = 4;
  svg.setAttribute('height', height);
  const most = Math.max(1, ...run.counts.map(c => c.in.reduce((a, b) => a + b, 0)));
  const y = n => height - pad - (height - 2 * pad) * n / most;
  const below = run.counts.map(() => 0);
  for (const name of ['acked', 'dropped', 'dead', 'leased', 'ready', 'delayed']) {
    const state = run.states.indexOf(name);
    if (!run.counts.some(c => c.in[state])) continue;
    const up = [], back = [];
    run.counts.forEach((c, i) => {
      const next = run.counts[i + 1], from = x(c.event, c.at), to = next ? x(next.event, next.at) : plot;
      back.unshift(`${to},${y(below[i])} ${from},${y(below[i])}`);
      below[i] += c.in[state];
      up.push(`${from},${y(below[i])} ${to},${y(below[i])}`);
    });
    shape(svg, 'polygon', {class: name, points: up.join(' ') + ' ' + back.join(' ')}, name);
  }
  $('area-label').textContent = most + (most === 1 ? ' message' : ' messages');
}

// drawBars draws the leases, what waits between them, and when a worker was down.
function drawBars(svg) {
  drawn = [];
  const next = new Map(); // where the next bar of a row begins
  const rest = [];
  if (view.lanes === 'workers') { // among the signs, since a lease may still run
    for (const d of run.downs) {
      const from = x(d.event, d.from);
      shape(svg, 'rect', {class: 'down', x: from, y: lanes[d.w].y + signHeight / 2 - 2.5, width: Math.max(1, xOver(d.over, d.to) - from), height: 5}, d.why);
    }
  } else {
    for (const w of run.waits) {
      const y = rowTop(w.m, 0) + rowHeight / 2;
      shape(svg, 'path', {class: 'wait', d: `M${x(w.event, w.from)},${y}H${xOver(w.over, w.to)}`}, (w.backoff ? 'backoff' : 'delayed') + ' until ' + time(w.to));
    }
  }
  for (let i = run.bars.length - 1; i >= 0; i--) { // backwards, to know the next one
    const b = run.bars[i], l = lane(b.place), r = row(b.place), key = l + '/' + r;
    const from = x(b.grant, b.from), to = xOver(b.over, b.to), y = rowTop(l, r), width = Math.max(1.5, to - from);
    const other = view.lanes === 'workers' ? b.message : b.worker;
    const name = other + (b.deliveries > 1 ? '#' + b.deliveries : '');
    const g = shape(svg, 'g', {}, `${b.message}${b.deliveries ? ', delivery ' + b.deliveries : ''}, attempt ${b.attempt || '?'}, by ${b.worker || 'nobody'}, tag ${b.tag || '?'}\n` +
      `from ${time(b.from)}: ${b.ending} at ${time(b.to)}` + (b.deadline ? `, deadline ${time(b.deadline)}` : '') + (b.zombie ? `\nworked on without a lease until ${time(b.zombie)}` : ''));
    let end = from + width;
    if (b.over && b.deadline > b.to) {
      const until = Math.min(view.scale === 'order' ? xOf(Math.min(firstAt(b.deadline), last)) : x(0, b.deadline), next.has(key) ? next.get(key) - 1 : plot);
      if (until > to) shape(g, 'rect', {class: b.ending + ' unused', x: to, y: y + rowHeight - 4, width: until - to, height: 2});
    }
    shape(g, 'rect', {class: 'bar ' + b.ending, x: from, y, width, height: rowHeight - 2, rx: 1.5});
    for (const n of b.touches || []) shape(g, 'path', {class: 'touch', d: `M${xOf(n)},${y + 2}v${rowHeight - 6}`});
    if (b.zombie) {
      end = Math.max(end, to + Math.max(1.5, xOver(b.zombie_over, b.zombie) - to));
      shape(g, 'rect', {class: 'zombie', x: to, y: y + 1, width: end - to, height: rowHeight - 4});
    }
    if (textWidth(name) + 6 <= width) rest.push([from + 3, y + rowHeight - 4, name]);
    next.set(key, from);
    drawn.push({key, from, end});
  }
  for (const [atX, y, name] of rest) shape(svg, 'text', {class: 'on', x: atX, y}).textContent = name;
}

// drawSigns draws the signs above the bars, side by side where they would cover each
// other. Minor ones give way.
function drawSigns(svg) {
  const byShape = new Map(run.signs.map(s => [s.shape, s]));
  const byLane = new Map();
  for (const m of run.marks) {
    const l = lane(event(m.event).place);
    if (!byLane.has(l)) byLane.set(l, []);
    byLane.get(l).push({n: m.event, sign: byShape.get(m.shape)});
  }
  for (const [l, all] of byLane) {
    const taken = [];
    let free = -1;
    const put = (m, at) => {
      const path = shape(svg, 'path', {class: 'sign ' + m.sign.shape + (m.sign.line ? ' line' : ''), d: m.sign.path,
        transform: `translate(${at} ${lanes[l].y + signHeight / 2})`}, `#${m.n} ${time(event(m.n).at)} ${what(event(m.n))}`);
      path.dataset.event = m.n;
      taken.push(at);
    };
    for (const m of all) if (!m.sign.minor) {
      const want = xOf(m.n), at = free - want > 40 ? want : Math.max(want, free);
      put(m, at);
      free = at + 10;
    }
    taken.sort((a, b) => a - b);
    let i = 0;
    for (const m of all) if (m.sign.minor) {
      const at = xOf(m.n);
      while (i < taken.length && taken[i] < at - 8) i++;
      if (i < taken.length && taken[i] <= at + 8) continue;
      put(m, at);
      taken.splice(i, 0, at);
    }
  }
}

// ---- causes ----

const effectsOf = new Map();
for (const e of run.events) {
  if (!e.cause) continue;
  if (!effectsOf.has(e.cause)) effectsOf.set(e.cause, []);
  effectsOf.get(e.cause).push(e.n);
}

function chain(n) {
  const all = [];
  for (let c = event(n).cause; c && all.length < 40; c = event(c).cause) all.push(c);
  return all;
}

function drawArrows() {
  const g = $('arrows');
  g.replaceChildren();
  if (!view.at) return;
  const arrow = (from, to, kind) => {
    const x1 = xOf(from), y1 = yOf(event(from).place), x2 = xOf(to), y2 = yOf(event(to).place);
    // Along one lane it goes above what stands there, else out to the right and back in.
    const bow = Math.max(14, Math.min(60, Math.abs(x2 - x1) / 2));
    const d = y1 === y2 ? `M${x1},${y1}Q${(x1 + x2) / 2},${y1 - 2.2 * rowHeight} ${x2},${y2}` : `M${x1},${y1}C${x1 + bow},${y1} ${x2 - bow},${y2} ${x2},${y2}`;
    shape(g, 'path', {class: 'arrow ' + kind, d});
    shape(g, 'circle', {class: 'head', cx: x2, cy: y2, r: 2.5});
  };
  for (const n of (effectsOf.get(view.at) || []).slice(0, 12)) arrow(view.at, n, 'effect-of');
  let to = view.at;
  for (const from of chain(view.at)) {
    arrow(from, to, 'cause-of');
    to = from;
  }
  shape(g, 'circle', {class: 'here', cx: xOf(view.at), cy: yOf(event(view.at).place), r: 6});
}

function jump(n, text) {
  const b = html('button', {type: 'button'}, text);
  b.onclick = () => go(n);
  return b;
}

function showWhy() {
  const p = $('why');
  p.replaceChildren();
  if (!view.at) return;
  const e = event(view.at), rest = more(e, true);
  p.append(html('b', {}, what(e)), rest ? ' ' + rest : '');
  const causes = chain(view.at), effects = effectsOf.get(view.at) || [];
  p.append(html('br'), causes.length ? 'because of ' : 'nothing before it brought it about');
  causes.forEach((c, i) => p.append(i ? ' ← ' : '', jump(c, `#${c} ${what(event(c))}`)));
  if (effects.length) p.append(html('br'), 'brought about ');
  effects.slice(0, 12).forEach(n => p.append(jump(n, `#${n} ${what(event(n))}`), ' '));
  if (effects.length > 12) p.append(`and ${effects.length - 12} more`);
}

// ---- ledger ----

// One row for each message, made once; only what differs is written.
const lines = run.messages.map(l => {
  const cells = ['', '', '', 'n', 'n', ''].map(className => html('td', {className}));
  cells[0].textContent = l.name;
  return {tr: html('tr', {hidden: true}, ...cells), cells, text: ''};
});

// ledgerAt is the latest change of each message up to an event.
function ledgerAt(n) {
  const now = [];
  for (const c of run.changes) {
    if (c.event > n) break;
    now[c.m] = c;
  }
  return now;
}

function showLedger() {
  const now = ledgerAt(view.at), atWork = new Map();
  for (const b of run.bars) {
    if (b.zombie && b.over <= view.at && !(b.zombie_over && b.zombie_over <= view.at)) {
      atWork.set(b.place.m, (atWork.get(b.place.m) || []).concat(b.worker));
    }
  }
  let scrollTo = null;
  lines.forEach((line, i) => {
    const c = now[i];
    if (line.tr.hidden !== !c) line.tr.hidden = !c;
    if (!c) return;
    const state = run.states[c.state], zombies = atWork.get(i) || [];
    const due = c.deadline && !isEnded(c.state) ? time(c.deadline) : '';
    const note = [c.note, zombies.length ? 'still worked on by ' + zombies.join(', ') : ''].filter(Boolean).join('; ');
    const here = c.event === view.at, text = [state, c.holder, c.attempt, due, note, here].join('|');
    if (here) scrollTo = line.tr;
    if (text === line.text) return;
    line.text = text;
    line.tr.className = (here ? 'here' : '') + (isEnded(c.state) ? ' ended' : '');
    line.cells[1].replaceChildren(html('i', {className: 'chip ' + state}), state);
    [c.holder, c.attempt, due, note].forEach((t, k) => line.cells[k + 2].textContent = t || '');
    line.cells[5].title = note;
  });
  const counts = run.states.map(() => 0);
  let c = null;
  for (const candidate of run.counts) {
    if (candidate.event > view.at) break;
    c = candidate;
  }
  $('sums').replaceChildren(...run.states.map((name, i) => html('span', {}, html('i', {className: name}), `${name} ${c ? c.in[i] : counts[i]}`)));
  if (scrollTo) reveal($('ledger'), scrollTo.offsetTop);
}

// reveal scrolls a table so that a row at y is to be seen.
function reveal(box, y) {
  if (y < box.scrollTop + 24 || y > box.scrollTop + box.clientHeight - 24) box.scrollTop = Math.max(0, y - box.clientHeight / 2);
}

// ---- events ----

// Only the rows to be seen are in the page: there may be thousands.
const eventRow = 20;
let found = run.events;

function showEvents() {
  const box = $('events'), body = box.querySelector('tbody');
  const first = Math.max(0, Math.floor(box.scrollTop / eventRow) - 10), rows = Math.ceil(box.clientHeight / eventRow) + 20;
  const space = n => {
    const td = html('td', {colSpan: 7}), tr = html('tr', {}, td);
    td.style.height = n * eventRow + 'px';
    td.style.padding = 0;
    return tr;
  };
  const shown = found.slice(first, first + rows).map(e => {
    const tr = html('tr', {className: (e.n === view.at ? 'here ' : '') + (e.kind === 'violation' ? e.kind : '')});
    const cell = (text, className) => tr.append(html('td', {className: className || ''}, text || ''));
    cell(e.n, 'n');
    cell(time(e.at), 'n');
    cell(e.kind + (e.verb ? ' ' + e.verb : ''));
    cell((e.message || '') + (e.generation ? '+' + e.generation : '') + (e.deliveries ? '#' + e.deliveries : ''));
    cell((e.worker || e.consumer || '') + (e.incarnation > 1 ? ` (${e.incarnation})` : ''));
    cell(more(e));
    cell(e.cause ? '#' + e.cause : '', 'n');
    tr.onclick = () => go(e.n);
    return tr;
  });
  body.replaceChildren(...(first ? [space(first)] : []), ...shown, ...(first + rows < found.length ? [space(found.length - first - rows)] : []));
}

function filter() {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = e => `#${e.n} ${what(e)} ${e.worker || ''} ${e.consumer || ''} ${more(e)}`.toLowerCase();
  found = words.length ? run.events.filter(e => { const t = text(e); return words.every(w => t.includes(w)); }) : run.events;
  $('found').textContent = words.length ? `${found.length} of ${last}` : '';
  showPlace();
}

function showPlace() {
  const i = found.findIndex(e => e.n === view.at);
  if (i >= 0) reveal($('events'), i * eventRow + 24);
  showEvents();
}

// ---- going about ----

// go moves to event n; 0 is before the first.
function go(n) {
  view.at = Math.max(0, Math.min(last, n));
  $('slider').value = view.at;
  $('where').textContent = view.at ? `${view.at} of ${last} · ${time(event(view.at).at)}` : `0 of ${last}`;
  $('slider').setAttribute('aria-valuetext', view.at ? what(event(view.at)) : 'the beginning');
  const at = xOf(view.at), chart = $('chart');
  $('cursor').style.transform = `translateX(${labelWidth + at}px)`; // which costs no layout
  if (at < chart.scrollLeft + 10 || at > chart.scrollLeft + chart.clientWidth - labelWidth - 20) {
    chart.scrollLeft = at - (chart.clientWidth - labelWidth) / 2;
  }
  if (view.at) {
    const y = yOf(event(view.at).place) + 104; // below axis and area
    if (lane(event(view.at).place) && (y < chart.scrollTop + 30 || y > chart.scrollTop + chart.clientHeight - 20)) chart.scrollTop = y - chart.clientHeight / 2;
  }
  drawArrows();
  showWhy();
  showLedger();
  showPlace();
}

function change(what) {
  Object.assign(view, what);
  draw();
  go(view.at);
}

// zoom keeps the current event where it is.
function zoom(by) {
  const chart = $('chart'), before = xOf(view.at) - chart.scrollLeft;
  view.zoom = by ? Math.max(1, Math.min(zoomMax, view.zoom * by)) : 1;
  draw();
  chart.scrollLeft = xOf(view.at) - before;
  go(view.at);
}

function nextFinding() {
  const stops = run.findings.map(f => f.event).filter(Boolean).sort((a, b) => a - b);
  if (stops.length) go(stops.find(n => n > view.at) || stops[0]);
}

function copy() {
  const done = () => { $('copy').textContent = 'copied'; setTimeout(() => $('copy').textContent = 'copy', 1500); };
  const byHand = () => getSelection().selectAllChildren($('command').querySelector('code'));
  if (!navigator.clipboard) return byHand();
  navigator.clipboard.writeText(run.command).then(done, byHand);
}

// nearest is the event that is closest to a place in the lanes.
function nearest(atX, atY) {
  let best = 0, distance = Infinity;
  for (const e of run.events) {
    const dx = xOf(e.n) - atX, l = lanes[lane(e.place)], dy = atY < l.y || atY > l.y + l.height ? 1000 : 0;
    const d = Math.abs(dx) + dy;
    if (d < distance) [best, distance] = [e.n, d];
  }
  return best;
}

const keys = {
  ArrowLeft: e => go(view.at - (e.shiftKey ? 10 : 1)), ArrowRight: e => go(view.at + (e.shiftKey ? 10 : 1)),
  Home: () => go(1), End: () => go(last), n: nextFinding,
  m: () => change({lanes: view.lanes === 'workers' ? 'messages' : 'workers'}),
  t: () => change({scale: view.scale === 'time' ? 'order' : 'time'}),
  '+': () => zoom(2), '-': () => zoom(.5), 0: () => zoom(0),
};

function listen() {
  $('slider').oninput = () => go(+$('slider').value);
  $('first').onclick = () => go(1);
  $('back').onclick = () => go(view.at - 1);
  $('forth').onclick = () => go(view.at + 1);
  $('last').onclick = () => go(last);
  $('in').onclick = () => zoom(2);
  $('out').onclick = () => zoom(.5);
  $('fit').onclick = () => zoom(0);
  $('copy').onclick = copy;
  $('filter').oninput = filter;
  $('live').onchange = () => $('ledger').classList.toggle('live', $('live').checked);
  $('events').onscroll = showEvents;
  for (const b of document.querySelectorAll('[data-lanes]')) b.onclick = () => change({lanes: b.dataset.lanes});
  for (const b of document.querySelectorAll('[data-scale]')) b.onclick = () => change({scale: b.dataset.scale});
  $('lanes').onclick = e => {
    const box = $('lanes').getBoundingClientRect();
    go(+e.target.dataset.event || nearest(e.clientX - box.left, e.clientY - box.top));
  };
  addEventListener('keydown', e => {
    if (e.target.id === 'filter' || e.ctrlKey || e.metaKey || e.altKey || !keys[e.key]) return;
    e.preventDefault();
    keys[e.key](e);
  });
  addEventListener('resize', () => change({}));
}

// ---- the frame ----

function fillHeader() {
  $('facts').append(...run.facts.map(([name, text]) => html('span', {}, name + ' ' + text)));
  $('findings').append(...run.findings.map(f => html('li', {}, f.event ? jump(f.event, `#${f.event} ${f.text}`) : f.text)));
  if (run.command) {
    $('command').hidden = false;
    $('command').querySelector('code').textContent = run.command;
  }
  const icon = draw => {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('width', 26);
    svg.setAttribute('height', 13);
    draw(svg);
    return svg;
  };
  const entry = (draw, text) => html('p', {}, icon(draw), text);
  const box = (name, y, height) => svg => shape(svg, 'rect', {class: name, x: 1, y, width: 24, height});
  $('legend').lastElementChild.append(
    ...run.endings.map(([name, text]) => entry(box(name, 1, 11), text)),
    entry(box('running unused', 9, 2), 'the rest until its deadline'),
    entry(box('zombie', 2, 9), 'work without a lease'),
    entry(box('down', 4, 5), 'worker is down'),
    entry(svg => shape(svg, 'path', {class: 'wait', d: 'M1,6H25'}), 'delayed, or backoff'),
    ...run.signs.map(s => entry(svg => shape(svg, 'path', {class: 'sign ' + s.shape + (s.line ? ' line' : ''), d: s.path, transform: 'translate(13 6.5)'}), s.meaning)),
    entry(svg => shape(svg, 'path', {class: 'arrow', d: 'M1,6H25'}), 'caused'),
    entry(svg => shape(svg, 'path', {class: 'arrow effect-of', d: 'M1,6H25'}), 'brought about'),
    ...run.states.map(name => entry(box(name, 1, 11), name + ' (area)')),
  );
  const plan = $('plan').lastElementChild;
  plan.append(...run.faults.map(f => html('p', {}, f)), ...run.settings.map(s => html('p', {className: 'soft'}, s)));
  $('plan').hidden = !plan.childElementCount;
}

fillHeader();
if (last) {
  document.querySelector('main').hidden = false;
  $('slider').max = last;
  $('ledger').querySelector('tbody').append(...lines.slice(1).map(l => l.tr));
  listen();
  // #event=57&lanes=messages&scale=order opens the page there.
  const wish = new URLSearchParams(location.hash.slice(1));
  if (['workers', 'messages'].includes(wish.get('lanes'))) view.lanes = wish.get('lanes');
  if (['time', 'order'].includes(wish.get('scale'))) view.scale = wish.get('scale');
  draw();
  const stop = run.findings.find(f => f.event);
  go(+wish.get('event') || (stop ? stop.event : last));
} else {
  $('facts').append(html('span', {}, 'The run was made without keeping its events.'));
}

// ---- self-test ----

// Opened with #selftest the page does what a user would, and writes down what it saw.
if (location.hash === '#selftest') {
  const saw = {errors, title: document.title, events: last, overlaps: 0, copied: null};
  Object.defineProperty(navigator, 'clipboard', {value: {writeText: text => { saw.copied = text; return Promise.resolve(); }}});
  if (run.command) $('copy').click();
  if (last) {
    const ledger = () => $('ledger').innerText;
    const slide = n => { $('slider').value = n; $('slider').dispatchEvent(new Event('input')); };
    saw.start = view.at;
    slide(0);
    saw.before = ledger();
    slide(Math.ceil(last / 2));
    saw.middle = ledger();
    slide(last);
    saw.after = ledger();
    const began = performance.now();
    for (let i = 0; i < 20; i++) slide(Math.ceil(last * (i + 1) / 20));
    saw.slideMillis = (performance.now() - began) / 20;
    dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}));
    saw.afterLeft = view.at;
    dispatchEvent(new KeyboardEvent('keydown', {key: 'n'}));
    saw.afterNext = view.at;
    saw.arrows = document.querySelectorAll('.arrow.cause-of').length;
    saw.views = {};
    for (const l of ['workers', 'messages']) for (const s of ['time', 'order']) {
      change({lanes: l, scale: s});
      const ends = {};
      for (const b of drawn.slice().reverse()) { // in the order of their grants
        if (b.from < (ends[b.key] || 0) - 2) saw.overlaps++;
        ends[b.key] = Math.max(ends[b.key] || 0, b.end);
      }
      saw.views[l + ' ' + s] = {bars: document.querySelectorAll('#lanes .bar').length, zombies: document.querySelectorAll('#lanes .zombie').length,
        signs: document.querySelectorAll('#lanes .sign').length, lanes: $('lane-labels').childElementCount};
    }
    $('filter').value = 'grant';
    filter();
    saw.found = found.length;
  }
  $('selftest').textContent = JSON.stringify(saw);
}
})();
