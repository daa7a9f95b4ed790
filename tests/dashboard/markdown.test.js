// What is read of Markdown, without a browser: blocks, spans, and bounds.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseBlocks, parseSpans } from '../../assets/dashboard/lib/markdown.js';

const flat = (spans) => spans.map(({ kind, text, spans: inner, address }) => [kind, text ?? flat(inner), ...(address ? [address] : [])]);

test('fences, lists, headings, quotes and tables are blocks of their own', () => {
  const blocks = parseBlocks('# T\ntext\n\n- one\n  more\n- two\n  1. deep\n\n```js\na *b* <i>\n\nc\n```\n> q\n> r\n| a | b |\n---\n~~~\nopen');
  assert.deepEqual(blocks.map(({ kind }) => kind), ['heading', 'paragraph', 'item', 'item', 'item', 'code', 'quote', 'code', 'rule', 'code']);
  assert.deepEqual(blocks.filter(({ kind }) => kind === 'item').map(({ depth, mark, spans }) => [depth, mark, spans[0].text]),
    [[0, '•', 'one\nmore'], [0, '•', 'two'], [1, '1.', 'deep']]);
  assert.deepEqual([blocks[5].language, blocks[5].text], ['js', 'a *b* <i>\n\nc']);
  assert.equal(blocks.at(-1).text, 'open', 'a fence that is never closed ends with the text');
});

test('emphasis, code and links are spans, and what only looks like them is text', () => {
  assert.deepEqual(flat(parseSpans('a **b `c`** *d* _e_ [f](https://g.h)')), [['text', 'a '], ['strong', [['text', 'b '], ['code', 'c']]], ['text', ' '],
    ['em', [['text', 'd']]], ['text', ' '], ['em', [['text', 'e']]], ['text', ' '], ['link', 'f', 'https://g.h']]);
  for (const text of ['snake_case_name', '2 * 3 * 4', 'a*b*c', '** no **', '`open', '[a] (b)', '![a](https://b.c)', '<b>x</b>', '&lt;']) {
    assert.deepEqual(flat(parseSpans(text)), [['text', text]], text);
  }
});

test('no text makes more parts than the bound, and all of it is shown', () => {
  const texts = ['**a', '*a* ', '`a` ', '[', '[a](', '_', '*', '- a\n', '```\n', '> ', 'a\n', '# a\n', '| a\n'].map((one) => one.repeat(65_536 / one.length));
  const countOf = (spans) => spans.reduce((sum, one) => sum + 1 + (one.spans ? countOf(one.spans) : 0), 0);
  for (const text of texts) {
    const blocks = parseBlocks(text);
    const parts = blocks.reduce((sum, one) => sum + 1 + (one.spans ? countOf(one.spans) : 0), 0);
    assert.ok(parts <= 8_100, `${parts} parts of ${text.slice(0, 8)}`);
  }
  const last = parseBlocks(`${'- a\n'.repeat(10_000)}the end`).at(-1);
  assert.ok(last.kind === 'plain' && last.text.endsWith('the end'));
});
