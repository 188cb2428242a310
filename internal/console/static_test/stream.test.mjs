import assert from 'node:assert/strict';
import test from 'node:test';
import {setToken} from '../static/api.js';
import {Stream} from '../static/stream.js';

test('a stream of which fewer bytes come than it has isn\'t taken for whole', async (context) => {
  setToken('a-token');
  const parts = ['01234', '567', ''];
  context.mock.method(globalThis, 'fetch', async () => new Response(parts.shift()));
  const taken = [];
  const stream = new Stream({stream: 'stdout', namespace: 'agents', name: 'c', uid: 'u'});
  const range = stream.range(0, 10, (chunk, at) => taken.push([at, new TextDecoder().decode(chunk)]), undefined);
  await assert.rejects(range, {name: 'Error', code: 502, message: 'The answer ends before the stream does.'});
  assert.deepEqual(taken, [[0, '01234'], [5, '567']]);
});
