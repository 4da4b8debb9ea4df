package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"

	"github.com/mooringdb/mooring/internal/spectest"
)

// server is the variable that names a real server for tests.
const server = "MOORING_TEST_URI"

// kind says what it means for a run that a test was skipped.
type kind string

const (
	// unknown is a reason that the table does not have.
	unknown kind = ""
	// leftOut is a case of the specifications that its runner's table leaves out.
	leftOut kind = "left out"
	// child is a test that another one runs in a process of its own.
	child kind = "child"
	// asked is a measurement that runs only if it is asked for.
	asked kind = "measurement"
	// elsewhere is a test that another step runs, on another server or with another tool.
	elsewhere kind = "another step"
	// lacking is a case that the server behind the test cannot hold.
	lacking kind = "server lacks it"
	// missing is a test of something that the machine or a registry does not have.
	missing kind = "missing"
)

// rule makes a row of the table of reasons. there returns what contradicts the reason: that what
// the test needs is there. nil: nothing can. m are the groups of the pattern.
type rule struct {
	pattern string
	kind    kind
	there   func(w world, m []string) string
}

// browsers lists what chromium is called.
var browsers = []string{"chromium", "chromium-browser", "google-chrome"}

var rules = []rule{
	{`^left out: `, leftOut, nil},
	{`^run by Test`, child, nil},
	{`^set (MOORING_FAIRNESS|LAB_SCALE)=1`, asked, variable},
	{`^a measurement: (LAB_\w+)=1`, asked, variable},
	{`^set (MOORING_TEST_HELM)=1`, elsewhere, variable},
	{`^(MOORING_TEST_URI) (is not set|names no server)$`, elsewhere, variable},
	{`^the embedded database has no `, elsewhere, func(w world, _ []string) string {
		return variable(w, []string{"", server})
	}},
	{`^MOORING_TEST_URI names a server that `, elsewhere, noServer},
	{`^(LAB_DOCDB) names no directory `, missing, variable},
	{`^unpack the engine: `, missing, nil},
	{
		`^takes the time to build another gateway: make bank-control$`, asked,
		func(w world, _ []string) string { return variable(w, []string{"", "LAB_BANK"}) },
	},
	{`^the server does not hold it: `, lacking, nil},
	{`^no specifications: `, missing, func(w world, _ []string) string {
		return w.specifications()
	}},
	{`^there is no (bin/otelcol): `, missing, file},
	{`registry cannot be reached after three tries: `, missing, nil},
	{`^chromium is not installed`, missing, anyCommand(browsers...)},
	{`^pymongo is not installed`, missing, python("pymongo")},
	{
		`^no Python can make a virtual environment with httpx$`, missing,
		python("venv, ensurepip, httpx"),
	},
	{`^/usr/bin/python3 has no httpx: `, missing, python("httpx")},
	{`^/usr/bin/python3 has no `, missing, python("grpc, google.protobuf")},
	{`^(\S+\.jar) is not installed$`, missing, func(w world, m []string) string {
		return file(w, []string{"", "/usr/share/java/" + m[1]})
	}},
	{`^(\S+) is not installed\b`, missing, func(w world, m []string) string {
		return anyCommand(m[1])(w, nil)
	}},
	{`^needs root: `, missing, func(w world, _ []string) string {
		if w.root {
			return "this is root"
		}
		return ""
	}},
	{`^port \d+, which the Pod uses, is taken on this machine: `, missing, nil},
	{`^no IPv6 here: `, missing, func(w world, _ []string) string {
		if w.ipv6() {
			return "[::1] can be listened on"
		}
		return ""
	}},
	{`^the peak cannot be reset here: `, missing, func(w world, _ []string) string {
		return works(w, "the peak can be reset", "sh", "-c", "echo 5 >/proc/self/clear_refs")
	}},
	{`^no (Deno|workerd) for this system: `, missing, func(w world, _ []string) string {
		if w.platform == "linux/amd64" {
			return "there is one for " + w.platform
		}
		return ""
	}},
}

// world answers what the rules ask the machine.
type world struct {
	command        func(name string) bool // is it installed?
	variable       func(name string) bool // is it set?
	file           func(name string) bool
	succeeds       func(command ...string) bool
	ipv6           func() bool
	specifications func() string // where they are; empty: there are none
	root           bool
	platform       string
}

// machine returns the machine that this process runs on.
func machine() world {
	return world{
		command:  installed,
		variable: func(name string) bool { return os.Getenv(name) != "" },
		file: func(name string) bool {
			_, err := os.Stat(name)
			return err == nil
		},
		succeeds: func(command ...string) bool {
			return exec.Command(command[0], command[1:]...).Run() == nil
		},
		ipv6: func() bool {
			l, err := net.Listen("tcp6", "[::1]:0")
			if err == nil {
				_ = l.Close()
			}
			return err == nil
		},
		specifications: func() string {
			dir, _ := spectest.Root()
			return dir
		},
		root:     os.Geteuid() == 0,
		platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// installed looks on the path, and where Debian puts the programs of administrators.
func installed(name string) bool {
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if _, err := exec.LookPath(dir + name); err == nil {
			return true
		}
	}
	return false
}

func variable(w world, m []string) string {
	if w.variable(m[1]) {
		return m[1] + " is set"
	}
	return ""
}

func noServer(w world, _ []string) string {
	if w.variable(server) {
		return ""
	}
	return server + " is not set"
}

func file(w world, m []string) string {
	if w.file(m[1]) {
		return m[1] + " is there"
	}
	return ""
}

func anyCommand(names ...string) func(world, []string) string {
	return func(w world, _ []string) string {
		for _, name := range names {
			if w.command(name) {
				return name + " is installed"
			}
		}
		return ""
	}
}

// python contradicts if an interpreter that tests try has modules.
func python(modules string) func(world, []string) string {
	return func(w world, _ []string) string {
		for _, name := range []string{"python3", "/usr/bin/python3"} {
			if there := works(w, name+" has "+modules, name, "-c", "import "+modules); there != "" {
				return there
			}
		}
		return ""
	}
}

func works(w world, there string, command ...string) string {
	if w.succeeds(command...) {
		return there
	}
	return ""
}

// compiled are the patterns of rules.
var compiled = func() []*regexp.Regexp {
	all := make([]*regexp.Regexp, len(rules))
	for i, r := range rules {
		all[i] = regexp.MustCompile(r.pattern)
	}
	return all
}()

// judge gives each skip its kind, by the first rule that matches its reason, and returns an error
// for each whose reason no rule has or something contradicts.
func judge(skips []skip, w world) (judged []skip, problems []string) {
	for _, s := range skips {
		kind, there := verdict(s.Reason, w)
		s.Kind = kind
		judged = append(judged, s)
		switch {
		case kind == unknown:
			problems = append(problems, fmt.Sprintf("%v: %q: tools/skips does not know this reason",
				s.test, s.Reason))
		case there != "":
			problems = append(problems, fmt.Sprintf("%v: %q, but %s", s.test, s.Reason, there))
		}
	}
	return judged, problems
}

func verdict(reason string, w world) (k kind, there string) {
	for i, r := range rules {
		m := compiled[i].FindStringSubmatch(reason)
		if m == nil {
			continue
		}
		if r.there != nil {
			there = r.there(w, m)
		}
		return r.kind, there
	}
	return unknown, ""
}
