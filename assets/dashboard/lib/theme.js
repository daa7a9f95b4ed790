// Light or dark: as the system says, or as the viewer chose.
import { createSetting } from './store.js';

export const theme = createSetting('mcp-broker-theme', 'system');

const apply = (name) => {
  if (name === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
};
apply(theme.get());
theme.subscribe(apply);

const dark = matchMedia('(prefers-color-scheme: dark)');
export const onThemeChange = (listener) => {
  const stop = theme.subscribe(listener);
  dark.addEventListener('change', listener);
  return () => {
    stop();
    dark.removeEventListener('change', listener);
  };
};

// A custom property of the stylesheet as a colour that a canvas understands.
export function colour(name) {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  probe.hidden = true;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
