package sockets

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
)

// denials counts refused connections.
type denials struct {
	mu   sync.Mutex
	list []result.NetworkDenial
	more int64
	// last is a sentence about the refusal that came last, of lastHost and lastPort.
	last     string
	lastHost string
	lastPort uint16
}

// add counts a refusal. Its texts are whole: the outcome is redacted before it is shortened.
func (d *denials) add(port uint16, p network.Protocol, v network.Verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastHost, d.lastPort = v.Host, port
	d.last = fmt.Sprintf("Reaching %q at port %d by %s was not allowed: %s.", v.Host, port, p, v.Rule)
	for i := range d.list {
		if d.list[i].Host == v.Host && d.list[i].Port == port {
			d.list[i].Count++
			return
		}
	}
	if len(d.list) == result.MaxDenials {
		d.more++
		return
	}
	d.list = append(d.list, result.NetworkDenial{Host: v.Host, Port: port, Count: 1})
}

// report adds the refusals to an outcome.
func (d *denials) report(to *result.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	to.Denied, to.MoreDenied = slices.Clone(d.list), d.more
}

// message is a sentence about the last refusal and one about others; empty if there was none.
func (d *denials) message() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var others []string
	for _, one := range d.list {
		if one.Host != d.lastHost || one.Port != d.lastPort {
			others = append(others, net.JoinHostPort(one.Host, strconv.Itoa(int(one.Port))))
		}
	}
	return d.last + result.OthersRefused("address", "status.network.denied", others, d.more > 0)
}
