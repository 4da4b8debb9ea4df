package method_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// protobuf cannot share fields between messages: each request repeats those of the requests that it
// is like. These tests hold the repetitions equal, in name, number, type, options and comment.

// block describes a request that repeats the fields of another.
type block struct {
	request, like string
	lacks, adds   string // the fields that only one of the two has
	worded        string // the fields whose comments differ
}

var blocks = []block{
	{request: "StreamFind", like: "Find", worded: "batch_size"},
	{
		request: "FindOne", like: "Find",
		lacks: "limit batch_size max_await_time_ms allow_disk_use tailable await_data no_cursor_timeout",
	},
	{
		request: "ExplainFind", like: "Find", adds: "verbosity",
		lacks: "read_concern max_await_time_ms tailable await_data no_cursor_timeout",
	},
	{request: "StreamAggregate", like: "Aggregate", worded: "batch_size"},
	{
		request: "ExplainAggregate", like: "Aggregate", adds: "verbosity",
		lacks: "read_concern write_concern max_await_time_ms",
	},
	{request: "Import", like: "InsertMany", worded: "documents"},
	{
		request: "InsertOne", like: "InsertMany", adds: "document",
		lacks: "documents ordered return_partial_success",
	},
	{request: "UpdateMany", like: "UpdateOne", lacks: "sort", worded: "filter"},
	{
		request: "ReplaceOne", like: "UpdateOne", lacks: "update array_filters", adds: "replacement",
	},
	{request: "DeleteMany", like: "DeleteOne", worded: "filter"},
	{
		request: "FindOneAndReplace", like: "FindOneAndUpdate", lacks: "update array_filters",
		adds: "replacement",
	},
	{
		request: "FindOneAndDelete", like: "FindOneAndUpdate",
		lacks: "update bypass_document_validation upsert array_filters return_document",
	},
	{request: "StreamRunCursorCommand", like: "RunCursorCommand"},
	{request: "CursorServiceStream", like: "NextPage", worded: "batch_size"},
}

// TestBlocks checks that requests repeat the fields of those that they are like.
func TestBlocks(t *testing.T) {
	requests := readRequests(t)
	for _, b := range blocks {
		this, other := requests[b.request], requests[b.like]
		if this == nil || other == nil {
			t.Errorf("there is no %s or %s", b.request, b.like)
			continue
		}
		names := slices.Sorted(maps.Keys(this))
		for name := range other {
			if _, ok := this[name]; !ok {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if problem := b.compare(name, this[name], other[name]); problem != "" {
				t.Errorf("%sRequest.%s, which is like %s: %s", b.request, name, b.like, problem)
			}
		}
	}
}

// compare returns what is wrong with a field of a request and that of the other; "": nothing.
func (b block) compare(name string, this, other *field) string {
	lacks, adds := lists(b.lacks, name), lists(b.adds, name)
	switch {
	case lacks != (this == nil) || adds != (other == nil):
		return "only one of the two has it, or the test says so without reason"
	case this == nil || other == nil:
		return ""
	case this.declaration != other.declaration:
		return fmt.Sprintf("%s, and not %s", this.declaration, other.declaration)
	case (this.comment == other.comment) == lists(b.worded, name):
		return fmt.Sprintf("%q and %q", this.comment, other.comment)
	}
	return ""
}

func lists(names, name string) bool { return slices.Contains(strings.Fields(names), name) }

// lastShared is the highest number that means the same in every request.
const lastShared = 21

// own lists the services whose requests have numbers of their own: they are about no collection.
var own = []string{"deployment_service.proto"}

// reworded lists the shared fields that have a meaning of their own in a few requests, which their
// comments say.
var reworded = map[string]string{
	"filter": "" +
		"ListDatabases ListCollections GetDocument PatchDocument DeleteDocument " +
		"PutDocument UpdateOne UpdateMany ReplaceOne DeleteOne DeleteMany " +
		"FindOneAndUpdate FindOneAndReplace FindOneAndDelete",
	"session": "" +
		"SessionServiceEnd TransactionServiceBegin TransactionServiceRun " +
		"TransactionServiceCommit NextPage CursorServiceStream CloseCursor",
	"transaction": "" +
		"TransactionServiceCommit TransactionServiceAbort NextPage CursorServiceStream " +
		"CloseCursor",
	"statement":   "NextPage CursorServiceStream RunCommand RunCursorCommand StreamRunCursorCommand",
	"comment":     "RunCursorCommand StreamRunCursorCommand",
	"max_time_ms": "RunCursorCommand StreamRunCursorCommand",
	"batch_size": "" +
		"ListDatabases ListCollections ListIndexes ListSearchIndexes Watch " +
		"RunCursorCommand StreamRunCursorCommand NextPage CursorServiceStream StreamFind " +
		"StreamAggregate",
	"max_await_time_ms": "Watch NextPage CursorServiceStream",
	"database":          "Watch BulkWrite RunCommand RunCursorCommand StreamRunCursorCommand",
	"collection":        "Watch Aggregate StreamAggregate ExplainAggregate",
	"write_concern": "" +
		"CreateCollection DropCollection DropDatabase RenameCollection CreateIndexes " +
		"DropIndexes CollMod PutDocument PatchDocument DeleteDocument " +
		"TransactionServiceBegin TransactionServiceRun",
	"read_preference": "" +
		"RunCommand RunCursorCommand StreamRunCursorCommand TransactionServiceBegin " +
		"TransactionServiceRun",
	"read_concern": "Watch TransactionServiceBegin TransactionServiceRun",
	"collation":    "Watch",
	"let":          "BulkWrite",
	"projection":   "GetDocument PatchDocument",
	"sort":         "UpdateOne ReplaceOne FindOneAndUpdate FindOneAndReplace FindOneAndDelete",
}

// TestSharedNumbers checks that the low numbers mean the same in every request: they have one name,
// one type and one comment, but for those that are reworded.
func TestSharedNumbers(t *testing.T) {
	requests := readRequests(t, own...)
	find := requests["Find"]
	find["write_concern"] = requests["InsertOne"]["write_concern"] // which no find has
	byNumber := map[int]string{}
	for name, f := range find {
		byNumber[f.number] = name
	}
	for request, fields := range requests {
		for name, f := range fields {
			if f.number > lastShared {
				continue
			}
			shared, where := find[name], request+"Request."+name
			switch {
			case shared == nil || byNumber[f.number] != name:
				t.Errorf("%s has the number of %s", where, byNumber[f.number])
			case required(shared) != required(f):
				t.Errorf("%s: %s, and not %s", where, f.declaration, shared.declaration)
			case (shared.comment == f.comment) == lists(reworded[name], request):
				t.Errorf("%s: %q and %q", where, f.comment, shared.comment)
			}
		}
	}
}

// TestNames checks that a name means one number and one type in all requests about documents.
func TestNames(t *testing.T) {
	first := map[string]*field{}
	for request, fields := range readRequests(t,
		"catalog_service.proto", "deployment_service.proto", "transaction_service.proto") {
		for name, f := range fields {
			if other := first[name]; other != nil && required(f) != required(other) {
				t.Errorf("%sRequest: %s, and elsewhere %s", request, f.declaration,
					other.declaration)
			}
			first[name] = f
		}
	}
}

// required returns the declaration of a field without its label: what one request can be without,
// another demands.
func required(f *field) string { return strings.TrimPrefix(f.declaration, "optional ") }

// field has what a file of the API says of a field.
type field struct {
	number               int
	declaration, comment string
}

var (
	messages = regexp.MustCompile(`(?ms)^message (\w+)Request \{\n(.*?)^\}`)
	fields   = regexp.MustCompile(
		`(?m)((?:^ +//.*\n)+)^ +((?:optional |repeated )?[\w.<>, ]+? (\w+) = (\d+)(?: \[[^\]]*\])?);`)
	space = regexp.MustCompile(`\s+(?://\s*)?`)
)

// readRequests reads the requests of all services but those in a few files. The descriptors in gen/
// have no comments.
func readRequests(t *testing.T, but ...string) map[string]map[string]*field {
	t.Helper()
	files, err := filepath.Glob("../../proto/mooring/v1/*_service.proto")
	if err != nil || len(files) < 5 {
		t.Fatalf("files: %v, %v", files, err)
	}
	requests := map[string]map[string]*field{}
	for _, file := range files {
		if slices.Contains(but, filepath.Base(file)) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages.FindAllStringSubmatch(string(text), -1) {
			all := map[string]*field{}
			for _, f := range fields.FindAllStringSubmatch(m[2], -1) {
				one := &field{comment: space.ReplaceAllString(f[1], " ")}
				one.declaration = space.ReplaceAllString(f[2], " ")
				if _, err := fmt.Sscan(f[4], &one.number); err != nil {
					t.Fatal(err)
				}
				all[f[3]] = one
			}
			requests[m[1]] = all
		}
	}
	return requests
}
