import assert from 'node:assert/strict';
import {test} from 'node:test';
import {Finder, maxFound} from '../static/find.js';
import {before, burst, cut, extent, pageBytes, Pending, skipped, tail} from '../static/pages.js';

const bytes = (text) => new TextEncoder().encode(text);

test('a part from the middle begins with a line, or at least with a character', () => {
  assert.equal(skipped(bytes('rest\nline'), 0), 0);
  assert.equal(skipped(bytes('rest\nline'), 10), 5);
  assert.equal(skipped(bytes('no line'), 10), 0);
  assert.equal(skipped(bytes('€€').subarray(1), 10), 2);
  assert.equal(skipped(bytes('line\n'), 10), 0);
});

test('a page ends with a line, or soon', () => {
  assert.equal(cut(bytes('abc'), 0), 3);
  const part = bytes(`${'x'.repeat(100)}\n${'y'.repeat(100)}`);
  assert.equal(cut(part, pageBytes - 50), 101);
  assert.equal(cut(new Uint8Array(3 * pageBytes).fill(120), 0), pageBytes + (8 << 10));
});

test('the page before another leaves out what was not kept', () => {
  assert.equal(before(0, null), null);
  assert.deepEqual(before(100, null), {start: 0, end: 100});
  assert.deepEqual(before(10 * pageBytes, null), {start: 9 * pageBytes, end: 10 * pageBytes});
  assert.deepEqual(before(1000, [200, 999]), {start: 0, end: 200});
  assert.deepEqual(before(1100, [200, 999]), {start: 1000, end: 1100});
  assert.equal(before(1000, [0, 999]), null);
});

test('a view begins at the end, behind what was not kept', () => {
  assert.equal(tail(1000, null), 0);
  assert.equal(tail(64 << 20, null), (64 << 20) - 4 * pageBytes);
  assert.equal(tail(64 << 20, [8 << 20, (64 << 20) - 100]), (64 << 20) - 99);
});

test('a view says which part of a stream it has', () => {
  assert.equal(extent(0, true, null), 'Nothing was written.');
  assert.equal(extent(0, false, null), 'Nothing yet, live.');
  assert.equal(extent(2048, true, null), '2.0 KiB, complete.');
  assert.equal(extent(64 << 20, false, [10, 20]), '64 MiB, bytes 10 to 20 are shown, live.');
});

test('of a flood the last is kept', () => {
  const pending = new Pending();
  for (let i = 0; i < 100; i++) pending.add(new Uint8Array(pageBytes).fill(i));
  assert.equal(pending.length, burst);
  const first = pending.take();
  assert.equal(first.skipped, true);
  assert.deepEqual([first.bytes.length, first.bytes[0], pending.length], [pageBytes, 96, burst - pageBytes]);
  while (pending.length > pageBytes) assert.equal(pending.take().skipped, false);
  assert.equal(pending.take().bytes.at(-1), 99);
  assert.equal(pending.length, 0);
});

function search(query, ...parts) {
  const finder = new Finder(query);
  for (const part of parts) finder.feed(typeof part === 'string' ? bytes(part) : part);
  finder.end();
  return finder.found;
}

test('a text is found in its line', () => {
  assert.deepEqual(search('err', 'one\nERR err\ntwo err'), [{offset: 4, nth: 0}, {offset: 4, nth: 1}, {offset: 12, nth: 0}]);
  assert.deepEqual(search('error', 'a\n\x1b[31mer\x1b[1mror\x1b[0m\n'), [{offset: 2, nth: 0}]);
  assert.deepEqual(search('ror', 'er', 'ror'), [{offset: 0, nth: 0}]);
  assert.deepEqual(search('€', '€€\n€'), [{offset: 0, nth: 0}, {offset: 0, nth: 1}, {offset: 7, nth: 0}]);
  assert.deepEqual(search('', 'a'), []);
  assert.deepEqual(search('.*', 'a'), []);
});

test('lines keep their offsets across large parts', () => {
  const line = 'some text that is a line\n';
  const part = line.repeat(20_000);
  const found = search('needle', part, `${line}a needle\n`, part, 'needle');
  assert.deepEqual(found, [{offset: part.length + line.length, nth: 0}, {offset: 2 * part.length + line.length + 9, nth: 0}]);
});

test('what is found is bounded', () => { assert.equal(search('a', 'a'.repeat(5000)).length, maxFound); });
