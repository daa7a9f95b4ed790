// A value that begins to fit a JSON Schema, for a person to fill in. Bounded, and good enough for a form: the broker checks.

const DEPTH_MAX = 5;
const MEMBERS_MAX = 30;
const REFERENCES_MAX = 50;

export function skeleton(schema) {
  let references = 0;
  const resolve = (pointer) => {
    references += 1;
    if (references > REFERENCES_MAX || !pointer.startsWith('#')) return {};
    return pointer.slice(1).split('/').filter(Boolean).reduce((at, part) => {
      const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
      return at && Object.hasOwn(at, name) ? at[name] : undefined;
    }, schema) ?? {};
  };
  const of = (one, depth) => {
    if (!one || typeof one !== 'object' || depth > DEPTH_MAX) return null;
    if (typeof one.$ref === 'string') return of(resolve(one.$ref), depth + 1);
    for (const name of ['const', 'default']) if (Object.hasOwn(one, name)) return one[name];
    if (Array.isArray(one.examples) && one.examples.length) return one.examples[0];
    if (Array.isArray(one.enum) && one.enum.length) return one.enum[0];
    const choice = one.oneOf ?? one.anyOf;
    if (Array.isArray(choice) && !one.properties) return of(choice[0], depth + 1);
    if (Array.isArray(one.allOf) && !one.properties) {
      const parts = one.allOf.slice(0, MEMBERS_MAX).map((part) => of(part, depth + 1));
      return parts.every((part) => part && typeof part === 'object' && !Array.isArray(part)) ? Object.assign({}, ...parts) : parts[0] ?? null;
    }
    const type = Array.isArray(one.type) ? one.type.find((name) => name !== 'null') ?? 'null' : one.type ?? (one.properties ? 'object' : one.items ? 'array' : null);
    switch (type) {
      case 'object': return members(one, depth);
      case 'array': return one.minItems > 0 ? [of(one.items ?? {}, depth + 1)] : [];
      case 'string': return '';
      case 'integer': case 'number': return typeof one.minimum === 'number' ? Math.ceil(one.minimum) : 0;
      case 'boolean': return false;
      case 'null': return null;
      default: return depth ? null : {};
    }
  };
  // What is required; where nothing is, what is known.
  const members = ({ properties, required }, depth) => {
    const known = properties && typeof properties === 'object' ? properties : {};
    const wanted = Array.isArray(required) && required.length ? required.filter((name) => typeof name === 'string') : Object.keys(known);
    return Object.fromEntries(wanted.slice(0, MEMBERS_MAX).map((name) => [name, of(Object.hasOwn(known, name) ? known[name] : {}, depth + 1)]));
  };
  return of(schema, 0);
}
