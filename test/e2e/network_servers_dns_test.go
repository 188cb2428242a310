package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameserver is a DNS server of a test. It answers the nth question for a name's IPv4 address with the nth of the name's answers,
// and begins again after the last. All may be kept for a second.
type nameserver struct {
	mu      sync.Mutex
	answers map[string][]answer
	asked   map[string]int
}

// answer is a set of records: addresses, and names for which the asked one is an alias.
type answer []string

// serveNames starts the server, by UDP and TCP, and has the cluster's DNS ask it for the names.
func (o *outside) serveNames(t *testing.T, answers map[string][]answer) *nameserver {
	t.Helper()
	n := &nameserver{answers: answers, asked: map[string]int{}}
	datagrams, streams := o.listenDatagrams(t, 53), o.listen(t, o.server.String(), 53)
	go n.serveDatagrams(datagrams)
	go n.serveStreams(streams)
	o.delegate(t, answers)
	return n
}

func (n *nameserver) serveDatagrams(conn *net.UDPConn) {
	buffer := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if reply := n.reply(buffer[:size]); err == nil && reply != nil {
			_, _ = conn.WriteToUDPAddrPort(reply, from)
		}
	}
}

func (n *nameserver) serveStreams(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			for n.serveStream(conn) == nil {
			}
		}()
	}
}

func (n *nameserver) serveStream(conn net.Conn) error {
	var size uint16
	if err := binary.Read(conn, binary.BigEndian, &size); err != nil {
		return err
	}
	question := make([]byte, size)
	if _, err := io.ReadFull(conn, question); err != nil {
		return err
	}
	reply := n.reply(question)
	_, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	return err
}

// reply answers a message; nil for what can't be read.
func (n *nameserver) reply(raw []byte) []byte {
	var asked dnsmessage.Message
	if asked.Unpack(raw) != nil || len(asked.Questions) != 1 {
		return nil
	}
	q := asked.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, Authoritative: true, RecursionDesired: asked.RecursionDesired},
		Questions: asked.Questions,
	}
	records, known := n.next(name, q.Type)
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range records {
		reply.Answers = append(reply.Answers, recordOf(q.Name, text))
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// next gives the records of the answer that has its turn. There are no IPv6 addresses.
func (n *nameserver) next(name string, t dnsmessage.Type) (records answer, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, known := n.answers[name]
	if !known || t != dnsmessage.TypeA {
		return nil, known
	}
	records = all[n.asked[name]%len(all)]
	n.asked[name]++
	return records, true
}

// count is how often a name's address was asked for.
func (n *nameserver) count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[name]
}

func recordOf(owner dnsmessage.Name, text string) dnsmessage.Resource {
	r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET, TTL: 1}}
	if addr, err := netip.ParseAddr(text); err == nil {
		r.Body = &dnsmessage.AResource{A: addr.As4()}
	} else {
		r.Body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(text + ".")}
	}
	return r
}

var (
	corefilePath = regexp.MustCompile(`coredns -conf (\S+)`)
	bindAddress  = regexp.MustCompile(`(?m)^\s*bind (\S+)$`)
)

// delegate adds a zone for each name to the configuration of the cluster's DNS, and takes them out at the end of the test.
func (o *outside) delegate(t *testing.T, names map[string][]answer) {
	t.Helper()
	processes := o.suite.onNode(t, "ps", "-eo", "args=")
	path := corefilePath.FindStringSubmatch(processes)
	if path == nil {
		t.Fatalf("the node runs no coredns -conf FILE:\n%s", processes)
	}
	corefile := o.suite.onNode(t, "cat", path[1])
	bind := bindAddress.FindStringSubmatch(corefile)
	if bind == nil {
		t.Fatalf("the cluster's DNS binds no address:\n%s", corefile)
	}
	zones := &strings.Builder{}
	for name := range names {
		fmt.Fprintf(zones, "%s:53 {\n    bind %s\n    errors\n    forward . %s\n} # %s\n", name, bind[1], o.server, o.link)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		script := fmt.Sprintf(`sed -i '/^\S*%s\S*:53 {$/,/^} # %s$/d' %s && %s`, o.suite.id, o.link, path[1], reloadDNS)
		if err := runOnNode(ctx, "sh", "-c", script); err != nil {
			t.Errorf("restore the cluster's DNS: %v", err)
		}
	})
	o.suite.onNode(t, "sh", "-c", fmt.Sprintf("printf %%s \"$1\" >> %s && %s", path[1], reloadDNS), "sh", zones.String())
	o.awaitNames(t, bind[1], names)
}

// reloadDNS has CoreDNS read its configuration again. It answers meanwhile.
const reloadDNS = `kill -USR1 $(ps -eo pid=,args= | awk '/[c]oredns -conf/ {print $1}')`

// awaitNames waits until the cluster's DNS answers for the names.
func (o *outside) awaitNames(t *testing.T, dns string, names map[string][]answer) {
	t.Helper()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(dns, "53"))
	}}
	for name := range names {
		o.suite.awaitTrue(t, "the cluster's DNS to know "+name, func(ctx context.Context) (bool, error) {
			_, err := r.LookupNetIP(ctx, "ip4", name+".")
			return err == nil, nil
		})
	}
}
