package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

var suite = gatewaytest.New()

// TestMain lets the test's binary be the server and the functions, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		main()
		return
	}
	os.Exit(suite.Run(m))
}

func TestColdStart(t *testing.T) {
	var out bytes.Buffer
	if err := measure(t.Context(), &out, suite.Gateway(t), 2, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 starts", "gateway ", "ready answer ", "own driver "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestPercentile(t *testing.T) {
	var all []start
	for n := range 100 {
		all = append(all, start{Elapsed: time.Duration(100-n) * time.Millisecond})
	}
	elapsed := func(s start) time.Duration { return s.Elapsed }
	for p, want := range map[int]time.Duration{
		0: time.Millisecond, 50: 51 * time.Millisecond, 100: 100 * time.Millisecond,
	} {
		if got := percentile(all, elapsed, p); got != want {
			t.Errorf("percentile(%d) = %v, want %v", p, got, want)
		}
	}
}
