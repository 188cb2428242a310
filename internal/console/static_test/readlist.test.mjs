import assert from 'node:assert/strict';
import test from 'node:test';
import {pages, rows} from '../static/readlist.js';

// serve answers with as many objects as are asked for; pages of more than most break off.
function serve(context, total, most) {
  const limits = [];
  context.mock.method(globalThis, 'fetch', async (url) => {
    const parameters = new URL(url, 'http://console').searchParams, limit = Number(parameters.get('limit')), from = Number(parameters.get('continue') ?? 0);
    limits.push(limit);
    const to = Math.min(from + limit, total);
    const answer = JSON.stringify({items: Array.from({length: to - from}, (_, at) => from + at), metadata: to < total ? {continue: String(to)} : {}});
    return new Response(limit > most ? answer.slice(0, -5) : answer);
  });
  return limits;
}

async function read(most) {
  const items = [];
  let complete = false;
  for await (const {answer, isLast} of pages('/list', {limit: 500}, most)) items.push(...answer.items), complete = isLast;
  return {items: items.length, complete};
}

test('a list that is too large for a page is read in smaller ones', async (context) => {
  const limits = serve(context, 300, 40);
  assert.deepEqual(await read(2000), {items: 300, complete: true});
  assert.deepEqual(limits, [500, 40, 40, 40, 40, 40, 40, 40, 40]);
});

test('no more than so many are read', async (context) => {
  serve(context, 3000, 500);
  assert.deepEqual(await read(2000), {items: 2000, complete: false});
});

test('an object that is too large ends it', async (context) => {
  const limits = serve(context, 300, 10);
  await assert.rejects(read(2000), /broke off/);
  assert.deepEqual(limits, [500, 40]);
});

test('rows keep of their metadata what is needed', () => {
  const answer = {columnDefinitions: [{name: 'Phase'}], rows: [{cells: ['Denied'], object: {metadata: {name: 'a', annotations: {big: 'x'}}}}, {cells: ['Failed']}]};
  assert.deepEqual(rows(answer).map(({Phase, metadata}) => [Phase, metadata.name, metadata.annotations]), [['Denied', 'a', undefined], ['Failed', undefined, undefined]]);
});
