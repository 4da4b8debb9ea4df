package metadata_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/conn/metadata"
)

func TestDocument(t *testing.T) {
	host := metadata.Host{OSType: "Linux", DriverVersion: "v1", Platform: "go1"}
	tests := []struct {
		name   string
		client metadata.Client
		want   string
	}{
		{"least", metadata.Client{}, `{"driver":{"name":"mooring","version":""},"os":{"type":"unknown"}}`},
		{
			"host",
			metadata.Client{AppName: "app", Host: metadata.Host{
				OSType: "Linux", OSName: "Debian", OSVersion: "13", Architecture: "x86_64",
				DriverVersion: "v1", Platform: "go1",
			}},
			`{"application":{"name":"app"},"driver":{"name":"mooring","version":"v1"},` +
				`"os":{"type":"Linux","name":"Debian","architecture":"x86_64","version":"13"},"platform":"go1"}`,
		},
		{
			"function in a container",
			metadata.Client{Host: metadata.Host{
				OSType: "Linux", DriverVersion: "v1",
				Environment: metadata.Environment{
					Name: "gcp.func", MemoryMB: new(int32(512)), TimeoutSec: new(int32(0)),
					Region: "eu", Runtime: "docker", Orchestrator: "kubernetes",
				},
			}},
			`{"driver":{"name":"mooring","version":"v1"},"os":{"type":"Linux"},"env":{"name":"gcp.func","timeout_sec":0,` +
				`"memory_mb":512,"region":"eu","container":{"runtime":"docker","orchestrator":"kubernetes"}}}`,
		},
		{
			"libraries",
			metadata.Client{Host: host, Libraries: []metadata.Library{{"a", "2", "p"}, {"b", "", ""}, {"c", "3", ""}}},
			`{"driver":{"name":"mooring|a|b|c","version":"v1|2|3"},"os":{"type":"Linux"},"platform":"go1|p"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(t, document(t, tt.client)); got != tt.want {
				t.Errorf("Document() = %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestDocumentRefuses(t *testing.T) {
	tests := map[string]metadata.Client{
		"long name":             {AppName: strings.Repeat("é", 64) + "x"},
		"name is not UTF-8":     {AppName: "\xff"},
		"no name":               {Libraries: []metadata.Library{{Version: "1"}}},
		"delimiter, name":       {Libraries: []metadata.Library{{Name: "a|b"}}},
		"delimiter, version":    {Libraries: []metadata.Library{{Name: "a", Version: "|"}}},
		"delimiter, platform":   {Libraries: []metadata.Library{{Name: "a"}, {Name: "b", Platform: "x|y"}}},
		"library is not UTF-8 ": {Libraries: []metadata.Library{{Name: "a\xff"}}},
	}
	for name, c := range tests {
		if d, err := c.Document(); err == nil {
			t.Errorf("%s: Document() = %v, want an error", name, d)
		}
	}
	if _, err := (metadata.Client{AppName: strings.Repeat("é", 64)}).Document(); err != nil {
		t.Errorf("an application name of 128 bytes: %v", err)
	}
}

// The order in which parts are shortened, each only as far as needed.
func TestDocumentShrinks(t *testing.T) {
	full := func(platform int) metadata.Client {
		return metadata.Client{AppName: "app", Host: metadata.Host{
			OSType: "Linux", OSName: "N", OSVersion: "V", Architecture: "A", DriverVersion: "v1",
			Platform:    strings.Repeat("p", platform),
			Environment: metadata.Environment{Name: "vercel", Region: "R", Runtime: "docker"},
		}}
	}
	size := len(document(t, full(1)))
	room := metadata.MaxSize - size + 1 // for the platform, with everything else present
	var seen []string
	for platform := room - 1; platform < room+200; platform++ {
		d := document(t, full(platform))
		if len(d) > metadata.MaxSize {
			t.Fatalf("%d bytes with a platform of %d", len(d), platform)
		}
		state := fmt.Sprintf("region=%v container=%v os.name=%v os.version=%v env=%v whole=%v",
			has(d, "env", "region"), has(d, "env", "container"), has(d, "os", "name"),
			has(d, "os", "version"),
			has(d, "env", "name"), len(str(d, "platform")) == platform)
		if len(seen) == 0 || seen[len(seen)-1] != state {
			seen = append(seen, state)
		}
	}
	want := []string{
		"region=true container=true os.name=true os.version=true env=true whole=true",
		"region=false container=false os.name=true os.version=true env=true whole=true",
		"region=false container=false os.name=false os.version=false env=true whole=true",
		"region=false container=false os.name=false os.version=false env=false whole=true",
		"region=false container=false os.name=false os.version=false env=false whole=false",
	}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("as the platform grows:\n%s\nwant\n%s", strings.Join(seen, "\n"),
			strings.Join(want, "\n"))
	}
}

func TestDocumentCutsCharactersWhole(t *testing.T) {
	for n := range 300 {
		c := metadata.Client{
			AppName: strings.Repeat("é", 64), Libraries: []metadata.Library{
				{strings.Repeat("ü", 400), strings.Repeat("€", n), "€"},
			},
			Host: metadata.Host{
				OSType: "Linux", DriverVersion: "v1", Platform: strings.Repeat("é", n),
			},
		}
		d := document(t, c)
		name, version := str(d, "driver", "name"), str(d, "driver", "version")
		if len(d) > metadata.MaxSize || !utf8.ValidString(name) || !utf8.ValidString(version) ||
			!strings.HasPrefix(name, "mooring") || !strings.HasPrefix(version, "v1") ||
			str(d, "application", "name") != c.AppName {
			t.Fatalf("%d: %d bytes, %q, %q", n, len(d), name, version)
		}
	}
}

func TestDetect(t *testing.T) {
	tests := []struct {
		name, env string
		docker    bool
		want      string
	}{
		{"nothing", "", false, ``},
		{"lambda", "AWS_EXECUTION_ENV=AWS_Lambda_go AWS_REGION=r AWS_LAMBDA_FUNCTION_MEMORY_SIZE=1024", false, `{"name":"aws.lambda","memory_mb":1024,"region":"r"}`},
		{"lambda by its runtime", "AWS_LAMBDA_RUNTIME_API=x", false, `{"name":"aws.lambda"}`},
		{"other things of AWS", "AWS_EXECUTION_ENV=EC2 AWS_REGION=r", false, ``},
		{"azure", "FUNCTIONS_WORKER_RUNTIME=node FUNCTION_REGION=r", false, `{"name":"azure.func"}`},
		{"gcp", "FUNCTION_NAME=f FUNCTION_MEMORY_MB=1 FUNCTION_TIMEOUT_SEC=2 FUNCTION_REGION=r", false, `{"name":"gcp.func","timeout_sec":2,"memory_mb":1,"region":"r"}`},
		{"gcp, by service", "K_SERVICE=f", false, `{"name":"gcp.func"}`},
		{"vercel", "VERCEL=1 VERCEL_REGION=r", false, `{"name":"vercel","region":"r"}`},
		{"vercel on lambda", "VERCEL=1 AWS_LAMBDA_RUNTIME_API=x AWS_REGION=no", false, `{"name":"vercel"}`},
		{"two kinds", "FUNCTIONS_WORKER_RUNTIME=x K_SERVICE=y", false, ``},
		{"two kinds with vercel", "FUNCTIONS_WORKER_RUNTIME=x VERCEL=1", false, ``},
		{"three kinds", "AWS_LAMBDA_RUNTIME_API=x VERCEL=1 K_SERVICE=y", false, ``},
		{"two kinds in a container", "AWS_LAMBDA_RUNTIME_API=x K_SERVICE=y KUBERNETES_SERVICE_HOST=h", false, `{"container":{"orchestrator":"kubernetes"}}`},
		{"wrong types", "K_SERVICE=f FUNCTION_MEMORY_MB=big FUNCTION_TIMEOUT_SEC=2147483648", false, `{"name":"gcp.func"}`},
		{"docker", "", true, `{"container":{"runtime":"docker"}}`},
		{"both", "KUBERNETES_SERVICE_HOST=1.2.3.4", true, `{"container":{"runtime":"docker","orchestrator":"kubernetes"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vars := map[string]string{}
			for pair := range strings.FieldsSeq(tt.env) {
				name, value, _ := strings.Cut(pair, "=")
				vars[name] = value
			}
			e := metadata.Detect(func(name string) string {
				return vars[name]
			}, func(path string) bool { return tt.docker && path == "/.dockerenv" })
			if want := strings.Contains(tt.want, `{"name"`); e.IsFunction() != want {
				t.Errorf("IsFunction() = %v", e.IsFunction())
			}
			got := ""
			if v, ok := document(t, metadata.Client{Host: metadata.Host{Environment: e}}).
				Lookup("env"); ok {
				d, _ := v.Document()
				got = text(t, d)
			}
			if got != tt.want {
				t.Errorf("env = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestThisHost(t *testing.T) {
	t.Setenv("VERCEL", "1")
	for _, name := range []string{
		"AWS_EXECUTION_ENV", "AWS_LAMBDA_RUNTIME_API", "FUNCTIONS_WORKER_RUNTIME", "K_SERVICE", "FUNCTION_NAME",
	} {
		t.Setenv(name, "")
	}
	h := metadata.ThisHost()
	if h.OSType == "" || h.Architecture == "" || h.DriverVersion == "" ||
		!strings.HasPrefix(h.Platform, "go") || h.Environment.Name != "vercel" {
		t.Errorf("ThisHost() = %+v", h)
	}
}

func TestRelease(t *testing.T) {
	tests := []struct{ text, name, version string }{
		{"", "", ""},
		{"PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\nVERSION_ID=\"13\"\n", "Debian GNU/Linux 13 (trixie)", "13"},
		{"# x\nVERSION_ID=3.20\r\nPRETTY_NAME='Alpine'", "Alpine", "3.20"},
	}
	for _, tt := range tests {
		if name, version := metadata.Release(tt.text); name != tt.name || version != tt.version {
			t.Errorf("release(%q) = %q, %q", tt.text, name, version)
		}
	}
}

func document(t *testing.T, c metadata.Client) bson.Raw {
	t.Helper()
	d, err := c.Document()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func text(t *testing.T, d bson.Raw) string {
	t.Helper()
	out, err := extjson.Append(nil, d, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func has(d bson.Raw, path ...string) bool {
	_, ok := d.Lookup(path...)
	return ok
}

func str(d bson.Raw, path ...string) string {
	v, _ := d.Lookup(path...)
	s, _ := v.Str()
	return s
}
