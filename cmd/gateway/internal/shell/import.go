package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/cmd/gateway/internal/transfer"
	"github.com/mooringdb/mooring/core/bson"
)

var importCommand = &Command{
	Name: "import", Operands: "NAMESPACE [FILE]", run: runImport,
	Synopsis: "insert the documents of a file",
	Doc: `Inserts the documents of a file, or of standard input, into a collection, and prints how
many. The file is NDJSON, a JSON array, CSV or BSON, and may be gzip or zstd: its first bytes
decide. The first row of CSV names the fields, with types if you want them:
name,age.int32(),at.date().

What cannot be inserted is reported with line and column; the rest goes on. A batch whose answer
is lost is sent again and inserted once. With --continue, the same command goes on after a kill:
no document is there twice, and none is missing.

  mooring import shop.orders orders.csv.gz --rejects rejects.ndjson --continue orders.state
  mooring import shop.users users.ndjson --upsert --upsert-fields email`,
	Flags: func(flags *pflag.FlagSet) {
		flags.String("format", "", "form of the file: "+transfer.Formats+
			" (default what it begins like)")
		flags.String("columns", "", "columns of a CSV file whose first row does not name them")
		flags.String("comma", "", `what separates the cells of CSV, such as ";" or a tab `+
			`(default ",")`)
		flags.Bool("upsert", false, "replace the document that has the same --upsert-fields")
		flags.String("upsert-fields", "_id", "fields that a document is recognized by")
		flags.String("rejects", "", "file for the documents that are not written, as NDJSON with "+
			"line, column, reason and text (default standard error, without the text)")
		flags.String("continue", "", "file that keeps how far the import has come")
		flags.Bool("quiet", false, "show no progress")
		outputFlag(flags)
	},
}

func runImport(ctx context.Context, s *session) error {
	o, err := s.sourceOptions()
	if err != nil {
		return err
	}
	i := transfer.Import{
		Source: o, Checkpoint: s.text("continue"),
		Target: fmt.Sprintf("%s upsert=%v %s", s.operand(0), s.isSet("upsert"),
			s.text("upsert-fields")),
	}
	if s.isSet("upsert") {
		i.UpsertFields = strings.Split(s.text("upsert-fields"), ",")
	} else if s.Flags.Changed("upsert-fields") {
		return usage("--upsert-fields needs --upsert")
	}
	file, size, err := s.open(s.operand(1))
	if err != nil {
		return err
	}
	defer file.Close()
	if i.Rejects, err = s.rejects(); err != nil {
		return err
	}
	if i.Collection, err = s.collection(ctx); err != nil {
		return err
	}
	i.Address, i.Ends = s.leads, size >= 0
	read := &counted{r: file}
	p := s.progress("imported", size)
	defer p.close()
	i.Progress = func(n transfer.Imported) {
		p.set(read.n.Load(), n.Inserted+n.Replaced, n.Rejected)
	}
	counts, err := i.Run(ctx, read)
	p.close()
	if _, ok := errors.AsType[*transfer.FinishedError](err); ok {
		return err
	}
	if err != nil {
		err = describe(err, s.address)
		if n := counts.Inserted + counts.Replaced; n+counts.Rejected > 0 {
			err = fmt.Errorf("%w\nbefore that: %d written, %d rejected", err, n, counts.Rejected)
		}
		return s.unfinished("import", err)
	}
	b := bson.NewBuilder(nil).Int64("insertedCount", counts.Inserted)
	if s.isSet("upsert") {
		b.Int64("replacedCount", counts.Replaced)
	}
	if err := s.print(b.Int64("rejectedCount", counts.Rejected).Finish()); err != nil {
		return err
	}
	err = unacknowledged(counts.Unacknowledged)
	switch counts.Rejected {
	case 0:
		return err
	case 1:
		return errors.Join(fmt.Errorf("1 document was rejected%s", s.where()), err)
	}
	return errors.Join(
		fmt.Errorf("%d documents were rejected%s", counts.Rejected, s.where()), err)
}

// where says where the rejected documents are.
func (s *session) where() string {
	if path := s.text("rejects"); path != "" {
		return ": see " + path
	}
	return ""
}

// unfinished adds to the error of a transfer how to go on.
func (s *session) unfinished(what string, err error) error {
	if s.text("continue") == "" {
		return err
	}
	return fmt.Errorf("%w\nthe same command continues the %s", err, what)
}

func (s *session) sourceOptions() (o transfer.SourceOptions, err error) {
	o.Format = transfer.Format(s.text("format"))
	if o.Columns, err = render.Columns(s.text("columns")); err != nil {
		return o, usage("--columns: %v", err)
	}
	comma := strings.ReplaceAll(s.text("comma"), `\t`, "\t")
	switch {
	case o.Format != "" && !o.Format.IsKnown():
		return o, usage("--format must be %s", transfer.Formats)
	case len(comma) > 1 || strings.ContainsAny(comma, "\"\r\n") || comma > "\x7f":
		return o, usage("--comma must be one ASCII character")
	case comma != "":
		o.Comma = comma[0]
	}
	return o, nil
}

// open opens a file, or standard input for "" and "-", and returns its size; -1: unknown.
func (s *session) open(path string) (io.ReadCloser, int64, error) {
	if path == "" || path == "-" {
		return io.NopCloser(s.Stdin), -1, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = usage("%s is a directory", path)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}

// counted counts the bytes that are read.
type counted struct {
	r io.Reader
	n atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// rejects returns what takes the documents that are not written.
func (s *session) rejects() (transfer.Rejects, error) {
	path := s.text("rejects")
	if path == "" {
		return &told{w: s.Stderr}, nil
	}
	flag, continues := os.O_TRUNC, s.text("continue") != ""
	if continues {
		flag = 0 // At cuts what is too much
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag, 0o600)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { f.Close() })
	if _, err := f.Seek(0, io.SeekCurrent); err != nil && continues {
		return nil, usage("--continue needs rejects in a file that can be cut: %v", err)
	}
	return &rejected{f}, nil
}

// told writes the first rejects for people.
type told struct {
	w io.Writer
	n int
}

// mostTold is how many rejects are written for people.
const mostTold = 20

func (t *told) Reject(r *transfer.Trouble) error {
	switch t.n++; {
	case t.n <= mostTold:
		fmt.Fprintf(t.w, "mooring: %s\n", render.Plain(r.Error()))
	case t.n == mostTold+1:
		fmt.Fprintln(t.w, "mooring: …: --rejects FILE has them all")
	}
	return nil
}

func (t *told) Size() (int64, error) { return 0, nil }
func (t *told) At(int64) error       { return nil }
func (t *told) Sync() error          { return nil }

// rejected writes rejects into a file.
type rejected struct{ f *os.File }

func (r *rejected) Reject(t *transfer.Trouble) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_, err = r.f.Write(append(text, '\n'))
	if file, ok := errors.AsType[*fs.PathError](err); ok { // not isGone: the import is not done
		err = fmt.Errorf("write the rejects to %s: %w", file.Path, file.Err)
	}
	return err
}

func (r *rejected) Size() (int64, error) { return r.f.Seek(0, io.SeekCurrent) }

// At goes to the end of a file that is shorter: someone has taken rejects away.
func (r *rejected) At(size int64) error {
	end, err := r.f.Seek(0, io.SeekEnd)
	if err != nil || end <= size {
		return err
	}
	_, err = r.f.Seek(size, io.SeekStart)
	return errors.Join(err, r.f.Truncate(size))
}

// Sync does nothing for what is not on a disk, such as /dev/null.
func (r *rejected) Sync() error {
	if err := r.f.Sync(); !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
