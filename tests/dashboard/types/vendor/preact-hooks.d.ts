// What the pages use of the hooks of Preact. States are not typed: what they hold comes from the broker by `useResource`.
export function useState(initial?: any): [any, (next: any) => void];
export function useRef(initial: any): { current: any };
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useEffect(run: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(run: () => void | (() => void), inputs?: unknown[]): void;
export function useErrorBoundary(onError?: (error: any) => void): [any, () => void];
