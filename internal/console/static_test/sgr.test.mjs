import assert from 'node:assert/strict';
import {test} from 'node:test';
import {nearest, ofTable, plain, Sgr} from '../static/sgr.js';

const esc = '\x1b';

// read returns what is shown in the end: a span with `again` clears the line so far.
function read(...parts) {
  const reader = new Sgr(), all = [];
  for (const {text, classes, again} of [...parts.flatMap((part) => reader.feed(part)), ...reader.end()]) {
    if (!again) { all.push([text, classes]); continue; }
    while (all.length > 0 && !all.at(-1)[0].includes('\n')) all.pop();
    if (all.length > 0) all.at(-1)[0] = all.at(-1)[0].replace(/[^\n]*$/, '');
  }
  return all;
}

test('colours and styles are names', () => {
  for (const [text, want] of [
    ['plain', [['plain', '']]],
    [`${esc}[31mred${esc}[0m.`, [['red', 't-fg1'], ['.', '']]],
    [`${esc}[1;4;92mok${esc}[22;24;39m.`, [['ok', 't-bold t-underline t-fg10'], ['.', '']]],
    [`${esc}[mx${esc}[3;9mslanted`, [['x', ''], ['slanted', 't-italic t-strike']]],
    [`${esc}[38;5;196mred${esc}[38;2;0;255;0mgreen`, [['red', 't-fg9'], ['green', 't-fg10']]],
    [`${esc}[38:2::255:0:0mred${esc}[38:5:2mgreen`, [['red', 't-fg9'], ['green', 't-fg2']]],
    [`${esc}[2mdim${esc}[31mred`, [['dim', 't-dim'], ['red', 't-fg1']]],
    [`${esc}[7minverse${esc}[31mred`, [['inverse', 't-bginverse'], ['red', 't-bg1']]],
  ]) assert.deepEqual(read(text), want, JSON.stringify(text));
});

test('no colour hides text', () => {
  assert.deepEqual(read(`${esc}[31;41mx`), [['x', 't-bg1']]);
  assert.deepEqual(read(`${esc}[30;40;8mx`), [['x', 't-bg0']]);
});

test('everything else is left out, or visible', () => {
  for (const [text, want] of [
    [`a${esc}[2Jb${esc}[10;10Hc${esc}[?25ld`, 'abcd'],
    [`a${esc}]0;title\x07b${esc}]8;;https://evil.test${esc}\\link${esc}]8;;${esc}\\`, 'ablink'],
    [`a${esc}Pq#0;2;0;0;0${esc}\\b${esc}_x${esc}\\c${esc}^y${esc}\\`, 'abc'],
    [`a${esc}cb${esc}(Bc${esc}=d`, 'abcd'],
    ['a\x07b\x08c\x00d\x7f', 'a^Gb^Hc^@d^?'],
    ['a\r\nb\r\r\nc\r', 'a\nb\nc'],
    ['\u202egnp\u202c\u009b31m', '<U+202E>gnp<U+202C><U+009B>31m'],
    [`a${esc}`, 'a^['], [`a${esc}[31`, 'a^[[31'], [`a${esc}]0;never ends`, 'a^[]0;never ends'],
  ]) assert.equal(plain(text), want, JSON.stringify(text));
});

test('a line that is drawn again has what stood there last', () => {
  for (const [text, want] of [
    ['begin\n 10%\r 20%\r100%\nend', 'begin\n100%\nend'],
    [`\r 1 of 2${esc}[K\r${esc}[32m2 of 2${esc}[0m\r\n`, '2 of 2\n'],
    [`long line\r${esc}[K`, 'long line'],
  ]) {
    assert.equal(plain(text), want, JSON.stringify(text));
    assert.equal(read(...text).map(([shown]) => shown).join(''), want, JSON.stringify(text));
  }
});

test('a sequence that never ends swallows nothing', () => {
  assert.equal(plain(`${esc}]0;x\nnext line`), '0;x\nnext line');
  const long = 'y'.repeat(5000);
  assert.equal(plain(`${esc}]0;${long}\x07`), `0;${long}^G`);
  assert.equal(plain(`${esc}[${'1;'.repeat(200)}mz`).endsWith('mz'), true);
});

test('malformed parameters have no effect', () => {
  for (const parameters of ['38', '38;5', '38;5;256', '38;2;1;2', '38;2;999;0;0', '48;9', '38:2', '38:5:', '>4;1', '?1', '5x', '999999999999', ';;;;', '1e3', '38;5;-1']) {
    for (const [, classes] of read(`${esc}[${parameters}mx`)) assert.match(classes, /^(?:t-(?:bold|underline|fg0))?$/, parameters);
  }
});

test('parts may be cut anywhere', () => {
  const text = `a${esc}[1;31mb${esc}]0;t\x07c${esc}[0m\r\nd${esc}[38;5;4me\rf`;
  const whole = read(text);
  const merged = (spans) => spans.reduce((all, [t, c]) => { if (all.at(-1)?.[1] === c) all.at(-1)[0] += t; else all.push([t, c]); return all; }, []);
  for (let i = 0; i <= text.length; i++) assert.deepEqual(merged(read(text.slice(0, i), text.slice(i))), merged(whole), `cut at ${i}`);
  assert.deepEqual(merged(read(...text)), merged(whole));
});

test('whatever comes, classes are of a fixed set and no control character is left', () => {
  let seed = 7;
  const random = (n) => { seed = (seed * 1103515245 + 12345) & 0x7fffffff; return seed % n; };
  const pieces = [esc, '[', ']', 'm', ';', ':', '38', '48', '5', '2', '255', '31', '\x07', '\\', '\n', '\r', 'text', '<b onclick=x>', '" t-evil', '\u202e', '\x9b', 'P', '?', ' '];
  for (let round = 0; round < 3000; round++) {
    const reader = new Sgr(), spans = [];
    for (let part = 0; part < 4; part++) spans.push(...reader.feed(Array.from({length: random(20)}, () => pieces[random(pieces.length)]).join('')));
    for (const {text, classes} of [...spans, ...reader.end()]) {
      assert.match(classes, /^(?:t-(?:bold|italic|underline|strike|dim|bginverse|fg\d{1,2}|bg\d{1,2})(?: |$))*$/);
      assert.doesNotMatch(text, /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]/);
    }
  }
});

test('a hostile mebibyte is read in time that grows with its length', () => {
  for (const unit of ['\ra', `a\n\ra`, `${esc}]`, `${esc}[1`, `${esc}[31ma${esc}[32mb`, esc, `${esc}]${'a'.repeat(4000)}`]) {
    const text = unit.repeat(Math.ceil((1 << 20) / unit.length));
    assert.ok(plain(text).length <= 2 * text.length);
  }
});

test('colours are mapped to the nearest of sixteen', () => {
  assert.equal(nearest([250, 10, 10]), 9);
  assert.equal(ofTable(21), nearest([0, 0, 255]));
  assert.equal(ofTable(231), 15);
  assert.equal(ofTable(232), 0);
  for (let n = 0; n < 256; n++) assert.ok(ofTable(n) >= 0 && ofTable(n) < 16);
});
