// What the dialog that sends proposes as a payload.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { skeleton } from '../../assets/dashboard/lib/skeleton.js';

test('a skeleton has what is required, with values of the right types', () => {
  const schema = { type: 'object', required: ['title', 'count', 'who', 'kind', 'tags', 'at'], properties: { title: { type: 'string' },
    count: { type: 'integer', minimum: 3 }, kind: { enum: ['a', 'b'] }, who: { $ref: '#/$defs/who' }, optional: { type: 'string' },
    tags: { type: 'array', items: { type: 'string' }, minItems: 1 }, at: { type: ['null', 'boolean'] } },
  $defs: { who: { type: 'object', properties: { name: { type: 'string', default: 'mara' } } } } };
  assert.deepEqual(skeleton(schema), { title: '', count: 3, who: { name: 'mara' }, kind: 'a', tags: [''], at: false });
  assert.deepEqual([skeleton({}), skeleton(true), skeleton({ oneOf: [{ type: 'string' }] })], [{}, null, '']);
});

test('a schema that refers to itself has a skeleton too', () => {
  const tree = { $ref: '#/$defs/node', $defs: { node: { type: 'object', required: ['next', 'other'], properties: { next: { $ref: '#/$defs/node' },
    other: { $ref: '#/$defs/node' } } } } };
  assert.ok(JSON.stringify(skeleton(tree)).length < 2_000);
  assert.ok(JSON.stringify(skeleton({ $ref: '#' })).length < 100);
});
