// A table of one page of a list. Order, filter and page are done by the broker, and stand in the address.
import { html } from '../lib/preact.js';
import { linkHere, useRoute } from '../lib/router.js';
import { count } from '../lib/format.js';
import { Empty } from './parts.js';

// `columns`: `{title, render(row), sort?: the broker's name of the order, isWide?: hidden on narrow screens, isWidest?: shown on very
// wide ones, isNumber?}`.
export function Table({ caption, columns, rows, keyOf, empty, selection = null, defaultSort = null, defaultOrder = 'asc' }) {
  const { params } = useRoute();
  if (!rows.length) return html`<${Empty} title=${empty?.title ?? 'Nothing here.'}>${empty?.text}<//>`;
  const sorted = { by: params.sort ?? defaultSort, order: params.order ?? defaultOrder };
  return html`<div class="table-frame" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="visually-hidden">${caption}</caption>
    <thead><tr>${selection && html`<th scope="col" class="tick"><input type="checkbox" aria-label="Select all rows of this page"
      checked=${rows.every((row) => selection.has(keyOf(row)))} onChange=${(event) =>
        selection.setAll(event.currentTarget.checked ? rows.map(keyOf) : [])} /></th>`}
      ${columns.map((column) => html`<${Head} column=${column} sorted=${sorted} />`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>${selection && html`<td class="tick"><input type="checkbox"
      aria-label=${`Select ${keyOf(row)}`} checked=${selection.has(keyOf(row))}
      onChange=${() => selection.toggle(keyOf(row))} /></td>`}${columns.map((column) =>
        html`<td class=${classes(column)}>${column.render(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const classes = ({ isWide, isWidest, isNumber, isActions }) =>
  [isWide && 'wide', isWidest && 'widest', isNumber && 'number', isActions && 'actions'].filter(Boolean).join(' ');

function Head({ column, sorted }) {
  const isSorted = column.sort && sorted.by === column.sort;
  if (!column.sort) {
    return html`<th scope="col" class=${classes(column)}>${column.title
      || html`<span class="visually-hidden">Actions</span>`}</th>`;
  }
  const next = isSorted && sorted.order === 'asc' ? 'desc' : 'asc';
  return html`<th scope="col" class=${classes(column)}
    aria-sort=${isSorted ? (sorted.order === 'asc' ? 'ascending' : 'descending') : 'none'}>
    <a class="sort" href=${linkHere({ sort: column.sort, order: next })}>${column.title}<span aria-hidden="true">${
      isSorted ? (sorted.order === 'asc' ? ' ↑' : ' ↓') : ''}</span></a></th>`;
}

// The way to other pages. The browser's way back leads to the page before.
export function Pages({ shown, total = null, next }) {
  const { params } = useRoute();
  return html`<nav class="pages" aria-label="Pages of the list">
    <span>${total === null || total === undefined ? `${count(shown)} on this page` : `${count(shown)} of ${count(total)}`}</span>
    ${params.cursor && html`<a href=${linkHere({})}>First page</a>`}
    ${next ? html`<a href=${linkHere({ cursor: next })} rel="next">Next page</a>` : html`<span class="faint">End of the list</span>`}
  </nav>`;
}
