import assert from 'node:assert/strict';
import test from 'node:test';
import {asked, awaits, comparable, digestOf, inShort, indented, isAlike, isCounted, requestKey, selectorOf, strict, strictLine} from '../static/summary.js';

test('every character that nobody sees is visible', () => {
  assert.equal(strict('a\r\nb\x1b[2J\u202ec\u200dd\ufe0fe\u00a0f\u3164 g'), 'a^M\nb^[[2J<U+202E>c<U+200D>d<U+FE0F>e<U+00A0>f<U+3164> g');
  assert.equal(strictLine('a\nb\u200d'), 'a b<U+200D>');
});

test('JSON is indented with its values as they are written', () => {
  const json = '{"a":[1,9007199254740993,1e400],"b":{},"c":[],"d":{"e":"x{}[],:\\" \\\\"},"f":null}';
  assert.equal(indented(json), '{\n  "a": [\n    1,\n    9007199254740993,\n    1e400\n  ],\n  "b": {},\n  "c": [],\n  "d": {\n    "e": "x{}[],:\\" \\\\"\n  },\n  "f": null\n}');
  assert.throws(() => indented('{"a":'));
});

test('what each call has another of is not compared', () => {
  const summary = (name, at) => `{"asked":{"call":"kept","x":[1]},"call":{"name":"${name}","uid":"${name}"},"policy":{"generation":1},"requestedAt":"${at}"}`;
  assert.equal(comparable(summary('a', 1)), comparable(summary('b', 2)));
  assert.match(comparable(summary('a', 1)), /"call": "kept"/);
  assert.match(comparable(summary('a', 1)), /"generation": 1/);
  assert.doesNotMatch(comparable(summary('a', 1)), /uid|requestedAt/);
});

test('a summary has the digest that the operator gives it', async () => {
  assert.equal(await digestOf('{"a":"é"}'), 'sha256:b3a092a6af48807fa9482b2ee140105575daa26d5b24b3c0e60a7e2dee6683b1');
  assert.equal(await digestOf(''), 'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
});

test('another summary with the same digest is another request', () => {
  const key = (summary) => requestKey({metadata: {uid: 'a'}, status: {approval: {digest: 'sha256:1', summary}}});
  assert.equal(key('a'), key('a'));
  assert.notEqual(key('a'), key('b'));
  assert.doesNotThrow(() => requestKey({metadata: {uid: 'a'}}));
});

test('a script stands apart from what else was asked for, and nothing is left out', () => {
  const spec = {shell: {command: 'a\nb'}, requestedBy: {username: 'jane'}, env: [{name: 'A', value: 'b'}]};
  assert.deepEqual(asked(spec), {text: 'a\nb', rest: JSON.stringify({shell: {}, env: [{name: 'A', value: 'b'}]}, null, 2)});
  assert.deepEqual(asked({shell: {command: 'a'}, requestedBy: {username: 'jane'}}), {text: 'a', rest: ''});
  assert.equal(asked({shell: {command: 'a', other: 1}}).rest, JSON.stringify({shell: {other: 1}}, null, 2));
  assert.equal(asked({code: {language: 'Python', source: 'x'}}).text, 'x');
  assert.equal(asked({tool: {name: 'a', arguments: {b: 1}}}).rest, JSON.stringify({tool: {name: 'a', arguments: {b: 1}}}, null, 2));
});

test('an action in short is one line', () => {
  assert.equal(inShort({structured: {binary: 'git', args: ['push', 'a\nb']}}), 'git push a b');
  assert.equal(inShort({shell: {command: 'x'.repeat(300)}}).length, 201);
  assert.equal(inShort({file: {operation: 'Read', path: 'a'}}), '{"file":{"operation":"Read","path":"a"}}');
});

test('a call waits while its condition says that nobody decided', () => {
  const call = (status, phase = 'Pending') => ({status: {phase, approval: {}, conditions: [{type: 'Approved', status}]}});
  assert.equal(awaits(call('Unknown')), true);
  assert.equal(awaits(call('True')), false);
  assert.equal(awaits(call('Unknown', 'Denied')), false);
  assert.equal(awaits({status: {phase: 'Pending'}}), false);
  assert.equal(awaits({}), false);
});

test('calls are alike in one session, or of one requester without a session', () => {
  const call = (username, session) => ({spec: {requestedBy: {username}, ...(session ? {sessionRef: {name: session}} : {})}});
  assert.equal(isAlike(call('a', 's'), call('b', 's')), true);
  assert.equal(isAlike(call('a', 's'), call('a', 't')), false);
  assert.equal(isAlike(call('a', 's'), call('a')), false);
  assert.equal(isAlike(call('a'), call('a')), true);
  assert.equal(isAlike(call('a'), call('b')), false);
  assert.equal(isCounted({status: {approval: {approvedBy: [{uid: 'x'}]}}}, 'x'), true);
  assert.equal(isCounted({status: {}}, 'x'), false);
});

test('a selector has the value as it is', () => assert.equal(selectorOf('a.b', 'x,y=\\z'), 'a.b=x\\,y\\=\\\\z'));
