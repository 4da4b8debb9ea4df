package tracing

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"

	"github.com/mooringdb/mooring/core/event/eventtrace"
)

// exporterVariables begin the names of the variables that the exporters read. Each is there twice:
// for all signals, and for traces.
var exporterVariables = []string{forAll, forTraces}

const (
	forAll      = "OTEL_EXPORTER_OTLP_"
	forTraces   = "OTEL_EXPORTER_OTLP_TRACES_"
	compression = "COMPRESSION"
)

// replaced has the variables that count for traces instead of those for all signals; a key and its
// certificate only together.
var replaced = [][]string{
	{"ENDPOINT"},
	{"HEADERS"},
	{"TIMEOUT"},
	{compression},
	{"CERTIFICATE"},
	{"CLIENT_CERTIFICATE", "CLIENT_KEY"},
}

// hideReplaced takes the variables that those for traces replace out of the environment, until the
// function that it returns is called. The exporters read them, too, and complain in the same words.
func hideReplaced() (restore func()) {
	hidden := map[string]string{}
	for _, names := range replaced {
		if slices.ContainsFunc(names, func(name string) bool {
			return strings.TrimSpace(os.Getenv(forTraces+name)) == ""
		}) {
			continue
		}
		for _, name := range names {
			if text, set := os.LookupEnv(forAll + name); set {
				hidden[forAll+name] = text
				_ = os.Unsetenv(forAll + name)
			}
		}
	}
	return func() {
		for variable, text := range hidden {
			_ = os.Setenv(variable, text)
		}
	}
}

// checkVariables returns an error if a value cannot be used, of those about which OpenTelemetry's
// packages say nothing.
func checkVariables() error {
	if text := os.Getenv(eventtrace.EnabledVariable); text != "" {
		if _, err := strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%s: %q is neither true nor false", eventtrace.EnabledVariable, text)
		}
	}
	if text := os.Getenv(eventtrace.MaxQueryTextLengthVariable); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 0 {
			return fmt.Errorf("%s: %q is not a whole number from 0",
				eventtrace.MaxQueryTextLengthVariable, text)
		}
	}
	for _, variable := range exporterVariables {
		variable += compression
		switch text := strings.TrimSpace(os.Getenv(variable)); text {
		case "", "none", "gzip":
		default:
			return fmt.Errorf("%s: %q is neither gzip nor none", variable, text)
		}
	}
	return nil
}

// checkURLs returns an error if an endpoint is not one of OTLP over HTTP. The gRPC package takes
// other forms, too.
func checkURLs() error {
	for _, variable := range []string{endpointVariable, tracesEndpointVariable} {
		text := strings.TrimSpace(os.Getenv(variable))
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%s: must begin with http:// or https:// and a host", variable)
		}
	}
	return nil
}

// unusable hears what OpenTelemetry's packages log while they read the variables. By themselves
// they write it to the standard error, with values that may be secret, and go on without the value.
type unusable struct{ err error } // the first

var _ logr.LogSink = (*unusable)(nil)

// complained says what a message of the exporters is about. It has no problem if the error says
// that: an error about a file without its name, since that may be the key itself by mistake.
var complained = map[string]struct{ variable, problem string }{
	"parse url":                  {"ENDPOINT", "is not a URL"},
	"parse duration":             {"TIMEOUT", "is not a number of milliseconds"},
	"parse headers":              {"HEADERS", notHeaders},
	"escape header value":        {"HEADERS", notHeaders},
	"read tls ca cert file":      {"CERTIFICATE", ""},
	"create tls cert pool":       {"CERTIFICATE", "has no certificate"},
	"read tls client cert":       {"CLIENT_CERTIFICATE", ""},
	"read tls client key":        {"CLIENT_KEY", ""},
	"create tls client key pair": {"CLIENT_CERTIFICATE", ""},
}

const notHeaders = "is not a list of name=value with URL-encoded values, separated by commas"

// Init does nothing.
func (u *unusable) Init(logr.RuntimeInfo) {}

// Enabled returns true.
func (u *unusable) Enabled(int) bool { return true }

// Info hears of a variable that is not a number.
func (u *unusable) Info(_ int, _ string, keysAndValues ...any) {
	for i := 0; i+1 < len(keysAndValues) && u.err == nil; i += 2 {
		variable, _ := keysAndValues[i].(string)
		if strings.HasPrefix(variable, "OTEL_") {
			u.err = fmt.Errorf("%s: %q is not a number", variable, keysAndValues[i+1])
		}
	}
}

// Error hears of a variable of the exporters.
func (u *unusable) Error(err error, message string, keysAndValues ...any) {
	if u.err != nil || emptyHeader(message, keysAndValues) {
		return
	}
	about, known := complained[message]
	switch {
	case !known:
		u.err = fmt.Errorf("a variable of OpenTelemetry cannot be used: %s", message)
		return
	case about.problem != "":
		err = errors.New(about.problem)
	default:
		if file, ok := errors.AsType[*fs.PathError](err); ok {
			err = fmt.Errorf("cannot be read: %w", file.Err)
		}
	}
	var set []string
	for _, variable := range exporterVariables {
		if variable += about.variable; os.Getenv(variable) != "" {
			set = append(set, variable)
		}
	}
	u.err = fmt.Errorf("%s: %w", strings.Join(set, " or "), err)
}

// emptyHeader reports whether a message is about nothing between two commas.
func emptyHeader(message string, keysAndValues []any) bool {
	if message != "parse headers" || len(keysAndValues) != 2 || keysAndValues[0] != "input" {
		return false
	}
	member, ok := keysAndValues[1].(string)
	return ok && strings.TrimSpace(member) == ""
}

// WithValues returns the same.
func (u *unusable) WithValues(...any) logr.LogSink { return u }

// WithName returns the same.
func (u *unusable) WithName(string) logr.LogSink { return u }
