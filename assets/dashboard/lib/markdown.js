// The part of Markdown that agents use most, as a tree of plain values: fences, headings, lists, quotes, tables as they are
// typed, emphasis, code and links. HTML is text. The time is linear in the length of the text, and the tree is bounded.

// Parts of one text; what follows is one part as it is.
const PARTS_MAX = 4_000;
// Levels of lists that are shown.
const DEPTH_MAX = 4;

const FENCE = /^ {0,3}(`{3,}|~{3,}) *([\w+#.-]{0,40})/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const ITEM = /^( {0,20})([-*+]|\d{1,9}[.)]) +(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const TABLE = /^ {0,3}\|/;

// The blocks of a text: `{kind, spans | lines | text, …}`.
export function parseBlocks(text) {
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  const room = { parts: PARTS_MAX };
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (room.parts <= 0) {
      blocks.push({ kind: 'plain', text: lines.slice(at).join('\n') });
      break;
    }
    const [block, next] = nextBlock(lines, at, room);
    if (block) {
      room.parts -= 1;
      blocks.push(block);
    }
    at = next;
  }
  return blocks;
}

function nextBlock(lines, at, room) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence[1], fence[2]);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: 'heading', level: heading[1].length, spans: parseSpans(heading[2], room) }, at + 1];
  if (RULE.test(line)) return [{ kind: 'rule' }, at + 1];
  const item = ITEM.exec(line);
  if (item) {
    const [text, next] = gather(lines, at + 1, item[3], (one) => /^ {2,}\S/.test(one));
    const isNumbered = /\d/.test(item[2]);
    return [{ kind: 'item', depth: Math.min(DEPTH_MAX, Math.floor(item[1].length / 2)), mark: isNumbered ? item[2] : '•', spans: parseSpans(text, room) }, next];
  }
  const isRun = QUOTE.test(line) ? QUOTE : TABLE.test(line) ? TABLE : null;
  if (isRun) {
    let next = at;
    while (next < lines.length && isRun.test(lines[next])) next += 1;
    const run = lines.slice(at, next);
    return [isRun === QUOTE ? { kind: 'quote', spans: parseSpans(run.map((one) => QUOTE.exec(one)[1]).join('\n'), room) }
      : { kind: 'code', text: run.join('\n') }, next];
  }
  const [text, next] = gather(lines, at + 1, line, () => true);
  return [{ kind: 'paragraph', spans: parseSpans(text, room) }, next];
}

// A fence that is never closed ends with the text.
function fenced(lines, at, mark, language) {
  const closing = new RegExp(`^ {0,3}${mark[0]}{${mark.length},} *$`);
  let next = at + 1;
  while (next < lines.length && !closing.test(lines[next])) next += 1;
  return [{ kind: 'code', language, text: lines.slice(at + 1, next).join('\n') }, next + 1];
}

const BEGINS = [FENCE, HEADING, RULE, ITEM, QUOTE, TABLE];

// The lines that continue a block.
function gather(lines, from, first, continues) {
  const text = [first];
  let at = from;
  while (at < lines.length && lines[at].trim() && continues(lines[at]) && !BEGINS.some((one) => one.test(lines[at]))) {
    text.push(lines[at].trimStart());
    at += 1;
  }
  return [text.join('\n'), at];
}

// No alternative reads over the character by which it begins, so a text without ends costs one look at each character.
const SPANS = new RegExp([
  /`([^`\n]{1,1000})`/,
  /\*\*(?=\S)([^*\n]{1,1000})\*\*/,
  /(?<![\w*])\*([^\s*](?:[^*\n]{0,1000}[^\s*])?)\*(?![\w*])/,
  /(?<!\w)_([^\s_](?:[^_\n]{0,1000}[^\s_])?)_(?!\w)/,
  /(?<!!)\[([^[\]\n]{1,300})\]\(([^()[\]\s]{1,2000})\)/,
].map(({ source }) => source).join('|'), 'g');

// The parts of a line: `{kind: 'text' | 'code' | 'strong' | 'em' | 'link', text, spans?, address?}`.
export function parseSpans(text, room = { parts: PARTS_MAX }, isNested = false) {
  const spans = [];
  let from = 0;
  for (const found of text.matchAll(SPANS)) {
    if (room.parts <= 0) break;
    room.parts -= 2;
    const [whole, code, strong, star, line, title, address] = found;
    if (found.index > from) spans.push({ kind: 'text', text: text.slice(from, found.index) });
    const within = (inner) => (isNested ? [{ kind: 'text', text: inner }] : parseSpans(inner, room, true));
    if (code) spans.push({ kind: 'code', text: code });
    else if (title) spans.push({ kind: 'link', text: title, address });
    else if (strong) spans.push({ kind: 'strong', spans: within(strong) });
    else spans.push({ kind: 'em', spans: within(star ?? line) });
    from = found.index + whole.length;
  }
  if (from < text.length) spans.push({ kind: 'text', text: text.slice(from) });
  return spans;
}
