// Numbers, times and texts as people read them.

// Tabs and ends of lines are none of them.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// A text from a client, with control and direction characters made visible, cut to `max` characters.
export function visible(text, max = 200) {
  const cut = text.length > max ? `${text.slice(0, max)}…` : text;
  return cut.replace(/[\n\t]/g, ' ').replace(CONTROLS, nameOf);
}

// The same for a text of several lines.
export function visibleLines(text, max = 200_000) {
  const cut = text.length > max ? `${text.slice(0, max)}\n… ${count(text.length - max)} more characters` : text;
  return cut.replace(CONTROLS, nameOf);
}

function nameOf(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return `‹U+${code.toString(16).toUpperCase().padStart(4, '0')}›`;
}

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (number) => (number === null || number === undefined ? '–' : whole.format(number));
export const compact = (number) => (Math.abs(number) < 10_000 ? whole.format(Math.round(number)) : short.format(number));

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return '–';
  if (perSecond > 0 && perSecond < 10) return `${perSecond.toFixed(1)}/s`;
  return `${compact(perSecond)}/s`;
}

export function bytes(number) {
  if (number === null || number === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const at = number < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(number) / 10));
  const value = number / 1024 ** at;
  return `${at && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

// A length of time, in the largest two units.
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return '–';
  if (seconds === 0) return '0 s';
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${seconds < 0.01 ? (seconds * 1000).toFixed(1) : Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 && seconds % 1 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const parts = /** @type {const} */ ([['d', 86_400], ['h', 3_600], ['min', 60], ['s', 1]]);
  const from = parts.findIndex(([, size]) => seconds >= size);
  const [unit, size] = parts[from];
  const first = Math.floor(seconds / size);
  const next = parts[from + 1];
  const rest = next ? Math.floor((seconds - first * size) / next[1]) : 0;
  return rest ? `${first} ${unit} ${rest} ${next[0]}` : `${first} ${unit}`;
}

export function ago(at, now = Date.now()) {
  const seconds = (now - Date.parse(at)) / 1000;
  if (Math.abs(seconds) < 1) return 'now';
  return seconds > 0 ? `${duration(Math.floor(seconds))} ago` : `in ${duration(Math.floor(-seconds))}`;
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'long' });

// In the zone of the viewer: the time of today, the date of other days.
export function localTime(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return '–';
  return date.toDateString() === new Date().toDateString() ? clock.format(date) : local.format(date);
}

// The exact instant, in the zone of the viewer and in UTC.
export function exactTime(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? '' : `${zoned.format(date)}\n${at}`;
}

// The value of a field that may be a word with underscores.
export const words = (text) => text.replaceAll('_', ' ');

// Where the address of a link may lead; null for one that the page shows as text alone.
export function safeAddress(uri) {
  try {
    const url = new URL(uri);
    return ['http:', 'https:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
