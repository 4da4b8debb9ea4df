package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// write writes a file of the folder.
func (w *world) write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// numbers returns NDJSON of documents without an _id, with pads of size bytes: {"n": 0, "pad": ""}.
func numbers(n, size int) []byte {
	var b bytes.Buffer
	pad := strings.Repeat("x", size)
	for i := range n {
		fmt.Fprintf(&b, "{\"n\": %d, \"pad\": %q}\n", i, pad)
	}
	return b.Bytes()
}

// wide is the size of documents of which few make a batch: the deployment is slow with many.
const wide = 80_000

// checkNumbers checks that a collection has each of n numbers once.
func (w *world) checkNumbers(t *testing.T, namespace string, n int) {
	t.Helper()
	docs, _ := w.deployment.Documents(namespace)
	times := make([]int, n)
	for _, d := range docs {
		v, _ := d.Lookup("n")
		i, _ := v.AsInt64()
		times[i]++
	}
	for i, k := range times {
		if k != 1 {
			t.Errorf("%s has number %d %d times, want once", namespace, i, k)
			return
		}
	}
}

// TestImportForms imports the same documents in all forms, each recognized by what it has.
func TestImportForms(t *testing.T) {
	w := newWorld(t)
	w.use(t, w.addresses["gateway"])
	ndjson := numbers(1200, 0)
	array := "[" + strings.ReplaceAll(strings.TrimSpace(string(ndjson)), "\n", ",\n") + "]"
	var dump []byte
	csv := "n.int32()\n"
	for i := range 1200 {
		dump = append(dump, bson.NewBuilder(nil).Int32("n", int32(i)).Finish()...)
		csv += fmt.Sprintln(i)
	}
	packed := func(w io.WriteCloser, b *bytes.Buffer, text []byte) []byte {
		_, err := w.Write(text)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	forms := map[string][]byte{
		"ndjson": ndjson, "marked": append([]byte("\xef\xbb\xbf"), ndjson...), "array": []byte(array),
		"csv": []byte(csv), "bson": dump,
	}
	for _, name := range []string{"ndjson", "csv", "bson"} {
		var gz, zs bytes.Buffer
		forms[name+"_gzip"] = packed(gzip.NewWriter(&gz), &gz, forms[name])
		z, err := zstd.NewWriter(&zs)
		if err != nil {
			t.Fatal(err)
		}
		forms[name+"_zstd"] = packed(z, &zs, forms[name])
	}
	for name, text := range forms {
		t.Run(name, func(t *testing.T) {
			w.write(t, name, text)
			for i, line := range []string{
				"import db." + name + " $DIR/" + name + " --quiet", "import db." + name + "_stdin --quiet",
			} {
				stdin := ""
				if i == 1 {
					stdin = string(text)
				}
				const want = "{\"insertedCount\":1200,\"rejectedCount\":0}\n"
				if said := w.run(t, line, stdin); said != want {
					t.Errorf("%s prints %q, want %q", line, said, want)
				}
			}
			w.checkNumbers(t, "db."+name, 1200)
			w.checkNumbers(t, "db."+name+"_stdin", 1200)
		})
	}
}

// TestImportKilled kills an import after some of its batches are written and others are on their
// way, and continues it: by the keys of batches at the gateway, and by the _ids of documents where
// the gateway in the process has begun with another key. No document is there twice, and none is
// missing. The rejects are those of an import that is not killed.
func TestImportKilled(t *testing.T) {
	const n = 640
	w := newWorld(t)
	text := numbers(n, wide)
	bad := []byte("nonsense\n")
	for kind, address := range w.addresses {
		for _, form := range []string{"", " upserts", " series"} {
			t.Run(kind+form, func(t *testing.T) {
				w.use(t, address)
				w.write(t, "with_bad", slices.Concat(bad, text, bad))
				name := "db." + kind + strings.TrimSpace(form)
				var batches atomic.Int32
				reached := make(chan struct{}, 100)
				w.deployment.Disturb(func(
					cmd *fakemongo.Command, next fakemongo.Handler,
				) fakemongo.Reply {
					if cmd.Name != "insert" && cmd.Name != "update" {
						return next(cmd)
					}
					k := batches.Add(1)
					reply := next(cmd)
					if k > 7 { // written, but the answer does not come
						reached <- struct{}{}
						return fakemongo.Hang()
					}
					return reply
				})
				line := "import " + name +
					" $DIR/with_bad --format ndjson --continue $DIR/state --rejects $DIR/rejects"
				want := fmt.Sprintf("{\"insertedCount\":%d,\"rejectedCount\":2}\n", n)
				switch form {
				case " series":
					w.deployment.SetOptions(name, bson.NewBuilder(nil).OpenDocument("timeseries").
						String("timeField", "t").Close().Finish())
				case " upserts":
					line += " --upsert --upsert-fields n"
					want = `{"insertedCount":`
				}
				_ = os.Remove(filepath.Join(w.dir, "state"))
				cmd := w.process(t, line)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				<-reached
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it was killed
				docs, _ := w.deployment.Documents(name)
				if len(docs) < 200 || len(docs) >= n {
					t.Fatalf("%d documents after the kill, want some", len(docs))
				}
				w.deployment.Disturb(nil)
				said := w.run(t, line, "")
				if !strings.HasPrefix(said, want) {
					t.Errorf("the second run prints %q, want %q", said, want)
				}
				w.checkNumbers(t, name, n)
				rejects, err := os.ReadFile(filepath.Join(w.dir, "rejects"))
				if lines := bytes.Count(rejects, []byte{'\n'}); err != nil || lines != 2 ||
					!bytes.Contains(rejects, []byte(`"line":1,`)) ||
					!bytes.Contains(rejects, []byte(`"line":642,`)) {
					t.Errorf("%d rejects, want those of lines 1 and 642: %s %v", lines, rejects,
						err)
				}
				const finished = "mooring: this import is finished, with 640 written and 2 " +
					"rejected: remove $DIR/state to import again\nexit code 1\n"
				if said := w.run(t, line, ""); said != finished {
					t.Errorf("a third run prints %q, want %q", said, finished)
				}
				w.checkNumbers(t, name, n)
				// Its rejects may have been taken away since.
				if err := os.Remove(filepath.Join(w.dir, "rejects")); err != nil {
					t.Fatal(err)
				}
				w.write(t, "with_bad", slices.Concat(bad, text, bad, bad))
				w.run(t, line, "")
				rejects, err = os.ReadFile(filepath.Join(w.dir, "rejects"))
				if err != nil || bytes.Count(rejects, []byte{'\n'}) != 1 ||
					!bytes.HasPrefix(rejects, []byte(`{"line":643,`)) {
					t.Errorf("rejects %q %v, want that of line 643", rejects, err)
				}
			})
			w.deployment.Disturb(nil)
		}
	}
}

// TestImportAnswersLost loses the answer of every third batch, and of every call for a while.
func TestImportAnswersLost(t *testing.T) {
	const n = 640
	w := newWorld(t)
	w.write(t, "numbers", numbers(n, wide))
	for kind, address := range w.addresses {
		t.Run(kind, func(t *testing.T) {
			w.use(t, address)
			var batches atomic.Int32
			w.deployment.Disturb(func(
				cmd *fakemongo.Command, next fakemongo.Handler,
			) fakemongo.Reply {
				reply := next(cmd)
				if cmd.Name == "insert" && batches.Add(1)%3 == 0 {
					return fakemongo.Drop()
				}
				return reply
			})
			defer w.deployment.Disturb(nil)
			want := fmt.Sprintf("{\"insertedCount\":%d,\"rejectedCount\":0}\n", n)
			if said := w.run(t, "import db."+kind+" $DIR/numbers --quiet", ""); said != want {
				t.Errorf("import prints %q, want %q", said, want)
			}
			w.checkNumbers(t, "db."+kind, n)
		})
	}
}

// TestUnacknowledged checks that no command succeeds whose write concern is not met.
func TestUnacknowledged(t *testing.T) {
	w := newWorld(t)
	w.use(t, w.addresses["gateway"])
	w.write(t, "doc", []byte("{\"_id\": 1}\n"))
	w.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		switch cmd.Name {
		case "insert", "update", "delete":
			return fakemongo.OK(func(b *bson.Builder) {
				b.Int32("n", 1).Int32("nModified", 1).OpenDocument("writeConcernError").
					Int32("code", 64).String("codeName", "WriteConcernTimeout").
					String("errmsg", "waited").Close()
			})
		}
		return next(cmd)
	})
	const (
		failed = "mooring: written, but not acknowledged as the write concern asks: " +
			"WriteConcernTimeout (64): waited\nexit code 1\n"
		field = `"writeConcernError":{"code":64,"codeName":"WriteConcernTimeout","message":"waited"}}` +
			"\n" + failed
	)
	for _, row := range []struct{ line, want string }{
		{"insert a.b {\"_id\":1}", "{\"insertedId\":1}\n" + failed},
		{"update a.b {} {\"$set\":{\"a\":1}}", `{"matchedCount":1,"modifiedCount":1,` + field},
		{"update a.b {} {\"$set\":{\"a\":1}} --many", `{"matchedCount":1,"modifiedCount":1,` + field},
		{"delete a.b {}", `{"deletedCount":1,` + field},
		{"delete a.b {} --many", `{"deletedCount":1,` + field},
		{
			`call DocumentService/DeleteOne {"database":"a","collection":"b","filter":{}}`,
			`{"acknowledged":true,"deletedCount":1,` + strings.Replace(field, `"}`, `","labels":[]}`, 1),
		},
		{
			`call DocumentService/Import {"database":"a","collection":"b","documents":[{"_id":1}]}`,
			`{"acknowledged":true,"insertedCount":1,` + strings.Replace(field, `"}}`, `","labels":[]},"failedCount":0}`, 1),
		},
		{"import a.b $DIR/doc --quiet", "{\"insertedCount\":1,\"rejectedCount\":0}\n" + failed},
		{"import a.b $DIR/doc --quiet --upsert", "{\"insertedCount\":0,\"replacedCount\":1,\"rejectedCount\":0}\n" + failed},
	} {
		if said := w.run(t, row.line, ""); said != row.want {
			t.Errorf("%s prints %q, want %q", row.line, said, row.want)
		}
	}
}

// TestImportContinuesOnlyItself checks that a checkpoint is for one import to one place, and only
// until that is finished and the file has no more. One of an earlier release says neither where the
// import goes nor whether it is finished, and the end of a pipe may not be that of what its writer
// has.
func TestImportContinuesOnlyItself(t *testing.T) {
	w := newWorld(t)
	w.use(t, w.addresses["gateway"])
	w.write(t, "numbers", numbers(10, 0))
	w.write(t, "others", numbers(11, 1))
	w.write(t, "nonsense", []byte("{]"))
	const finished = "mooring: this import is finished, with 10 written and 0 rejected: " +
		"remove $DIR/"
	run := func(line, stdin, want string) {
		t.Helper()
		if said := w.run(t, line, stdin); !strings.HasPrefix(said, want) {
			t.Errorf("%s prints %q, want %q", line, said, want)
		}
	}
	elsewhere := " --address " + w.addresses["deployment"]
	for _, row := range []struct{ line, want string }{
		{"import a.b $DIR/numbers --continue $DIR/state", `{"insertedCount":10`},
		{"import a.b $DIR/others --continue $DIR/state", "mooring: $DIR/state belongs to another file"},
		{"import a.c $DIR/numbers --continue $DIR/state", "mooring: $DIR/state belongs to another import"},
		{"import a.b $DIR/numbers --continue $DIR/state" + elsewhere, "mooring: $DIR/state belongs to an import at ADDRESS"},
		{"import a.b $DIR/numbers --continue $DIR/state", finished + "state to import again\nexit code 1\n"},
		{"import a.b $DIR/numbers --continue $DIR/nonsense", "mooring: $DIR/nonsense is not a checkpoint"},
		{"import a.b $DIR/numbers --continue $DIR/no/state", "mooring: open $DIR/no/state"},
		{"export a.b --file $DIR/copy --continue $DIR/copied", `{"exportedCount":10`},
		{"export a.b --file $DIR/copy --continue $DIR/copied" + elsewhere, "mooring: $DIR/copied belongs to an export at ADDRESS"},
	} {
		run(row.line, "", row.want)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	earlier := strings.NewReplacer(`"address":"`+w.addresses["gateway"]+`",`, "", `"done":true,`, "",
		fmt.Sprintf(`"headBytes":%d,`, len(numbers(10, 0))), "").Replace(string(text))
	if len(earlier) == len(text) {
		t.Fatalf("the state is %s", text)
	}
	w.write(t, "earlier", []byte(earlier))
	run("import a.b $DIR/numbers --continue $DIR/earlier", "", `{"insertedCount":10`)
	run("import a.b $DIR/numbers --continue $DIR/earlier", "", finished+"earlier")
	run("import a.d --continue $DIR/pipe", string(numbers(10, 0)), `{"insertedCount":10`)
	run("import a.d --continue $DIR/pipe", string(numbers(10, 0)), `{"insertedCount":10`)
	w.checkNumbers(t, "a.b", 10)
	w.checkNumbers(t, "a.d", 10)
	// A file that has grown is the same one, and one that is shorter is not.
	for _, n := range []int{0, 10, 20, 2000, 2010} {
		w.write(t, "log", numbers(n, 0))
		run("import a.e $DIR/log --continue $DIR/logged", "", fmt.Sprintf(`{"insertedCount":%d`, n))
		w.checkNumbers(t, "a.e", n)
	}
	run("import a.e $DIR/log --continue $DIR/logged", "",
		strings.Replace(finished, "10", "2010", 1))
	w.write(t, "log", numbers(5, 0))
	run("import a.e $DIR/log --continue $DIR/logged", "",
		"mooring: $DIR/logged belongs to another file")
}

// TestImportMemory imports 192 MiB, through a gateway that keeps nothing, within 160 MiB: the bound
// that docs/cli.md states, and what a process has without documents.
func TestImportMemory(t *testing.T) {
	w := newWorld(t)
	w.use(t, w.addresses["gateway"])
	w.deployment.Disturb(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "insert" {
			return fakemongo.OK(func(b *bson.Builder) { b.Int32("n", 1) })
		}
		return next(cmd)
	})
	cmd := w.process(t, "import a.b --quiet")
	doc := []byte(`{"pad": "` + strings.Repeat("x", 1000) + "\"}\n")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	part := bytes.Repeat(doc, 1024)
	for range 192 {
		if _, err := in.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	used := peak(t, cmd.Process.Pid)
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB at most", used)
	most := 160
	if raceEnabled {
		most *= 2 // what the race detector keeps beside
	}
	if used > most {
		t.Errorf("import used %d MiB, want at most %d", used, most)
	}
}

// peak returns the most memory that a process has had, in MiB. What Wait returns would be that of
// the test before it became the process, too.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("the system does not say what a process uses: ", err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var used int
	if _, err := fmt.Sscan(rest, &used); err != nil {
		t.Fatal(err)
	}
	return used >> 10
}
