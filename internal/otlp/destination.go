package otlp

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// destination is where a signal is exported to.
type destination struct {
	signal Signal
	// url is empty for nowhere.
	url string
	// limit bounds the items that wait for their export.
	limit int64
	lost  func(Signal, int)
}

// How many items of a signal may wait, and how many the environment may ask for.
const (
	defaultWaiting = 2048
	maxWaiting     = 65536
)

// destinationOf reads the variables of the OpenTelemetry specification for a signal. The exporters read those that say how to export:
// headers, certificates, compression, time limits.
func destinationOf(getenv func(string) string, signal Signal) (*destination, error) {
	to := &destination{signal: signal}
	name := strings.ToUpper(string(signal))
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_"+name+"_EXPORTER") == "none" {
		return to, nil
	}
	variable, path := "OTEL_EXPORTER_OTLP_"+name+"_ENDPOINT", ""
	if getenv(variable) == "" {
		variable, path = "OTEL_EXPORTER_OTLP_ENDPOINT", "v1/"+string(signal)
	}
	text := getenv(variable)
	if text == "" {
		return to, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s must be a URL such as http://collector.example.com:4318", variable)
	}
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_" + name + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		protocol := getenv(variable)
		if protocol == "grpc" {
			return nil, fmt.Errorf("%s is grpc: only http/protobuf is supported, and http/json for traces, on port 4318 of most collectors", variable)
		}
		if protocol != "" {
			break
		}
	}
	to.url = text
	if path != "" {
		to.url = u.JoinPath(path).String()
	}
	to.limit, err = limitOf(getenv, signal)
	return to, err
}

// limitOf is how many items of a signal may wait.
func limitOf(getenv func(string) string, signal Signal) (int64, error) {
	variable := map[Signal]string{Traces: "OTEL_BSP_MAX_QUEUE_SIZE", Logs: "OTEL_BLRP_MAX_QUEUE_SIZE"}[signal]
	if variable == "" || getenv(variable) == "" {
		return defaultWaiting, nil
	}
	n, err := strconv.ParseInt(getenv(variable), 10, 64)
	if err != nil || n < 1 || n > maxWaiting {
		return 0, fmt.Errorf("%s must be a number between 1 and %d", variable, maxWaiting)
	}
	return n, nil
}
