package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// AuditLog counts what one user wrote, in an API server's audit log, as it grows.
type AuditLog struct {
	// File is the log, User the writer.
	File, User string

	read   int64
	counts map[string]Counts
}

// Units of Count; further ones are writes by verb and resource.
const (
	UnitWrites = "writes"
	// UnitRefused are writes that the API server didn't take (conflicts, already there).
	UnitRefused = "refused writes"
)

// auditEvent is the part of an audit event that counts.
type auditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
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

// Count says what was written in a namespace until now.
func (a *AuditLog) Count(namespace string) (Counts, error) {
	file, err := os.Open(a.File)
	if err != nil {
		return nil, fmt.Errorf("count writes: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(a.read, io.SeekStart); err != nil {
		return nil, fmt.Errorf("count writes: %w", err)
	}
	more, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("count writes: %w", err)
	}
	// The last line may be being written just now.
	more = more[:bytes.LastIndexByte(more, '\n')+1]
	a.read += int64(len(more))
	for line := range bytes.Lines(more) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("count writes: %s: %w", line, err)
		}
		a.take(&e)
	}
	now := Counts{}
	now.Add(nil, a.counts[namespace])
	return now, nil
}

func (a *AuditLog) take(e *auditEvent) {
	if e.Stage != "ResponseComplete" || e.User.Username != a.User || !slices.Contains(writeVerbs, e.Verb) {
		return
	}
	if a.counts == nil {
		a.counts = map[string]Counts{}
	}
	counts := a.counts[e.Object.Namespace]
	if counts == nil {
		counts = Counts{}
		a.counts[e.Object.Namespace] = counts
	}
	if e.Response.Code >= 400 {
		counts[UnitRefused]++
		return
	}
	counts[UnitWrites]++
	counts[strings.TrimSuffix(e.Verb+" "+e.Object.Resource+"/"+e.Object.Subresource, "/")]++
}

// ReadMetrics reads the counters, gauges and untyped values of a metrics page: the sums of all values of a name.
func ReadMetrics(page []byte) (map[string]float64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			sums[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sums, nil
}
