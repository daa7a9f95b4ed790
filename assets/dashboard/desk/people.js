// Who is at the desk, what this person says of itself, and what agents say without asking.
import { html, useLayoutEffect, useRef, useState } from '../lib/preact.js';
import { count } from '../lib/format.js';
import { useStore } from '../lib/store.js';
import { announce } from '../ui/announce.js';
import { Empty, Panel, Text, Time } from '../ui/parts.js';
import { Presence } from './parts.js';
import { desk, presence, tellPresence } from './session.js';

const CHOICES = { here: 'At the desk', paused: 'Paused', away: 'Away' };
const SAID = { here: 'You get offers.', paused: 'You get no offers. Questions stay in the list.', away: 'The others see that you are away.' };

// A paused console gets no offers; a person who is away gets none either, and the agents know it.
export function PresenceChoice() {
  const now = useStore(presence);
  const value = now.away ? 'away' : now.paused ? 'paused' : 'here';
  const choose = (next) => tellPresence({ paused: next === 'paused', away: next === 'away' }).then(() => announce(SAID[next]),
    (problem) => announce(problem.message));
  return html`<label class="presence"><span class="visually-hidden">Your presence</span><select value=${value} data-presence
    onChange=${(event) => choose(event.currentTarget.value)}>${Object.entries(CHOICES).map(([name, words]) => html`<option
    value=${name} selected=${name === value}>${words}</option>`)}</select></label>`;
}

export function People({ human }) {
  const { summary } = useStore(desk);
  const humans = summary?.humans ?? [];
  return html`<${Panel} title="People">${humans.length ? html`<ul class="people">${humans.map((one) => html`<li key=${one.human}>
    <span><${Text} value=${one.human} max=${40} />${one.human === human && ' (you)'}</span><${Presence} value=${one.presence} />
    <span class="faint number">${count(one.open)} open</span></li>`)}</ul>` : html`<${Empty} title="No person is at the desk." />`}<//>`;
}

export function Yaps() {
  const { yaps } = useStore(desk);
  const list = useRef(null);
  const [isAtEnd, setAtEnd] = useState(true);
  // The newest stays in view until the reader scrolls back.
  useLayoutEffect(() => {
    if (isAtEnd && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [yaps, isAtEnd]);
  const onScroll = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) =>
    setAtEnd(scrollHeight - scrollTop - clientHeight < 24);
  return html`<${Panel} title="Yaps" class="yaps">${yaps.length ? html`<div class="log" ref=${list} onScroll=${onScroll}
    tabindex="0" role="log" aria-live="off" aria-label="What agents say without asking"><ol>${yaps.map((one) => html`<li key=${one.seq}><span class="faint"><${Time}
    at=${one.at} /> <b><${Text} value=${one.sender_name ?? 'an agent'} max=${40} /></b>${one.late && ' (late)'}</span>
    <${Text} value=${one.folded ? `${count(one.folded)} more` : one.message} max=${4_000} /></li>`)}</ol></div>`
    : html`<${Empty} title="No yaps.">Agents say here what they do.<//>`}<//>`;
}
