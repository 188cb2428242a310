package figures

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// AuditLog counts in an API server's audit log what one user wrote in some namespaces.
type AuditLog struct {
	// File is the log. Rotated parts of it, which stand beside it as <name>-<time><ext>, are read too.
	File string
	// User is the writer, Since when counting begins.
	User  string
	Since time.Time
	// Groups maps a namespace to the group that its writes are counted for; writes elsewhere don't count.
	Groups map[string]string
}

// Writes are how often what was written: verb and resource with subresource.
type Writes struct {
	ByName  map[string]int
	Refused int
}

// Names are in order.
func (w *Writes) Names() []string { return slices.Sorted(maps.Keys(w.ByName)) }

// Total of all that the API server took.
func (w *Writes) Total() int {
	sum := 0
	for _, n := range w.ByName {
		sum += n
	}
	return sum
}

// auditEvent is the part of an audit event that counts.
type auditEvent struct {
	Stage    string    `json:"stage"`
	Verb     string    `json:"verb"`
	Received time.Time `json:"requestReceivedTimestamp"`
	User     struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// maxAuditLine bounds one event; at metadata level they are about a kilobyte.
const maxAuditLine = 4 << 20

// Count reads the log. A group without a write is not in the answer.
func (a *AuditLog) Count() (map[string]*Writes, error) {
	base := strings.TrimSuffix(a.File, filepath.Ext(a.File))
	files, err := filepath.Glob(base + "*" + filepath.Ext(a.File))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("count writes: there is no audit log %s", a.File)
	}
	groups := map[string]*Writes{}
	for _, name := range files {
		if err := a.countFile(name, groups); err != nil {
			return nil, fmt.Errorf("count writes: %w", err)
		}
	}
	return groups, nil
}

func (a *AuditLog) countFile(name string, groups map[string]*Writes) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return a.countEvents(file, groups)
}

func (a *AuditLog) countEvents(r io.Reader, groups map[string]*Writes) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(a.User)) {
			continue
		}
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			// The API server is writing this line just now.
			continue
		}
		a.take(&e, groups)
	}
	return lines.Err()
}

func (a *AuditLog) take(e *auditEvent, groups map[string]*Writes) {
	group, ours := a.Groups[e.Object.Namespace]
	if !ours || e.Stage != "ResponseComplete" || e.User.Username != a.User || e.Received.Before(a.Since) || !slices.Contains(writeVerbs, e.Verb) {
		return
	}
	if groups[group] == nil {
		groups[group] = &Writes{ByName: map[string]int{}}
	}
	if e.Response.Code >= 400 {
		groups[group].Refused++
		return
	}
	groups[group].ByName[strings.TrimSuffix(e.Verb+" "+e.Object.Resource+"/"+e.Object.Subresource, "/")]++
}
