// The frame of the desk: who answers, the open questions, the one that is open, the people, and the yaps.
import { html, useEffect, useErrorBoundary, useRef } from '../lib/preact.js';
import { logOut, me } from '../lib/api.js';
import { count, visible } from '../lib/format.js';
import { go, link, useRoute } from '../lib/router.js';
import { useStore } from '../lib/store.js';
import { Announcements } from '../ui/announce.js';
import { DialogHost, ask } from '../ui/dialog.js';
import { Brand, KeyOfCaller, Live, Project, ThemeSwitch } from '../ui/header.js';
import { useShortcuts } from '../ui/keys.js';
import { Empty } from '../ui/parts.js';
import { History } from './history.js';
import { QuestionList, useOrdered } from './list.js';
import { Messages, useMailNews } from './messages.js';
import { NotifyButton, useNews } from './notify.js';
import { People, PresenceChoice, Yaps } from './people.js';
import { QuestionView } from './question.js';
import { attach, connection, givenName, givenRoles, humanOf, mail, presence, refusal, tellPresence } from './session.js';

const NAME_MAX = 128;

export function Desk() {
  const caller = useStore(me);
  const human = humanOf(caller, useStore(givenName));
  const { params } = useRoute();
  const roles = useStore(givenRoles);
  if (!human) return html`<${NameForm} />`;
  return html`<${Attached} key=${JSON.stringify([human, roles, params.project])} human=${human} isOwn=${!caller.human} />`;
}

// Changes who this page answers for. The page begins again under a new name.
function become(form) {
  const name = form.name.trim();
  if (!name) return;
  givenRoles.set(form.roles.split(',').map((one) => one.trim()).filter(Boolean).join(','));
  givenName.set(name);
}

const NameFields = ({ name = '', roles = '' }) => html`<label><span>Your name</span><input name="name" required maxlength=${NAME_MAX}
    value=${name} autocomplete="username" spellcheck=${false} aria-describedby="name-hint" /></label>
  <p id="name-hint" class="faint">Agents and other people see it. This browser keeps it.</p>
  <label><span>Roles (optional)</span><input name="roles" value=${roles} maxlength=${NAME_MAX} placeholder="oncall, dba" autocomplete="off"
    spellcheck=${false} /></label>`;

function NameForm() {
  const frame = useRef(null);
  useEffect(() => frame.current.querySelector('input').focus(), []);
  const submit = (event) => {
    event.preventDefault();
    become(Object.fromEntries(new FormData(event.currentTarget)));
  };
  return html`<main class="login"><form onSubmit=${submit} class="panel" ref=${frame}><h1><img src=${new URL('../icon.svg', import.meta.url)}
    alt="" width="28" height="28" /> Desk</h1><${NameFields} /><button type="submit" class="primary">Go to the desk</button></form></main>`;
}

const VIEWS = { overview: 'Questions', q: 'Question', messages: 'Messages', history: 'History' };

function Attached({ human, isOwn }) {
  useEffect(() => attach(human), [human]);
  useNews();
  useMailNews();
  const route = useRoute();
  const questions = useOrdered();
  const refused = useStore(refusal);
  const chosen = route.view === 'q' ? route.item : null;
  const press = (key) => () => document.querySelector(`[data-key="${key}"]`)?.click();
  const step = (by) => () => {
    const at = questions.findIndex((one) => one.question_id === chosen);
    const next = questions[at < 0 ? 0 : at + by];
    if (next) go(link('q', next.question_id));
  };
  const paused = useStore(presence).paused;
  const showShortcuts = useShortcuts([
    { keys: ['j'], title: 'Next question', run: step(1) },
    { keys: ['k'], title: 'Question before', run: step(-1) },
    { keys: ['1'], title: 'Choose the first option, 2 the second, …', run: press(1) },
    ...[2, 3, 4, 5, 6, 7, 8, 9].map((digit) => ({ keys: [String(digit)], run: press(digit) })),
    { keys: ['a'], title: 'Write the answer', run: () => document.querySelector('[data-text]')?.focus() },
    { keys: ['c'], title: 'Take the question', run: press('c') },
    { keys: ['r'], title: 'Give it back', run: press('r') },
    { keys: ['d'], title: 'Decline', run: press('d') },
    { keys: ['h'], title: 'Hand over', run: press('h') },
    { keys: ['p'], title: 'Pause, or go on', run: () => tellPresence({ paused: !paused, away: false }).catch(() => {}) },
    { keys: ['g', 'q'], title: 'Questions', run: () => go(link('')) },
    { keys: ['x'], title: 'Mark messages as read', run: press('x') },
    { keys: ['g', 'm'], title: 'Messages', run: () => go(link('messages')) },
    { keys: ['g', 'h'], title: 'History', run: () => go(link('history')) },
  ]);
  const main = useRef(null);
  const { waiting } = useStore(mail);
  const place = `${route.view}/${route.item ?? ''}`;
  const title = VIEWS[route.view] ?? 'Desk';
  useEffect(() => {
    const open = questions.length + waiting;
    document.title = `${open ? `(${count(open)}) ` : ''}${title} – Desk – mcp-broker`;
  }, [questions.length, waiting, title]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) main.current.focus({ preventScroll: true });
    isFirst.current = false;
    scrollTo(0, 0);
  }, [place]);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <header class="top"><${Brand} href=${link('')}>Desk<//><${Project} /><span class="spacer" /><${Live} state=${useStore(connection)} />
      <${ThemeSwitch} /><button type="button" class="quiet" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)"
      onClick=${showShortcuts}>?</button><${KeyOfCaller} /></header>
    <${Bar} human=${human} isOwn=${isOwn} waiting=${questions} unread=${waiting} view=${route.view} />
    ${refused && html`<div class="refusal"><div class="notice bad" role="alert"><p><strong>The broker does not let this page answer.</strong>
      ${' '}${visible(refused.message, 500)}</p>${isOwn && html`<button type="button" onClick=${() => givenName.set('')}>Use another name</button>`}
      ${me.get()?.auth_enabled && html`<button type="button" onClick=${logOut}>Log in with another key</button>`}</div></div>`}
    <div class=${`desk at-${route.view === 'overview' ? 'list' : 'one'}`}>
      <nav class="panel list" aria-label="Open questions"><header><h2>Questions</h2><span class="faint">${count(questions.length)} open</span></header>
        <${QuestionList} questions=${questions} chosen=${chosen} human=${human} /></nav>
      <main id="main" ref=${main} tabindex="-1"><${Guarded} key=${place}><${View} route=${route} human=${human} questions=${questions} /><//></main>
      <aside aria-label="People and yaps"><${People} human=${human} /><${Yaps} /></aside></div>
    <${Announcements} /><${DialogHost} />`;
}

function View({ route, human, questions }) {
  if (route.view === 'q' && route.item) return html`<${QuestionView} id=${route.item} human=${human} />`;
  if (route.view === 'messages') return html`<${Messages} route=${route} />`;
  if (route.view === 'history') return html`<${History} route=${route} />`;
  return html`<h1 class="visually-hidden">Desk</h1><div class="panel"><${Empty} title=${questions.length ? 'Choose a question.' : 'Nothing to answer.'}>
    ${questions.length ? html`<button type="button" class="primary" onClick=${() => go(link('q', questions[0].question_id))}>Open the first one</button>`
      : 'The page may stay open: questions appear by themselves.'}<//></div>`;
}

// An error in a view leaves the frame usable.
function Guarded({ children }) {
  const [error] = useErrorBoundary((cause) => console.error(cause));
  return error ? html`<div class="notice bad" role="alert"><p><strong>This view failed.</strong> ${error.message}</p>
    <button type="button" onClick=${() => location.reload()}>Load the page again</button></div>` : children;
}

function Bar({ human, isOwn, waiting, unread, view }) {
  const high = waiting.filter((one) => one.urgency === 'high').length;
  const rename = () => ask({ title: 'Who answers here?', verb: 'Change', fields: html`<${NameFields} name=${human} roles=${givenRoles.get()} />`,
    run: ({ form }) => {
      // After the dialog has said so.
      setTimeout(() => become(form));
      return `You are ${visible(form.name.trim(), 60)}.`;
    } });
  return html`<div class="bar"><span class="me">${isOwn ? html`<button type="button" class="quiet" title="Change your name" onClick=${rename}><bdi>${
      visible(human, 40)}</bdi></button>` : html`<b><bdi>${visible(human, 40)}</bdi></b>`}<${PresenceChoice} /></span><${NotifyButton} />
    <span class="spacer" /><span class="counts">${count(waiting.length)} open${high > 0 && html`, <b class="high">${count(high)} high</b>`}</span>
    <a class="button quiet" href=${link('')} aria-current=${view === 'overview' ? 'page' : undefined}>Questions</a>
    <a class="button quiet" href=${link('messages')} aria-current=${view === 'messages' ? 'page' : undefined}>Messages${unread > 0
      && html` <b class="mine">${count(unread)}</b>`}</a>
    <a class="button quiet" href=${link('history')} aria-current=${view === 'history' ? 'page' : undefined}>History</a></div>`;
}
