package result

// Bounds of what an outcome says about redactions.
const (
	MaxRedactions    = 16
	MaxRedactionName = 256
)

// Where a value was redacted.
const (
	RedactedStdout = "Stdout"
	RedactedStderr = "Stderr"
	// RedactedMessage stands for what is said about the call, beside its streams: a message, a path, the name of an artifact.
	RedactedMessage = "Message"
)

// Redaction says how often the value of a Secret was replaced.
type Redaction struct {
	// Name is the variable's.
	Name string `json:"name"`
	// Stream is one of the constants.
	Stream string `json:"stream"`
	Count  int64  `json:"count"`
}

// Redactions is a list of at most MaxRedactions.
type Redactions = List[Redaction]

// AddRedaction counts one, as far as there is room in the list.
func (o *Outcome) AddRedaction(r Redaction) {
	for i := range o.Redactions {
		if have := &o.Redactions[i]; have.Name == r.Name && have.Stream == r.Stream {
			have.Count += r.Count
			return
		}
	}
	if r.Count > 0 && len(o.Redactions) < MaxRedactions {
		o.Redactions = append(o.Redactions, r)
	}
}

func (r *Redaction) isValid() bool {
	return len(r.Name) <= MaxRedactionName && isRedactionName(r.Name) && r.Count >= 1 &&
		(r.Stream == RedactedStdout || r.Stream == RedactedStderr || r.Stream == RedactedMessage)
}
