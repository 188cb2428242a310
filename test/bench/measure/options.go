package measure

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options are those that every command has.
type Options struct {
	// JSON is the file for all figures.
	JSON string
	// Only are the parts to run.
	Only []string
}

// AddFlags adds the flags, with the file that is written by default and all parts.
func (o *Options) AddFlags(fs *flag.FlagSet, file string, parts []Part) {
	var names []string
	for _, part := range parts {
		names = append(names, part.Name)
	}
	o.Only = names
	fs.StringVar(&o.JSON, "json", file, "file for all figures; empty for none")
	fs.Func("only", "`parts` to run, commas between (default "+strings.Join(names, ",")+")", func(text string) error {
		o.Only = strings.Split(text, ",")
		for _, part := range o.Only {
			if !slices.Contains(names, part) {
				return fmt.Errorf("%q is none of %s", part, strings.Join(names, ","))
			}
		}
		return nil
	})
}

// Part is one of a command's parts.
type Part struct {
	Name    string
	Measure func(context.Context) error
}

// Measure runs the parts that were asked for, in their own order. A part that fails doesn't cost the figures of the
// others: the report says so.
func (o *Options) Measure(ctx context.Context, r *Report, parts []Part) error {
	for _, part := range parts {
		if !slices.Contains(o.Only, part.Name) {
			continue
		}
		r.Say("%s, after %.0f s", part.Name, time.Since(r.Time).Seconds())
		if err := part.Measure(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			r.Fail(part.Name, err)
		}
	}
	return nil
}
