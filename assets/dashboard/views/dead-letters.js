// Messages that were given up: why, what was in them, and a second try for one, some or all that match.
import { html, useState } from '../lib/preact.js';
import { allows, call, get } from '../lib/api.js';
import { count, visible, words } from '../lib/format.js';
import { useResource } from '../lib/resource.js';
import { link } from '../lib/router.js';
import { ask, openDialog } from '../ui/dialog.js';
import { Filters } from '../ui/filters.js';
import { Id, Loaded, Panel, Status, Text, Time } from '../ui/parts.js';
import { Pages, Table } from '../ui/table.js';
import { Payload, SessionLink } from './messages.js';

const REASONS = ['expired', 'delivery_limit', 'recipient_gone', 'rejected', 'transform_failed'];
const PAGE = 50;
const REDRIVE_PAGE = 200;

export function DeadLetters({ route, title }) {
  const { reason, session, protocol, cursor } = route.params;
  const filter = { reason, session, protocol };
  const query = { ...filter, cursor, limit: PAGE };
  const resource = useResource(JSON.stringify(query), (signal) => get('dead-letters', query, signal), { topics: ['dead_letter', 'message'], pollMs: 10_000,
    concerns: (event, topic) => topic === 'dead_letter' || event.event === 'redriven' });
  const [chosen, setChosen] = useState(new Set());
  const selection = allows('member') && {
    has: (key) => chosen.has(key),
    setAll: (keys) => setChosen(new Set(keys)),
    toggle: (key) => setChosen((before) => {
      const next = new Set(before);
      if (!next.delete(key)) next.add(key);
      return next;
    }),
  };
  const after = () => {
    setChosen(new Set());
    resource.refresh();
  };
  const letters = resource.data?.dead_letters ?? [];
  // What is chosen and still on the page.
  const ids = [...new Set(letters.filter((one) => chosen.has(keyOf(one))).map((one) => one.message.message_id))];
  return html`<div class="title-row"><h1>${title}</h1><span class="spacer" />${allows('member') && html`
      <button type="button" disabled=${!ids.length} onClick=${() => redrive(ids, after)}>Redrive selected${ids.length ? ` (${ids.length})` : ''}</button>
      <button type="button" disabled=${!letters.length} onClick=${() => redriveAll(filter, after)}>Redrive all that match</button>`}</div>
    <${Filters} fields=${[{ name: 'reason', label: 'Reason', type: 'select', options: [['', 'All'], ...REASONS.map((one) => [one, words(one)])] },
      { name: 'session', label: 'Recipient or sender', type: 'search', hint: 'name or id' }, { name: 'protocol', label: 'Protocol', type: 'text' }]} />
    <${Panel}><${Loaded} resource=${resource} what="dead letters">${(data) => html`
      <${Table} caption="Dead letters, oldest first" rows=${data.dead_letters} keyOf=${keyOf} selection=${selection || null}
        empty=${{ title: 'No dead letters.', text: 'Messages that expire, are refused or are delivered too often appear here.' }} columns=${[
          { title: 'Given up', render: (row) => html`<${Time} at=${row.at} relative />` },
          { title: 'Reason', render: (row) => html`<${Status} value=${row.reason} kind="bad" />` },
          { title: 'From', render: (row) => html`<${SessionLink} id=${row.message.sender_id} name=${row.message.sender_name} />` },
          { title: 'To', isWide: true, render: (row) => html`<${SessionLink} id=${row.session_id} name=${row.session_name} />` },
          { title: 'Protocol', isWide: true, render: (row) => html`<${Text} value=${row.message.protocol_name} max=${40} />` },
          { title: 'Deliveries', isWide: true, isNumber: true, render: (row) => count(row.deliveries) },
          { title: 'Message', isWide: true, render: (row) => html`<${Id} value=${row.message.message_id} what="message id"
            href=${link('messages', row.message.message_id)} />` },
          { title: '', isActions: true, render: (row) => html`${allows('admin') && html`<button type="button" class="quiet"
            aria-label=${`Payload of ${row.message.message_id}`} onClick=${() => showPayload(row.message.message_id)}>Payload</button>`}
            ${allows('member') && html`<button type="button" class="quiet" aria-label=${`Redrive ${row.message.message_id}`}
            onClick=${() => redrive([row.message.message_id], after)}>Redrive</button>`}` },
        ]} />
      <${Pages} shown=${data.dead_letters.length} next=${data.next_cursor} />`}<//><//>`;
}

// A broadcast has a dead letter for each recipient.
const keyOf = (row) => `${row.message.message_id} ${row.session_id}`;

const showPayload = (id) => openDialog((close) => html`<div><h2 id="dialog-title">Message ${id.slice(0, 18)}…</h2><${Payload} id=${id} />
  <footer><button type="button" class="primary" onClick=${close}>Close</button></footer></div>`);

const recipientField = html`<label><span>Another recipient (name or id; empty: the same as before)</span><input name="recipient" type="text"
  autocomplete="off" spellcheck=${false} maxlength="256" /></label>`;

const send = (ids, form, signal) => call('POST', 'dead-letters/redrive',
  { body: { message_ids: ids, ...(form.recipient?.trim() ? { recipient_id: form.recipient.trim() } : {}) }, signal });

function redrive(ids, after) {
  ask({ title: ids.length === 1 ? 'Redrive this message?' : `Redrive ${count(ids.length)} messages?`, verb: 'Redrive',
    text: html`<p>The broker puts ${ids.length === 1 ? 'it' : 'them'} back into the inbox.</p>`, fields: recipientField,
    run: async ({ form, signal }) => summary(addUp(newSum(), await send(ids, form, signal))), after });
}

// Goes through all pages of the list. Messages that are given up again while it runs come behind its start and stay.
function redriveAll(filter, after) {
  const named = Object.entries(filter).filter(([, value]) => value).map(([name, value]) => `${name}: ${words(value)}`);
  ask({ title: 'Redrive all that match?', verb: 'Redrive all',
    text: html`<p>The broker puts every dead letter ${named.length ? html`with <strong>${visible(named.join(', '))}</strong>` : 'of the project'}
      ${' '}back into the inbox.</p>`, fields: recipientField,
    run: async ({ form, signal, progress }) => {
      const startedAt = Date.now();
      const sum = newSum();
      let cursor = null;
      do {
        const page = await get('dead-letters', { ...filter, cursor, limit: REDRIVE_PAGE }, signal);
        const old = page.dead_letters.filter((one) => Date.parse(one.at) <= startedAt);
        const ids = [...new Set(old.map((one) => one.message.message_id))];
        if (ids.length) addUp(sum, await send(ids, form, signal));
        progress(null, null, `${count(sum.redriven)} redriven`);
        cursor = old.length === page.dead_letters.length ? page.next_cursor : null;
      } while (cursor && !signal.aborted);
      return summary(sum);
    }, after });
}

const newSum = () => ({ redriven: 0, unknown: 0, failures: {} });

function addUp(sum, { redriven, unknown, failures }) {
  sum.redriven += redriven;
  sum.unknown += unknown.length;
  for (const { code } of failures) sum.failures[code] = (sum.failures[code] ?? 0) + 1;
  return sum;
}

function summary({ redriven, unknown, failures }) {
  const parts = [`${count(redriven)} ${redriven === 1 ? 'message is' : 'messages are'} back in the inbox.`];
  if (unknown) parts.push(`${count(unknown)} were not dead letters any longer.`);
  for (const [code, number] of Object.entries(failures)) parts.push(`${count(number)} failed: ${words(code)}.`);
  return parts.join(' ');
}
