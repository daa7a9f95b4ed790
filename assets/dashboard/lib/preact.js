// The one place that names the libraries of the page: views and components import from here.
import htm from '../vendor/htm.js';
import { h } from '../vendor/preact.js';

export { render } from '../vendor/preact.js';
export { useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact-hooks.js';
export const html = htm.bind(h);
