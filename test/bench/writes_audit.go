package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// auditCounter counts in the API server's audit log what the operator wrote in the benchmark's own namespace:
// exact, whatever else runs on the cluster.
type auditCounter struct {
	file      string
	namespace string
	user      string
	since     time.Time
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

const accessReviews = "subjectaccessreviews"

// maxAuditLine bounds one event; at metadata level they are about a kilobyte.
const maxAuditLine = 4 << 20

func (c *auditCounter) count(_ context.Context, calls int) (*writeReport, error) {
	// The log may have been rotated meanwhile: older files stand beside it as audit-<time>.log.
	base := strings.TrimSuffix(c.file, filepath.Ext(c.file))
	files, err := filepath.Glob(base + "*" + filepath.Ext(c.file))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("count the operator's writes: no audit log %s", c.file)
	}
	sum := &auditSum{writes: map[string]int{}}
	for _, name := range files {
		if err := c.countFile(name, sum); err != nil {
			return nil, fmt.Errorf("count the operator's writes: %w", err)
		}
	}
	if len(sum.writes) == 0 {
		return nil, fmt.Errorf("count the operator's writes: %s has none by %s in namespace %s", c.file, c.user, c.namespace)
	}
	return sum.report(calls), nil
}

func (c *auditCounter) countFile(name string, sum *auditSum) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return c.countEvents(file, sum)
}

func (c *auditCounter) countEvents(r io.Reader, sum *auditSum) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAuditLine)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(c.user)) {
			continue
		}
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			// The API server is writing this line just now.
			continue
		}
		c.take(&e, sum)
	}
	return lines.Err()
}

func (c *auditCounter) take(e *auditEvent, sum *auditSum) {
	ours := e.Object.Namespace == c.namespace || e.Object.Resource == accessReviews
	switch {
	case e.Stage != "ResponseComplete" || e.User.Username != c.user || e.Received.Before(c.since):
	case !ours || !slices.Contains(writeVerbs, e.Verb):
	case e.Object.Resource == accessReviews:
		sum.reviews++
	case e.Response.Code >= 400:
		sum.refused++
	default:
		sum.writes[strings.TrimSuffix(e.Verb+" "+e.Object.Resource+"/"+e.Object.Subresource, "/")]++
	}
}

type auditSum struct {
	writes           map[string]int
	reviews, refused int
}

func (s *auditSum) report(calls int) *writeReport {
	r := &writeReport{
		Source: "audit log", Calls: float64(calls), PerCall: map[string]float64{},
		ReviewsPerCall: float64(s.reviews) / float64(calls), Refused: float64(s.refused),
		Note: "writes in the benchmark's namespace; access reviews are of the whole cluster",
	}
	for name, n := range s.writes {
		r.PerCall[name] = float64(n) / float64(calls)
	}
	return r
}
