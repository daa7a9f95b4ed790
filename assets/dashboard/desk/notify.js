// Notifications of the browser. They are asked for after a click, and say who asks and how urgently, not what.
import { html, useEffect, useState } from '../lib/preact.js';
import { visible } from '../lib/format.js';
import { go, link } from '../lib/router.js';
import { createSetting, useStore } from '../lib/store.js';
import { announce } from '../ui/announce.js';
import { onNews } from './session.js';

const wish = createSetting('mcp-broker-desk-notify', 'off');
const isKnown = () => 'Notification' in globalThis && isSecureContext;
const isOn = () => isKnown() && wish.get() === 'on' && Notification.permission === 'granted';

const REASONS = { offered: 'It is offered to you.', addressed: 'It is addressed to you.', high: 'It is for the desk.' };

// Tells of questions that come: in the live region, and with a notification if the page is not in front.
export function useNews() {
  useEffect(() => onNews(({ question, reason }) => {
    if (!reason) return;
    const asker = visible(question.asker?.name ?? 'An agent', 60);
    announce(`${asker} asks (${question.urgency}): ${visible(question.summary ?? '', 120)}`);
    show(question.question_id, `${asker} asks (${question.urgency})`, REASONS[reason], link('q', question.question_id));
  }), []);
}

// A notification, if the person wants them and the page is not in front. A click leads to `place`.
export function show(tag, title, body, place) {
  if (!isOn() || !(document.hidden || !document.hasFocus())) return;
  let shown;
  try {
    shown = new Notification(title, { body, tag, icon: new URL('../icon.svg', import.meta.url).href });
  } catch {
    // Some browsers of phones let service workers alone notify.
    return;
  }
  shown.onclick = () => {
    focus();
    go(place);
    shown.close();
  };
}

export function NotifyButton() {
  const wanted = useStore(wish);
  const [, draw] = useState(0);
  if (!isKnown()) return null;
  const turn = async () => {
    if (isOn()) {
      wish.set('off');
      return announce('Notifications are off.');
    }
    wish.set('on');
    const answer = await Notification.requestPermission();
    draw((n) => n + 1);
    announce(answer === 'granted' ? 'Notifications are on: for questions that come while this page is not in front.'
      : 'The browser does not allow notifications for this page.');
  };
  const now = wanted === 'on' && isOn();
  return html`<button type="button" class=${now ? '' : 'quiet'} aria-pressed=${String(now)} onClick=${turn}
    title="A notification for questions that come while this page is not in front">Notify me</button>`;
}
