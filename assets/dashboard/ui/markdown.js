// A text of an agent with its fences, lists and emphasis. Nothing in it becomes markup of the page, and a link shows where it
// leads.
import { html, useMemo } from '../lib/preact.js';
import { safeAddress, visible, visibleLines } from '../lib/format.js';
import { parseBlocks } from '../lib/markdown.js';

export function Markdown({ value, max = 100_000, class: extra = '' }) {
  const blocks = useMemo(() => parseBlocks(value.length > max ? `${value.slice(0, max)}…` : value), [value, max]);
  return html`<div class=${`markdown ${extra}`} dir="auto">${blocks.map((block, at) => html`<${Block} key=${at} ...${block} />`)}</div>`;
}

function Block({ kind, spans, text, level, depth, mark, language }) {
  switch (kind) {
    case 'code': return html`<pre tabindex="0" aria-label=${language ? `Code, ${language}` : 'Code'}><code>${visibleLines(text)}</code></pre>`;
    case 'heading': return html`<p class=${`heading level-${level}`} role="heading" aria-level=${Math.min(6, level + 1)}><${Spans} spans=${spans} /></p>`;
    case 'item': return html`<div class=${`item depth-${depth}`}><span class="mark">${mark}</span>
      <span><${Spans} spans=${spans} /></span></div>`;
    case 'quote': return html`<blockquote><${Spans} spans=${spans} /></blockquote>`;
    case 'rule': return html`<hr />`;
    case 'plain': return html`<p>${visibleLines(text)}</p>`;
    default: return html`<p><${Spans} spans=${spans} /></p>`;
  }
}

const Spans = ({ spans }) => spans.map(({ kind, text, spans: inner, address }, at) => {
  switch (kind) {
    case 'code': return html`<code key=${at}>${visibleLines(text)}</code>`;
    case 'strong': return html`<strong key=${at}><${Spans} spans=${inner} /></strong>`;
    case 'em': return html`<em key=${at}><${Spans} spans=${inner} /></em>`;
    case 'link': return html`<${Link} key=${at} title=${text} uri=${address} />`;
    default: return visibleLines(text);
  }
});

// The address is shown beside its title, so that a title cannot claim to be another address.
export function Link({ title, uri }) {
  const address = safeAddress(uri);
  const shown = html`<bdi class="faint">${visible(uri, 300)}</bdi>`;
  const text = html`<bdi>${visible(title, 300)}</bdi>`;
  return address ? html`<a href=${address} target="_blank" rel="noopener noreferrer">${text}</a> ${shown}` : html`${text} ${shown}`;
}
