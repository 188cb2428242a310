// What calls are chosen by: a text, their outcomes, and fields.
import {badge, button, element} from './dom.js';
import {outcomes} from './outcome.js';
import {fields, isFiltered, noFilter, valuesOf} from './rows.js';
import {shorten} from './text.js';

export class Filters {
  #filter; #changed; #search = element('input'); #selects = {}; #chips = {}; #grouped; #clear;

  // filter is changed in place; changed is called after that.
  constructor(filter, changed) {
    this.#filter = filter;
    this.#changed = changed;
    this.#search.type = 'search';
    this.#search.id = 'search';
    this.#search.placeholder = 'Search names, commands, labels…';
    this.#search.setAttribute('aria-label', 'Search calls');
    this.#search.value = filter.text;
    this.#search.maxLength = 200;
    this.#search.className = 'grow';
    this.#search.addEventListener('input', () => this.#set({text: this.#search.value}));
    for (const field of Object.keys(fields)) this.#selects[field] = this.#select(field);
    this.#grouped = button('Group sessions', () => this.#set({grouped: !filter.grouped}));
    this.#clear = button('Clear filters', () => this.#set({...noFilter(), sort: filter.sort, descending: filter.descending, grouped: filter.grouped}));
    const chips = element('div', 'chips', ...Object.keys(outcomes).map((outcome) => this.#chip(outcome)));
    chips.setAttribute('role', 'group');
    chips.setAttribute('aria-label', 'Outcomes');
    this.element = element('div', 'filters', chips, element('div', 'toolbar', this.#search, ...Object.values(this.#selects), this.#grouped, this.#clear));
  }

  // show offers the values that calls have, and counts those of each outcome.
  show(entries, counts) {
    for (const [field, select] of Object.entries(this.#selects)) this.#offer(field, select, valuesOf(entries, field));
    for (const [outcome, {chip, count}] of Object.entries(this.#chips)) {
      const text = String(counts[outcome]);
      if (count.textContent !== text) count.textContent = text;
      chip.setAttribute('aria-pressed', this.#filter.outcomes.has(outcome));
      chip.hidden = counts[outcome] === 0 && !this.#filter.outcomes.has(outcome);
    }
    this.#grouped.setAttribute('aria-pressed', this.#filter.grouped);
    this.#clear.hidden = !isFiltered(this.#filter);
    if (this.#search.value !== this.#filter.text) this.#search.value = this.#filter.text;
  }

  #set(values) {
    Object.assign(this.#filter, values);
    this.#changed();
  }

  #chip(outcome) {
    const {word, class: of} = outcomes[outcome];
    const count = element('span', 'number');
    const chip = button('', () => {
      const chosen = new Set(this.#filter.outcomes);
      if (!chosen.delete(outcome)) chosen.add(outcome);
      this.#set({outcomes: chosen});
    });
    chip.className = 'chip';
    chip.dataset.outcome = outcome;
    chip.append(badge(of, word), count);
    this.#chips[outcome] = {chip, count};
    return chip;
  }

  #select(field) {
    const select = element('select');
    select.id = `by-${field}`;
    select.setAttribute('aria-label', fields[field].title);
    select.addEventListener('change', () => this.#set({[field]: select.value}));
    return select;
  }

  // #offer fills a choice, unless somebody is choosing.
  #offer(field, select, values) {
    const chosen = this.#filter[field];
    if (chosen && !values.some(([value]) => value === chosen)) values = [[chosen, 0], ...values];
    const state = JSON.stringify([values, chosen]);
    if (select.dataset.state === state || (document.activeElement === select && select.value === chosen)) return;
    select.dataset.state = state;
    const option = (value, text) => Object.assign(element('option', '', text), {value});
    select.replaceChildren(option('', `${fields[field].title}: all`), ...values.map(([value, count]) => option(value, `${shorten(value, 60)} (${count})`)));
    select.value = chosen;
    select.hidden = values.length < 2 && !chosen;
  }
}
