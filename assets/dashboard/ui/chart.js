// A chart of series over time, drawn by uPlot, which `index.html` loads as a script of its own.
import { html, useEffect, useRef, useState } from '../lib/preact.js';
import { colour, onThemeChange } from '../lib/theme.js';

const HEIGHT = 132;
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit', hour12: false });
const COLOURS = ['--series-1', '--series-2', '--series-3', '--series-4'];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];

// `series`: `{label, values, now?}`, one value for each of `times` (seconds since the epoch), null where none is known; `now` is newer. The chart ends
// at the last time and shows `seconds` before it.
export function Chart({ title, times, series, format, seconds }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const [hovered, setHovered] = useState(null);
  const [themed, setThemed] = useState(0);
  useEffect(() => onThemeChange(() => setThemed((n) => n + 1)), []);
  const names = series.map(({ label }) => label).join();
  useEffect(() => {
    const element = frame.current;
    plot.current = new window.uPlot(options(element.clientWidth, series, format, seconds, setHovered),
      [times, ...series.map(({ values }) => values)], element);
    const resized = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [names, themed, seconds]);
  useEffect(() => plot.current?.setData([times, ...series.map(({ values }) => values)]), [times, series]);
  const at = hovered !== null && hovered < times.length ? hovered : null;
  return html`<figure class="chart">
    <figcaption><strong>${title}</strong><span class="legend">${series.map(({ label, values, now }, index) => html`<span>
      <i class=${`swatch series-${index + 1}`} />${label} <b>${format(at === null ? now ?? last(values) : values[at])}</b></span>`)}</span>
    </figcaption>
    <div ref=${frame} class="plot" role="img" aria-label=${describe(title, series, format)} /></figure>`;
}

const last = (values) => values.findLast((value) => value !== null) ?? null;

const describe = (title, series, format) => `${title}. ${series.map(({ label, values, now }) =>
  `${label}: now ${format(now ?? last(values))}, highest ${format(values.reduce((most, value) => Math.max(most, value ?? 0), 0))}`)
  .join('; ')}.`;

function options(width, series, format, seconds, setHovered) {
  const [text, grid] = [colour('--faint'), colour('--line')];
  const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  return {
    width, height: HEIGHT, padding: [8, 16, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: 'overview' } },
    scales: { x: { range: ({ data: [all] }) => [all.at(-1) - seconds, all.at(-1)] }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.15 : 1] } },
    axes: [{ ...axis, size: 28, space: 60, values: (_, ticks) => ticks.map((tick) => CLOCK.format(tick * 1000)) },
      { ...axis, size: 58, space: 34, values: (_, ticks) => ticks.map(format) }],
    series: [{}, ...series.map((_, index) => ({ stroke: colour(COLOURS[index]), width: 1.5, dash: DASHES[index],
      points: { show: false }, spanGaps: false,
      fill: index === 0 ? colour('--series-1-fill') : undefined }))],
    hooks: { setCursor: [({ cursor }) => setHovered(cursor.idx ?? null)] },
  };
}
