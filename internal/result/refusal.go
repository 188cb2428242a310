package result

import (
	"fmt"
	"slices"
	"strings"
)

// shownOthers is how many others are named beside the one that a refusal is about.
const shownOthers = 2

// AddRefusal says what was refused, in the message too of a process that ended for one of the reasons.
func (o *Outcome) AddRefusal(sentence string, reasons []string) {
	if sentence == "" {
		return
	}
	o.Refusal = strings.TrimPrefix(o.Refusal+" "+sentence, " ")
	if slices.Contains(reasons, o.Reason) {
		o.Message += " " + sentence
	}
}

// OthersRefused is a sentence, after a blank, about others that were refused beside the one that a sentence is about; empty for
// none. where says which field has them all, and isMore that there are more than these.
func OthersRefused(noun, where string, others []string, isMore bool) string {
	if len(others) == 0 {
		return ""
	}
	first := make([]string, min(len(others), shownOthers))
	for i := range first {
		first[i] = fmt.Sprintf("%q", others[i])
	}
	names, atLeast := strings.Join(first, " and "), ""
	if isMore {
		atLeast = "At least "
	}
	switch n := len(others); {
	case n == 1 && !isMore:
		return fmt.Sprintf(" 1 other %s was refused too: %s.", noun, names)
	case n <= shownOthers && !isMore:
		return fmt.Sprintf(" %d other %s were refused too: %s.", n, plural(noun), names)
	default:
		return fmt.Sprintf(" %s%d other %s were refused too, %s among them: see %s.", atLeast, n, plural(noun), names, where)
	}
}

func plural(noun string) string {
	if strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}
