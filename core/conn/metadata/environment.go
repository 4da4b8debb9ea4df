package metadata

import (
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// Environment describes where a program runs: as a function, in a container, both or neither.
type Environment struct {
	// Name is aws.lambda, azure.func, gcp.func or vercel, or empty where no function runs.
	Name       string
	TimeoutSec *int32
	MemoryMB   *int32
	Region     string

	// Runtime and Orchestrator describe the container: docker and kubernetes.
	Runtime, Orchestrator string
}

// IsFunction reports whether the program is a function as a service, which may be frozen between
// two requests.
func (e Environment) IsFunction() bool { return e.Name != "" }

// Detect finds the environment of the program by its environment variables and by the existence
// of files. An empty or invalid variable counts as missing.
func Detect(getenv func(name string) string, exists func(path string) bool) Environment {
	e := function(getenv)
	if exists("/.dockerenv") {
		e.Runtime = "docker"
	}
	if getenv("KUBERNETES_SERVICE_HOST") != "" {
		e.Orchestrator = "kubernetes"
	}
	return e
}

// functions lists the kinds of functions: the variables that identify them, and those with
// details.
var functions = []struct {
	name                    string
	is                      func(getenv func(string) string) bool
	memory, timeout, region string
}{
	{
		name: "aws.lambda", is: isLambda, memory: "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
		region: "AWS_REGION",
	},
	{name: "azure.func", is: anyOf("FUNCTIONS_WORKER_RUNTIME")},
	{
		name: "gcp.func", is: anyOf("K_SERVICE", "FUNCTION_NAME"),
		memory: "FUNCTION_MEMORY_MB", timeout: "FUNCTION_TIMEOUT_SEC", region: "FUNCTION_REGION",
	},
	{name: "vercel", is: anyOf("VERCEL"), region: "VERCEL_REGION"},
}

// function returns the one kind of function that the variables show. If they show several, it
// returns none, except for vercel, which runs on aws.lambda.
func function(getenv func(string) string) Environment {
	var found []Environment
	for _, f := range functions {
		if f.is(getenv) {
			found = append(found, Environment{
				Name: f.name, MemoryMB: number(getenv, f.memory),
				TimeoutSec: number(getenv, f.timeout), Region: get(getenv, f.region),
			})
		}
	}
	switch {
	case len(found) == 1:
		return found[0]
	case len(found) == 2 && found[0].Name == "aws.lambda" && found[1].Name == "vercel":
		return found[1]
	}
	return Environment{}
}

func isLambda(getenv func(string) string) bool {
	return strings.HasPrefix(getenv("AWS_EXECUTION_ENV"), "AWS_Lambda_") ||
		getenv("AWS_LAMBDA_RUNTIME_API") != ""
}

func anyOf(names ...string) func(func(string) string) bool {
	return func(getenv func(string) string) bool {
		for _, name := range names {
			if getenv(name) != "" {
				return true
			}
		}
		return false
	}
}

func get(getenv func(string) string, name string) string {
	if name == "" {
		return ""
	}
	return strings.ToValidUTF8(getenv(name), "\uFFFD")
}

func number(getenv func(string) string, name string) *int32 {
	n, err := strconv.ParseInt(get(getenv, name), 10, 32)
	if err != nil {
		return nil
	}
	return new(int32(n))
}

// append appends env, unless it is empty.
func (e Environment) append(b *bson.Builder) {
	if e == (Environment{}) {
		return
	}
	b.OpenDocument("env")
	appendString(b, "name", e.Name)
	if e.TimeoutSec != nil {
		b.Int32("timeout_sec", *e.TimeoutSec)
	}
	if e.MemoryMB != nil {
		b.Int32("memory_mb", *e.MemoryMB)
	}
	appendString(b, "region", e.Region)
	if e.Runtime != "" || e.Orchestrator != "" {
		b.OpenDocument("container")
		appendString(b, "runtime", e.Runtime)
		appendString(b, "orchestrator", e.Orchestrator)
		b.Close()
	}
	b.Close()
}
