package shell

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/cmd/gateway/internal/transfer"
	"github.com/mooringdb/mooring/core/bson"
)

var export = &Command{
	Name: "export", Operands: "NAMESPACE [FILTER]", run: runExport,
	Synopsis: "write the documents of a collection to a file",
	Doc: `Writes the documents of a collection that match a filter, or all, to a file or to standard
output, in the order of their _ids. It goes on after the last document when the connection
breaks. With --continue, the same command goes on after a kill: no document is in the file
twice, and none is missing that was there from the beginning to the end.

  mooring export shop.orders --file orders.ndjson --canonical --continue orders.state
  mooring export shop.orders '{"status": "paid"}' --format csv --fields _id,total > paid.csv`,
	Flags: func(flags *pflag.FlagSet) {
		flags.String("file", "", "file to write to (default standard output)")
		flags.String("format", "ndjson", "form of the file: ndjson, json, csv or bson")
		flags.String("fields", "", "columns of csv, such as name,address.city,age.int32() "+
			"(default the fields of the first documents)")
		flags.String("projection", "", "fields to write: '{\"total\": 1}'; the _id must "+
			"stay as it is")
		flags.Bool("canonical", false, "write canonical Extended JSON, which keeps all types")
		flags.String("continue", "", "file that keeps how far the export has come; needs --file")
		flags.Bool("quiet", false, "show no progress")
	},
}

func runExport(ctx context.Context, s *session) error {
	filter, err := s.document("FILTER", s.operand(1))
	if err != nil {
		return err
	}
	e := transfer.Export{
		Filter: filter.GetBson(), Checkpoint: s.text("continue"),
		Target: fmt.Sprintf("%s %s as %s %s, canonical=%v, fields %s", s.operand(0), s.operand(1),
			s.text("format"), s.text("projection"), s.isSet("canonical"), s.text("fields")),
		Output: render.Options{Format: render.Format(s.text("format")), Mode: s.mode()},
	}
	if e.Projection, err = s.document("--projection", s.text("projection")); err != nil {
		return err
	}
	if e.Output.Columns, err = render.Columns(s.text("fields")); err != nil {
		return usage("--fields: %v", err)
	}
	path := s.text("file")
	switch {
	case !keepsID(e.Projection.GetBson()):
		return usage("--projection must leave the _id as it is: the export continues after it")
	case !transfer.Format(e.Output.Format).IsKnown():
		return usage("--format must be %s", transfer.Formats)
	case e.Checkpoint != "" && path == "":
		return usage("--continue needs --file")
	case e.Checkpoint != "" && e.Output.Format == render.CSV && e.Output.Columns == nil:
		return usage("--continue needs --fields with csv")
	}
	if e.Collection, err = s.collection(ctx); err != nil {
		return err
	}
	e.Address = s.leads
	w, err := s.create(path, e.Checkpoint == "")
	if err != nil {
		return err
	}
	p := s.progress("exported", -1)
	defer p.close()
	e.Progress = func(docs int64) { p.set(0, docs, 0) }
	docs, err := e.Run(ctx, w)
	p.close()
	if err != nil {
		return s.unfinished("export", describe(err, s.address))
	}
	if path == "" {
		return nil
	}
	_, err = fmt.Fprintf(s.Stdout, "{\"exportedCount\":%d}\n", docs)
	return err
}

// keepsID reports whether documents have the _id that is stored after a projection.
func keepsID(projection bson.Raw) bool {
	for key, v := range projection.All() {
		if key == "_id" && !v.Truthy() || strings.HasPrefix(key, "_id.") {
			return false
		}
	}
	return true
}

// plain hides that a writer is a file: an export does not truncate it.
type plain struct{ io.Writer }

// create opens the file to write to, or standard output for "". It may be a pipe or a device if
// plainly says so.
func (s *session) create(path string, plainly bool) (io.Writer, error) {
	if path == "" {
		return plain{s.Stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if plainly && !info.Mode().IsRegular() {
		return plain{f}, nil
	}
	return f, nil
}
