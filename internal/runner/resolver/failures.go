package resolver

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/net/dns/dnsmessage"
)

// maxLookedUp bounds the names whose lookups are remembered. Lookups of others aren't.
const maxLookedUp = 512

// Failure is a name that could not be looked up, because no nameserver said what it is.
type Failure struct {
	Name string
	// Nameserver was asked last; the zero value if there is none to ask.
	Nameserver netip.AddrPort
	// Err says what came of it.
	Err error
}

// lookupError is the end of a lookup at one nameserver.
type lookupError struct {
	nameserver netip.AddrPort
	err        error
}

func (e *lookupError) Error() string {
	return "ask the nameserver " + e.nameserver.String() + ": " + e.err.Error()
}

func (e *lookupError) Unwrap() error { return e.err }

// failures knows of each name how its last lookups ended.
type failures struct {
	mu    sync.Mutex
	names map[string]*lookups
	count int
}

// lookups are those of one name. failed and found say of each family whether its last lookup failed, or found something.
type lookups struct {
	failed, found [families]bool
	// order counts failures, over all names.
	order int
	err   error
}

// families is how many kinds of lookups are told apart: programs ask for IPv4 and IPv6 at once.
const families = 3

func familyOf(t dnsmessage.Type) int {
	switch t {
	case dnsmessage.TypeA:
		return 0
	case dnsmessage.TypeAAAA:
		return 1
	default:
		return 2
	}
}

// note keeps how a lookup ended.
func (f *failures) note(name string, t dnsmessage.Type, got *found, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.names[name]
	if l == nil {
		if len(f.names) == maxLookedUp {
			return
		}
		if f.names == nil {
			f.names = map[string]*lookups{}
		}
		l = &lookups{}
		f.names[name] = l
	}
	family := familyOf(t)
	l.failed[family], l.found[family] = err != nil, err == nil && !got.isEmpty()
	if err != nil {
		f.count++
		l.order, l.err = f.count, err
	}
}

// report returns the name that failed last, and how many others failed. A name that was found all the same, at another try
// or with addresses of the other family, didn't fail: programs go on with what there is.
func (f *failures) report() (last *Failure, others int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	order := 0
	for name, l := range f.names {
		if !slices.Contains(l.failed[:], true) || slices.Contains(l.found[:], true) {
			continue
		}
		if others++; l.order > order {
			order, last = l.order, failureOf(name, l.err)
		}
	}
	return last, max(others-1, 0)
}

func failureOf(name string, err error) *Failure {
	f := &Failure{Name: name, Err: err}
	var at *lookupError
	if errors.As(err, &at) {
		f.Nameserver, f.Err = at.nameserver, at.err
	}
	// The kernel's word for it, without the ports that the resolver happened to ask from.
	var errno syscall.Errno
	if errors.As(f.Err, &errno) {
		f.Err = errno
	}
	return f
}
