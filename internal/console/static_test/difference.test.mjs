import assert from 'node:assert/strict';
import test from 'node:test';
import {difference} from '../static/difference.js';

const shown = (lines) => lines.map(({mark, text}) => mark + text).join('\n');

test('equal texts have no difference', () => assert.deepEqual(difference('a\nb', 'a\nb'), []));

test('the lines that differ stand between a few that do not', () => {
  const before = 'a\nb\nc\nd\ne\nf\ng\nh\ni\nj', after = 'a\nb\nc\nD\ne\nf\ng\nh\ni\nj\nk';
  assert.equal(shown(difference(before, after)), ' b\n c\n-d\n+D\n e\n f\n…\n i\n j\n+k');
});

test('lines that moved are removed and added once', () => {
  assert.equal(shown(difference('a\nb\nc', 'b\nc\na', 0)), '-a\n…\n+a');
});

test('what is removed and added rebuilds both texts, whatever they are', () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 200; round++) {
    const text = () => Array.from({length: random(12)}, () => 'abc'[random(3)]).join('\n');
    const before = text(), after = text();
    const lines = difference(before, after, 1000);
    if (before === after) { assert.deepEqual(lines, []); continue; }
    assert.equal(lines.filter(({mark}) => mark !== '+').map((line) => line.text).join('\n'), before);
    assert.equal(lines.filter(({mark}) => mark !== '-').map((line) => line.text).join('\n'), after);
  }
});

test('texts with very many lines are compared without much work', () => {
  const many = (mark) => Array.from({length: 20000}, (_, at) => mark + at).join('\n');
  const lines = difference(`same\n${many('a')}`, `same\n${many('b')}`);
  assert.equal(lines.length, 2001);
  assert.equal(lines[0].text, 'same');
  assert.deepEqual(lines.at(-1), {mark: '…', text: '38001 more lines differ'});
});
