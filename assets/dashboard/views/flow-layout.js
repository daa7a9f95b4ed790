// Where the participants of the flow stand. The same data gives the same picture: participants stand on a circle in the
// order of their names, so that those with a common prefix are neighbours.

const NODES_MAX = 200;
// Room for the names around the circle.
const MARGIN = 150;

// Joins participants into groups when they are too many for a picture: first by the prefix of their names, then the
// least busy groups into one.
export function fold(edges) {
  let names = (name) => name;
  let graph = joined(edges, names);
  if (graph.nodes.length <= NODES_MAX) return { ...graph, isFolded: false };
  names = prefix;
  graph = joined(edges, names);
  if (graph.nodes.length > NODES_MAX) {
    const busy = [...graph.nodes].sort((a, b) => b.messages - a.messages || compare(a.name, b.name)).slice(0, NODES_MAX - 1);
    const kept = new Set(busy.map(({ name }) => name));
    graph = joined(edges, (name) => (kept.has(prefix(name)) ? prefix(name) : 'others'));
  }
  return { ...graph, isFolded: true };
}

// The name without its last part: `coder` of `coder-17`, `coder:eu` of `coder:eu:3`.
export function prefix(name) {
  const cut = name.replace(/[-_.:/#@ ]?[^-_.:/#@ ]*$/u, '');
  return cut || name.replace(/\d+$/, '') || name;
}

function joined(edges, nameOf) {
  const nodes = new Map();
  const lines = new Map();
  const add = (original, messages) => {
    const name = nameOf(original);
    const node = nodes.get(name) ?? { name, messages: 0, originals: new Set() };
    node.messages += messages;
    node.originals.add(original);
    nodes.set(name, node);
    return name;
  };
  for (const { from, to, messages, dead } of edges) {
    const [a, b] = [add(from, messages), add(to, messages)];
    const key = JSON.stringify([a, b]);
    const line = lines.get(key) ?? { from: a, to: b, messages: 0, dead: 0 };
    line.messages += messages;
    line.dead += dead;
    lines.set(key, line);
  }
  const sorted = [...nodes.values()].sort((a, b) => compare(a.name, b.name));
  return { nodes: sorted.map(({ originals, ...node }) => ({ ...node, members: originals.size })), lines: [...lines.values()] };
}

// Numbers in names in the order of numbers, the same in every browser.
const { compare } = new Intl.Collator('en', { numeric: true });

// Positions for a square of a size, and the curves between them.
export function layout({ nodes, lines }, size) {
  const middle = size / 2;
  const radius = middle - MARGIN;
  const most = Math.max(20, ...lines.map(({ messages }) => messages));
  const font = nodes.length > 100 ? 9 : nodes.length > 40 ? 11 : 14;
  const placed = new Map(nodes.map((node, at) => {
    const angle = (at / nodes.length) * 2 * Math.PI - Math.PI / 2;
    const [x, y] = [middle + radius * Math.cos(angle), middle + radius * Math.sin(angle)];
    const isLeft = Math.cos(angle) < -1e-9;
    const [tx, ty] = [middle + (radius + 12) * Math.cos(angle), middle + (radius + 12) * Math.sin(angle)];
    const degrees = (angle * 180) / Math.PI + (isLeft ? 180 : 0);
    return [node.name, { ...node, angle, font, x: round(x), y: round(y), radius: round(2.5 + 0.45 * Math.min(10, Math.log1p(node.messages))),
      turn: `translate(${round(tx)} ${round(ty)}) rotate(${round(degrees)})`, anchor: isLeft ? 'end' : 'start' }];
  }));
  const [thin, thick] = lines.length > 150 ? [0.6, 3] : [1, 5];
  const curves = lines.map((line) => {
    const [a, b] = [placed.get(line.from), placed.get(line.to)];
    return { ...line, width: round(thin + thick * (Math.log1p(line.messages) / Math.log1p(most))),
      path: curve(a, b, middle) };
  });
  return { nodes: [...placed.values()], lines: curves };
}

// A curve that bends to the middle. The two directions of a pair bend differently; a participant that talks to itself has a loop.
function curve(a, b, middle) {
  if (a.name === b.name) {
    const out = (distance, turn) => `${round(a.x - distance * Math.cos(a.angle + turn))} ${round(a.y - distance * Math.sin(a.angle + turn))}`;
    return `M${a.x} ${a.y}C${out(60, 0.5)} ${out(60, -0.5)} ${a.x} ${a.y}`;
  }
  // Neighbours stay near the circle, opposites cross the middle.
  const share = Math.hypot(a.x - b.x, a.y - b.y) / (2 * (middle - MARGIN));
  const keep = 0.85 - 0.7 * share - (a.angle < b.angle ? 0.08 : 0);
  const [x, y] = [middle + (((a.x + b.x) / 2) - middle) * keep, middle + (((a.y + b.y) / 2) - middle) * keep];
  return `M${a.x} ${a.y}Q${round(x)} ${round(y)} ${b.x} ${b.y}`;
}

const round = (number) => Math.round(number * 10) / 10;
