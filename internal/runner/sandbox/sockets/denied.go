package sockets

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/result"
)

// maxRule bounds the sentence about a refusal, in bytes. It is longer than any of ours: what is cut here can't be redacted whole.
const maxRule = result.MaxMessage

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

func (d *denials) add(to netip.AddrPort, p network.Protocol, v network.Verdict) {
	host := v.Host
	if host == "" {
		host = to.Addr().String()
	}
	host = firstBytes(host, result.MaxDenialHost)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastHost, d.lastPort = host, to.Port()
	d.last = fmt.Sprintf("Reaching %q at port %d by %s was not allowed", host, to.Port(), p)
	if v.Rule != "" {
		d.last += ": " + firstBytes(v.Rule, maxRule)
	}
	d.last = strings.TrimSuffix(d.last, ".") + "."
	for i := range d.list {
		if d.list[i].Host == host && d.list[i].Port == to.Port() {
			d.list[i].Count++
			return
		}
	}
	if len(d.list) == result.MaxDenials {
		d.more++
		return
	}
	d.list = append(d.list, result.NetworkDenial{Host: host, Port: to.Port(), Count: 1})
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

// firstBytes keeps the beginning of a text that is too long.
func firstBytes(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
