// Package figures is what the benchmark's commands share and what knows nothing of a cluster: their options, and the
// report of a run with its percentiles, tables and counts of an audit log and of metrics. It measures nothing.
package figures

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Options are those that every command has.
type Options struct {
	// JSON is the file for all figures, From that of an earlier run to print.
	JSON     string
	From     string
	Markdown bool
	// Only are the parts to run.
	Only []string
}

// AddFlags adds the flags, with the file that is written by default and the names of all parts.
func (o *Options) AddFlags(fs *flag.FlagSet, file string, parts ...string) {
	o.Only = parts
	fs.StringVar(&o.JSON, "json", file, "file for all figures; empty for none")
	fs.StringVar(&o.From, "from", "", "measure nothing: print the tables of an earlier run from its JSON file")
	fs.BoolVar(&o.Markdown, "markdown", false, "print the tables as Markdown")
	Add(fs, &o.Only, "only", List(OneOf(parts)), "`parts` to run, commas between")
}

// Has says whether a part is to run.
func (o *Options) Has(part string) bool { return slices.Contains(o.Only, part) }

// Part is one of a command's parts.
type Part struct {
	Name    string
	Measure func(context.Context) error
}

// Measure runs the parts that were asked for, in their own order.
func (o *Options) Measure(ctx context.Context, parts ...Part) error {
	for _, part := range parts {
		if !o.Has(part.Name) {
			continue
		}
		if err := part.Measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return nil
}

// value is a flag that is checked as it is read.
type value[T any] struct {
	into *T
	read func(string) (T, error)
}

// Add adds a flag that is checked as it is read; what is there is its default.
func Add[T any](fs *flag.FlagSet, into *T, name string, read func(string) (T, error), usage string) {
	fs.Var(value[T]{into, read}, name, usage)
}

// Set implements flag.Value.
func (v value[T]) Set(text string) (err error) {
	*v.into, err = v.read(text)
	return err
}

// String implements flag.Value; the flag package calls it on the zero value too.
func (v value[T]) String() string {
	if v.into == nil {
		return ""
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(*v.into), "[]"), " ", ",")
}

// Between reads a number within bounds.
func Between[T int | float64](low, high T) func(string) (T, error) {
	return func(text string) (T, error) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || float64(T(n)) != n || T(n) < low || T(n) > high {
			return 0, fmt.Errorf("it must be a number between %v and %v", low, high)
		}
		return T(n), nil
	}
}

// OneOf reads one of some words.
func OneOf(known []string) func(string) (string, error) {
	return func(text string) (string, error) {
		if !slices.Contains(known, text) {
			return "", fmt.Errorf("%q is none of %s", text, strings.Join(known, ","))
		}
		return text, nil
	}
}

// List reads values with commas between; empty for none.
func List[T any](read func(string) (T, error)) func(string) ([]T, error) {
	return func(text string) ([]T, error) {
		var values []T
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item == "" {
				continue
			}
			value, err := read(item)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, nil
	}
}
