package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuide generates the clients of docs/clients.md for Python and Java, and runs the programs
// that stand there. They are in testdata.
func TestGuide(t *testing.T) {
	g := startScripted(t)
	answer := g.Post(t, "/v1/databases/shop/collections/orders/documents:insertMany",
		`{"documents": [{"_id": 1, "total": 5}, {"_id": 2, "total": 6}]}`)
	if answer.Status != 200 {
		t.Fatalf("insertMany: %s", answer.Body)
	}
	const line = `{"_id":1,"total":5}`
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"find.py", "Find.java"} {
		program, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), string(program)) {
			t.Errorf("docs/clients.md does not show testdata/%s", name)
		}
	}
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("python", func(t *testing.T) {
		const python = "/usr/bin/python3"
		if missing := lacks(t, python, "grpc", "google.protobuf"); missing != "" {
			t.Skipf("%s has no %s", python, missing)
		}
		out := protoc(t, "grpc_python_plugin", "--python_out", "--grpc_python_out")
		env := []string{"PYTHONPATH=" + out}
		want(t, run(t, out, env, python, filepath.Join(testdata, "find.py"), g.GRPC), line)
	})
	t.Run("java", func(t *testing.T) {
		path := javaPath(t)
		out := protoc(t, "grpc_java_plugin", "--java_out", "--grpc-java_out")
		classes := filepath.Join(out, "classes")
		run(t, out, nil, "sh", "-c", "javac -nowarn -proc:none -d classes -cp '"+path+
			"' $(find . -name '*.java') "+filepath.Join(testdata, "Find.java"))
		got := run(t, out, nil, "java", "-cp", classes+string(filepath.ListSeparator)+path, "Find",
			g.GRPC)
		want(t, got, line)
	})
}

// protoc generates messages and stubs from the proto files that the programs use, since Java takes
// long for all of them. It returns where they are.
func protoc(t *testing.T, plugin, messages, stubs string) string {
	t.Helper()
	path, err := exec.LookPath(plugin)
	if err != nil {
		t.Skipf("%s is not installed", plugin)
	}
	out := t.TempDir()
	name := strings.TrimSuffix(strings.TrimPrefix(stubs, "--"), "_out")
	run(t, root(t), nil, "sh", "-c", "protoc -I proto -I third_party/googleapis "+
		messages+"="+out+" "+stubs+"="+out+" --plugin=protoc-gen-"+name+"="+path+
		" proto/mooring/v1/annotations.proto proto/mooring/v1/document.proto"+
		" proto/mooring/v1/document_service.proto proto/mooring/v1/error.proto"+
		" proto/mooring/v1/options.proto"+
		" third_party/googleapis/google/api/annotations.proto"+
		" third_party/googleapis/google/api/http.proto")
	return out
}

// jars are those of Debian's packages libgrpc-java, libnetty-java and libperfmark-java.
var jars = regexp.MustCompile(
	`/(grpc-(api|context|core|netty|protobuf|protobuf-lite|stub)|protobuf|guava|` +
		`perfmark-api|netty-[a-z0-9-]+|geronimo-annotation-1.3-spec)\.jar$`)

// javaPath returns the class path of gRPC for Java.
func javaPath(t *testing.T) string {
	t.Helper()
	all, err := filepath.Glob("/usr/share/java/*.jar")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, jar := range all {
		if jars.MatchString(jar) && !strings.HasSuffix(jar, "netty-all.jar") {
			found = append(found, jar)
		}
	}
	path := strings.Join(found, string(filepath.ListSeparator))
	for _, part := range []string{"grpc-netty.jar", "netty-codec-http2.jar", "perfmark-api.jar"} {
		if !strings.Contains(path, part) {
			t.Skipf("%s is not installed", part)
		}
	}
	return path
}
