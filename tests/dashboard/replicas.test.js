// Three replicas that share a Redis: the page says which one does not answer, and goes on.
import { after, before, test } from 'node:test';
import { Agent, NOTE } from './agent.js';
import { Cluster } from './broker.js';
import { Browser } from './browser.js';

let cluster, browser;
before(async () => {
  [cluster, browser] = await Promise.all([Cluster.start(), Browser.start()]);
});
after(() => Promise.all([browser?.stop(), cluster?.stop()]));

test('the page at one replica shows sessions of another, and tells that a replica has died', { timeout: 90_000 }, async () => {
  const [first, second, third] = cluster.replicas;
  await fetch(`${first.url}/api/v1/protocols`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(NOTE) });
  const window = await browser.open(first.url);
  await window.sees('Replicas: 3');
  await window.go('sessions');
  await window.live();
  const agent = await Agent.connect(second, 'far-away');
  await window.sees('far-away', 'main table');
  // A process that is stopped keeps its connections, as one that hangs does.
  process.kill(third.pid, 'SIGSTOP');
  await window.go('overview');
  await window.sees('Incomplete.');
  await window.screenshot('partial-1440-light');
  process.kill(third.pid, 'SIGCONT');
  process.kill(third.pid, 'SIGKILL');
  await window.sees('Replicas: 2');
  await window.go('sessions');
  const another = await Agent.connect(second, 'goes-on');
  await window.sees('goes-on', 'main table');
  await Promise.all([agent.close(), another.close()]);
  await window.close([/status of 503/]);
});

test('a message to a person comes to the desk at another replica', async () => {
  const [one, two] = cluster.replicas;
  const agent = await Agent.connect({ port: one.port }, 'shop');
  const window = await browser.openDesk(two.url, 'mara');
  await agent.call('send_message', { recipient_id: 'mara', protocol_name: 'text', protocol_version: '1.0.0', payload: { text: 'The build is done.' } });
  await window.sees('1', '.bar .mine');
  await window.go('messages');
  await window.sees('The build is done.', 'main');
  await agent.close();
  await window.close();
});
