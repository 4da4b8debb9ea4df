package protocols

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// protosKey names the environment's variable that makes this program the server that the suite
// starts. Its value is the folder of the suite's protos.
const protosKey = "LAB_PROTOCOLS_PROTOS"

func TestMain(m *testing.M) {
	if protos := os.Getenv(protosKey); protos != "" {
		if err := runJudged(context.Background(), protos); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// TestConformance runs Connect's conformance suite for gRPC, gRPC-Web and Connect. Each list of
// known failures is exact: the suite fails, too, if one of them passes.
func TestConformance(t *testing.T) {
	runner := suite(t, "connectrpc.com/conformance/cmd/connectconformance")
	module := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"connectrpc.com/conformance")
	module.Dir = filepath.Join("..", "..", "tools", "protocols")
	dir, err := module.Output()
	if err != nil {
		t.Fatal(err)
	}
	protos := filepath.Join(string(bytes.TrimSpace(dir)), "proto")
	for _, port := range []string{"grpc", "web"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			//nolint:gosec // the suite, and this program
			run := exec.CommandContext(t.Context(), runner, "--mode", "server",
				"--conf", filepath.Join("testdata", port+".yaml"),
				"--known-failing", "@"+filepath.Join("testdata", port+"-known-failing.txt"),
				"--known-flaky", "@"+filepath.Join("testdata", port+"-known-flaky.txt"),
				"--", os.Args[0])
			run.Env = append(os.Environ(), protosKey+"="+protos)
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(lastLines(string(out), 3))
		})
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

const (
	conformancePackage = "connectrpc.conformance.v1."
	conformanceService = conformancePackage + "ConformanceService"
)

// registerProtos makes the suite's messages known to this program: the suite keeps the code that is
// generated from them to itself.
func registerProtos(ctx context.Context, dir string) error {
	files, err := (&protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(
			&protocompile.SourceResolver{ImportPaths: []string{dir}},
		),
	}).Compile(ctx, "connectrpc/conformance/v1/config.proto",
		"connectrpc/conformance/v1/service.proto", "connectrpc/conformance/v1/server_compat.proto")
	if err != nil {
		return err
	}
	for _, f := range files {
		// As generated code does: with the descriptors of what it imports from this program.
		file, err := protodesc.NewFile(protodesc.ToFileDescriptorProto(f),
			protoregistry.GlobalFiles)
		if err != nil {
			return err
		}
		if err := protoregistry.GlobalFiles.RegisterFile(file); err != nil {
			return err
		}
		if err := registerMessages(file.Messages()); err != nil {
			return err
		}
	}
	return nil
}

func registerMessages(of protoreflect.MessageDescriptors) error {
	for i := range of.Len() {
		d := of.Get(i)
		if err := protoregistry.GlobalTypes.RegisterMessage(
			dynamicpb.NewMessageType(d)); err != nil {
			return err
		}
		if err := registerMessages(d.Messages()); err != nil {
			return err
		}
	}
	return nil
}
