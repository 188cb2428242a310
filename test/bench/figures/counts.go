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

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// AuditLog counts in an API server's audit log what one user wrote.
type AuditLog struct {
	// File is the log. Rotated parts of it, which stand beside it as <name>-<time><ext>, are read too.
	File string
	// User is the writer, Since when counting begins.
	User  string
	Since time.Time
}

// Writes are how often what was written: by verb and resource with subresource, or what else names a write.
type Writes struct {
	ByName map[string]float64 `json:"byName"`
	// Refused are writes that the API server didn't take (conflicts, already there).
	Refused float64 `json:"refused"`
}

// Names are in order.
func (w *Writes) Names() []string { return slices.Sorted(maps.Keys(w.ByName)) }

// Total of all that the API server took.
func (w *Writes) Total() float64 {
	sum := 0.0
	for _, n := range w.ByName {
		sum += n
	}
	return sum
}

// PerCall divides the writes by the number of calls; those refused stay the sum of all calls'.
func (w *Writes) PerCall(calls float64) *Writes {
	each := &Writes{ByName: map[string]float64{}, Refused: w.Refused}
	for name, n := range w.ByName {
		each.ByName[name] = n / calls
	}
	return each
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

// Count reads the log and counts by namespace. A namespace without a write is not in the answer.
func (a *AuditLog) Count() (map[string]*Writes, error) {
	extension := filepath.Ext(a.File)
	files, err := filepath.Glob(strings.TrimSuffix(a.File, extension) + "*" + extension)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("count writes: there is no audit log %s", a.File)
	}
	counts := map[string]*Writes{}
	for _, name := range files {
		if err := a.countFile(name, counts); err != nil {
			return nil, fmt.Errorf("count writes: %w", err)
		}
	}
	return counts, nil
}

func (a *AuditLog) countFile(name string, counts map[string]*Writes) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		var e auditEvent
		// A line that is no event is being written just now.
		if bytes.Contains(lines.Bytes(), []byte(a.User)) && json.Unmarshal(lines.Bytes(), &e) == nil {
			a.take(&e, counts)
		}
	}
	return lines.Err()
}

func (a *AuditLog) take(e *auditEvent, counts map[string]*Writes) {
	if e.Stage != "ResponseComplete" || e.User.Username != a.User || e.Received.Before(a.Since) || !slices.Contains(writeVerbs, e.Verb) {
		return
	}
	writes := counts[e.Object.Namespace]
	if writes == nil {
		writes = &Writes{ByName: map[string]float64{}}
		counts[e.Object.Namespace] = writes
	}
	if e.Response.Code >= 400 {
		writes.Refused++
		return
	}
	writes.ByName[strings.TrimSuffix(e.Verb+" "+e.Object.Resource+"/"+e.Object.Subresource, "/")]++
}

// Metric is one value of a program's metrics.
type Metric struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// ReadMetrics reads the counters, gauges and untyped values of a metrics page.
func ReadMetrics(page io.Reader) ([]Metric, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	var metrics []Metric
	for name, family := range families {
		for _, m := range family.Metric {
			labels := map[string]string{}
			for _, pair := range m.Label {
				labels[pair.GetName()] = pair.GetValue()
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			metrics = append(metrics, Metric{Name: name, Labels: labels, Value: value})
		}
	}
	return metrics, nil
}

// Sum is the sum of all values of a name.
func Sum(metrics []Metric, name string) float64 {
	sum := 0.0
	for _, m := range metrics {
		if m.Name == name {
			sum += m.Value
		}
	}
	return sum
}
