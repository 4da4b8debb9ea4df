package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// events makes the lines of go test -json from rows of action, test and output.
func events(t *testing.T, rows ...[3]string) string {
	t.Helper()
	var b strings.Builder
	for _, row := range rows {
		line, err := json.Marshal(event{
			Action: row[0], Package: "example.com/p", Test: row[1], Output: row[2],
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// TestRead checks what is printed for a package that passes and for one that fails, and what is
// counted.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		name           string
		rows           [][3]string
		want           string
		passed, failed int
		reasons        []string
	}{
		{
			"a package that passes",
			[][3]string{
				{"start", "", ""},
				{"run", "TestA", ""},
				{"output", "TestA", "=== RUN   TestA\n"},
				{"output", "TestA", "    a_test.go:3: a word\n"},
				{"output", "TestA", "--- PASS: TestA (0.00s)\n"},
				{"pass", "TestA", ""},
				{"output", "TestB", "    b_test.go:2: a log line\n"},
				{"output", "TestB", "    b_test.go:3: a reason\n"},
				{"output", "TestB", "        of two lines\n"},
				{"output", "TestB", "--- SKIP: TestB (0.00s)\n"},
				{"skip", "TestB", ""},
				{"output", "", "PASS\n"},
				{"output", "", "coverage: 50.0% of statements\n"},
				{"output", "", "ok  \texample.com/p\t0.1s\tcoverage: 50.0% of statements\n"},
				{"pass", "", ""},
			},
			"ok  \texample.com/p\t0.1s\tcoverage: 50.0% of statements\n", 1, 0,
			[]string{"a reason of two lines"},
		},
		{
			"a package that fails",
			[][3]string{
				{"output", "TestA", "=== RUN   TestA\n"},
				{"output", "TestA/sub", "=== RUN   TestA/sub\n"},
				{"output", "TestB", "    b_test.go:1: passes\n"},
				{"pass", "TestB", ""},
				{"output", "TestA/sub", "    a_test.go:3: 1, want 2\n"},
				{"output", "TestA/sub", "    --- FAIL: TestA/sub (0.00s)\n"},
				{"fail", "TestA/sub", ""},
				{"output", "TestA", "--- FAIL: TestA (0.00s)\n"},
				{"fail", "TestA", ""},
				{"output", "", "FAIL\n"},
				{"output", "", "FAIL\texample.com/p\t0.1s\n"},
				{"fail", "", ""},
			},
			"--- FAIL: TestA (0.00s)\n    a_test.go:3: 1, want 2\n    --- FAIL: TestA/sub " +
				"(0.00s)\n" +
				"FAIL\nFAIL\texample.com/p\t0.1s\n", 1, 2, nil,
		},
		{"a panic", [][3]string{
			{"output", "TestA", "panic: oh\n"},
			{"output", "", "FAIL\texample.com/p\t0.1s\n"},
			{"fail", "", ""},
		}, "panic: oh\nFAIL\texample.com/p\t0.1s\n", 0, 0, nil},
		{"a package that does not build", [][3]string{
			{"build-output", "", "a.go:1:1: syntax error\n"},
			{"output", "", "FAIL\texample.com/p [build failed]\n"},
			{"fail", "", ""},
		}, "a.go:1:1: syntax error\nFAIL\texample.com/p [build failed]\n", 0, 0, nil},
		{"a skip without a reason", [][3]string{
			{"output", "TestA", "--- SKIP: TestA (0.00s)\n"},
			{"skip", "TestA", ""},
		}, "", 0, 0, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			r, err := read(strings.NewReader("no event\n"+events(t, tt.rows...)), &out)
			if err != nil {
				t.Fatal(err)
			}
			var reasons []string
			for _, s := range r.Skips {
				reasons = append(reasons, s.Reason)
			}
			if out.String() != "no event\n"+tt.want || r.Passed != tt.passed ||
				r.Failed != tt.failed ||
				len(r.Ran) != tt.passed || !slices.Equal(reasons, tt.reasons) {
				t.Errorf("read() prints\n%s\nwant\n%s\nand returns %+v", out.String(), tt.want, r)
			}
		})
	}
}

// bare is a machine that has nothing, full one that has everything.
func bare() world {
	return world{
		command: func(string) bool { return false }, variable: func(string) bool { return false },
		file: func(string) bool { return false }, succeeds: func(...string) bool { return false },
		ipv6: func() bool { return false }, specifications: func() string { return "" },
		platform: "plan9/arm",
	}
}

func full() world {
	return world{
		command: func(string) bool { return true }, variable: func(string) bool { return true },
		file: func(string) bool { return true }, succeeds: func(...string) bool { return true },
		ipv6: func() bool {
			return true
		}, specifications: func() string { return "/specifications" },
		root: true, platform: "linux/amd64",
	}
}

// TestVerdict has a reason for each rule. Where it can be contradicted, it holds on a machine that
// has nothing and not on one that has everything.
func TestVerdict(t *testing.T) {
	seen := map[string]bool{} // patterns of rules
	try := func(reason string) {
		for i, r := range rules {
			if compiled[i].MatchString(reason) {
				seen[r.pattern] = true
				return
			}
		}
	}
	for _, tt := range []struct {
		reason string
		kind   kind
		there  string
	}{
		{"haproxy is not installed (apt-get install haproxy)", missing, "haproxy is installed"},
		{"chromium is not installed: apt-get install chromium", missing, "chromium is installed"},
		{"krb5kdc is not installed (Debian: krb5-kdc)", missing, "krb5kdc is installed"},
		{"grpc-netty.jar is not installed", missing, "/usr/share/java/grpc-netty.jar is there"},
		{"pymongo is not installed (Debian: python3-pymongo)", missing, "python3 has pymongo"},
		{"/usr/bin/python3 has no grpc", missing, "python3 has grpc, google.protobuf"},
		{"/usr/bin/python3 has no httpx: apt-get", missing, "python3 has httpx"},
		{
			"no Python can make a virtual environment with httpx", missing,
			"python3 has venv, ensurepip, httpx",
		},
		{"no specifications: neither of both", missing, "/specifications"},
		{"there is no bin/otelcol: make collector builds it", missing, "bin/otelcol is there"},
		{"needs root: the gateway runs in a root directory of its own", missing, "this is root"},
		{"no IPv6 here: cannot assign", missing, "[::1] can be listened on"},
		{"the peak cannot be reset here: EPERM", missing, "the peak can be reset"},
		{"no Deno for this system: no file", missing, "there is one for linux/amd64"},
		{"MOORING_TEST_URI is not set", elsewhere, server + " is set"},
		{"the embedded database has no $expr", elsewhere, server + " is set"},
		{"set MOORING_TEST_HELM=1 to build Helm", elsewhere, "MOORING_TEST_HELM is set"},
		{"set MOORING_FAIRNESS=1, or run make fairness", asked, "MOORING_FAIRNESS is set"},
		{"a measurement: LAB_STARVATION=1 (make starvation)", asked, "LAB_STARVATION is set"},
		{"LAB_DOCDB names no directory for it", missing, "LAB_DOCDB is set"},
		{"unpack the engine: exit status 1: needs root", missing, ""},
		{"takes the time to build another gateway: make bank-control", asked, "LAB_BANK is set"},
		{"left out: needs GridFS", leftOut, ""},
		{"run by TestRecord", child, ""},
		{"the server does not hold it: NaN", lacking, ""},
		{"npm: a registry cannot be reached after three tries: ENOTFOUND", missing, ""},
		{"port 8080, which the Pod uses, is taken on this machine: in use", missing, ""},
		{"builds the gateway", unknown, ""},
		{"", unknown, ""},
	} {
		if kind, there := verdict(tt.reason, bare()); kind != tt.kind || there != "" {
			t.Errorf("verdict(%q) where nothing is there = %q, %q", tt.reason, kind, there)
		}
		if kind, there := verdict(tt.reason, full()); kind != tt.kind || there != tt.there {
			t.Errorf("verdict(%q) = %q, %q, want %q, %q", tt.reason, kind, there, tt.kind, tt.there)
		}
		try(tt.reason)
	}
	alone := []string{
		"MOORING_TEST_URI names a server that has them",
		"MOORING_TEST_URI names a server that may have no transactions",
	}
	for _, reason := range alone {
		if _, no := verdict(reason, bare()); no == "" {
			t.Errorf("verdict(%q) holds without a server", reason)
		}
		if _, no := verdict(reason, full()); no != "" {
			t.Errorf("verdict(%q) = %q with a server", reason, no)
		}
		try(reason)
	}
	if len(seen) != len(rules) {
		t.Errorf("%d of %d rules were tried", len(seen), len(rules))
	}
}

// TestJudge checks that a skip is an error if its reason is unknown or does not hold.
func TestJudge(t *testing.T) {
	skips := []skip{
		{test: test{"p", "TestKnown"}, Reason: "left out: a reason"},
		{test: test{"p", "TestUnknown"}, Reason: "I had no time"},
		{test: test{"p", "TestBalancer"}, Reason: "haproxy is not installed"},
	}
	for _, tt := range []struct {
		name string
		w    world
		want []string
	}{
		{"bare", bare(), []string{"TestUnknown"}},
		{"full", full(), []string{"TestUnknown", "TestBalancer"}},
	} {
		judged, problems := judge(skips, tt.w)
		if len(judged) != len(skips) || judged[0].Kind != leftOut || len(problems) != len(tt.want) {
			t.Errorf("%s: judge() = %v, %q", tt.name, judged, problems)
			continue
		}
		for i, test := range tt.want {
			if !strings.Contains(problems[i], test) {
				t.Errorf("%s: %q does not name %s", tt.name, problems[i], test)
			}
		}
	}
}

// TestSum checks that a test that passed in one run counts, and that the last lines name what did
// not run anywhere.
func TestSum(t *testing.T) {
	live, balancer := test{"p", "TestLive"}, test{"p", "TestBalancer"}
	log := filepath.Join(t.TempDir(), "log")
	for _, r := range []result{
		{Name: "one", Passed: 2, Failed: 1, Skips: []skip{
			{live, "MOORING_TEST_URI is not set", elsewhere},
			{balancer, "haproxy is not installed", missing},
		}},
		{Name: "two", Passed: 1, Ran: []test{live}, Skips: []skip{
			{balancer, "haproxy is not installed", missing},
			{test{"p", "TestFairness"}, "set MOORING_FAIRNESS=1", asked},
		}},
	} {
		if err := r.append(log); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := total(&out, log); err != nil {
		t.Fatal(err)
	}
	const want = `one 2 passed, 1 failed, 2 skipped
two 1 passed, 0 failed, 2 skipped
in all 3 passed, 1 failed, 4 skipped (1 of these passed in another run)
skipped (measurement): 1 × set MOORING_FAIRNESS=1: p TestFairness
skipped (missing): 1 × haproxy is not installed: p TestBalancer
NOT RUN: haproxy is not installed: p TestBalancer
`
	if out.String() != want {
		t.Errorf("total() prints\n%s\nwant\n%s", out.String(), want)
	}
}

// TestRun runs go test on a module whose test is skipped for a reason that does not hold, on one
// without tests, and on one that passes.
func TestRun(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"passes", "func TestA(t *testing.T) {}", ""},
		{"does not hold", "func TestA(t *testing.T) {}\n" +
			"func TestB(t *testing.T) { t.Skip(\"go is not installed\") }", "1 tests were skipped"},
		{"no tests", "", "no test was run"},
		{"fails", "func TestA(t *testing.T) { t.Fail() }", "exit status 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			source := "package p\n\nimport \"testing\"\n\nvar _ testing.TB\n" + tt.body + "\n"
			for name, text := range map[string]string{"go.mod": "module p\n", "p_test.go": source} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			t.Setenv("GOFLAGS", "")
			var out strings.Builder
			err := run(&out, "", []string{"go", "test", "-count=1", "-json", "./..."})
			if (err == nil) != (tt.want == "") ||
				err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("run() = %v, want %q\n%s", err, tt.want, out.String())
			}
			if closing := regexp.MustCompile(
				`(?m)^(ok  |FAIL)\tp\t`); !closing.MatchString(out.String()) {
				t.Errorf("go test's closing line is missing:\n%s", out.String())
			}
		})
	}
}
