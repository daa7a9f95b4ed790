// The names of the sessions of the project, for lists in which the broker has ids alone.
import { useMemo } from '../lib/preact.js';
import { get } from '../lib/api.js';
import { useResource } from '../lib/resource.js';

// Sessions beyond the first page keep their ids.
const SESSIONS_MAX = 1_000;

export function useNames() {
  const { data } = useResource('names', (signal) => get('sessions', { status: 'all', limit: SESSIONS_MAX }, signal), { pollMs: 30_000 });
  return useMemo(() => new Map((data?.sessions ?? []).map((one) => [one.session_id, one.name])), [data]);
}
