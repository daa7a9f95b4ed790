// The one place that names the libraries of the page: views and components import from here.
import htm from '../vendor/htm.js';
import { h } from '../vendor/preact.js';

export { createContext, render } from '../vendor/preact.js';
export { useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact-hooks.js';
export const html = htm.bind(h);
