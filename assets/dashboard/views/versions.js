// The versions of a protocol and the lenses between them, as a picture. The table below it has all that the picture shows.
import { html } from '../lib/preact.js';
import { count } from '../lib/format.js';

const SHOWN_MAX = 12;
const [WIDTH, HEIGHT, GAP, ARC] = [132, 60, 44, 30];
const CLASSES = ['exact', 'defaulted', 'lossy'];

// What a lens does on both ways.
export const waysOf = ({ forward, backward }) => (forward === backward ? `${forward} both ways` : `${forward ?? 'no way'}, back ${backward ?? 'no way'}`);

const counted = (number, one, several = `${one}s`) => `${count(number)} ${number === 1 ? one : several}`;

const worst = ({ forward, backward }) => CLASSES[Math.max(CLASSES.indexOf(forward), CLASSES.indexOf(backward))];

// From the lowest version to the highest, of those that are drawn.
export function VersionsPicture({ versions, version }) {
  const shown = versions.slice(-SHOWN_MAX);
  const places = new Map(shown.map((one, at) => [one.version, at]));
  const lenses = shown.flatMap(({ version: to, lenses: into }) => into.filter(({ from }) => places.has(from)).map((lens) => ({ ...lens, to })));
  if (!lenses.length) return null;
  const steps = ({ from, to }) => places.get(to) - places.get(from);
  const top = 20 + ARC * Math.max(...lenses.map(steps));
  const left = (at) => 1 + at * (WIDTH + GAP);
  const size = { width: left(shown.length) - GAP + 1, height: top + HEIGHT + 2 };
  return html`<div class="table-frame" tabindex="0" role="region" aria-label="Picture of the versions">
    <svg class="versions" viewBox=${`0 0 ${size.width} ${size.height}`} style=${{ width: `${size.width}px` }} role="img"
      aria-label=${`Picture of ${shown.length} versions and ${counted(lenses.length, 'lens', 'lenses')}; the table below has the same.`}>
      ${lenses.map((lens) => html`<${Arc} key=${`${lens.from} ${lens.to}`} lens=${lens} top=${top} rise=${ARC * steps(lens)}
        begin=${left(places.get(lens.from)) + WIDTH * 0.65} end=${left(places.get(lens.to)) + WIDTH * 0.35} />`)}
      ${shown.map((one) => html`<g key=${one.version} class=${`${one.version === version ? 'chosen' : ''} ${one.retirable ? 'retirable' : ''}`}
        transform=${`translate(${left(places.get(one.version))} ${top})`}><rect width=${WIDTH} height=${HEIGHT} rx="6" />
        ${[one.version, counted(one.sessions.active + one.sessions.kept, 'session'), `${count(one.sent)} sent`].map((text, at) => html`<text
          x=${WIDTH / 2} y=${18 + 17 * at} class=${at ? '' : 'name'}>${text}</text>`)}</g>`)}</svg>
    ${versions.length > shown.length && html`<p class="body faint">The newest ${shown.length} of ${count(versions.length)} versions.</p>`}</div>`;
}

function Arc({ lens, top, rise, begin, end }) {
  // The curve rises to three quarters of its control points.
  const control = top - rise / 0.75;
  const text = waysOf(lens);
  return html`<g><path class=${worst(lens)} d=${`M${begin} ${top}C${begin} ${control} ${end} ${control} ${end} ${top}`}>
    <title>${`${lens.from} to ${lens.to}: ${text}`}</title></path><text x=${(begin + end) / 2} y=${top - rise - 4}>${text}</text></g>`;
}
