package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/cmd/gateway/internal/checkpoint"
	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/match"
)

// Export says what is exported, and how.
type Export struct {
	Collection *client.Collection[bson.Raw]
	Filter     bson.Raw // nil: all documents
	Projection *mooringv1.Document
	Output     render.Options
	// Checkpoint is the path of a file; "": the export cannot go on after a kill.
	Checkpoint string
	// Target names the collection and the options, and Address what the calls go to, for the
	// checkpoint.
	Target, Address string
	// Progress, if set, is called from time to time.
	Progress func(docs int64)
}

// File represents what an export writes to, and truncates before.
type File interface {
	io.Writer
	io.Seeker
	Truncate(size int64) error
	Sync() error
}

// exported holds what a checkpoint has: the documents up to an _id are in the file, and all of it.
type exported struct {
	Target  string `json:"target"`
	Address string `json:"address,omitempty"` // empty: of an earlier release
	// After is {"_id": …} of the last document, as canonical Extended JSON.
	After string `json:"after"`
	Docs  int64  `json:"docs"`
	Bytes int64  `json:"bytes"`
}

// exporting holds the state of one run.
type exporting struct {
	Export

	state  exported
	after  bson.Value // the last _id whose documents are all written; zero: there is none
	writer render.Writer
	// group holds the documents of the _id that comes next, until another one follows: a view, a
	// time series and a sharded collection can have several, in another order each time.
	group     []bson.Raw
	groupSize int
	torn      bool // a part of the group is written
	file      File // nil: the output is none
	begun     bool // what is in the file that is not of this export is gone
	unsafe    int  // bytes since the last checkpoint
	until     time.Time
}

const (
	// savedBytes is how much is written between two checkpoints.
	savedBytes = 4 << 20
	// mostHeld is how much of a group is held.
	mostHeld = 16 << 20
)

// Run writes the documents in the order of their _ids, and returns how many there are. If it is cut
// off, it goes on after the last _id, unless more than mostHeld has the same one. If w is a File,
// it keeps what it has until the first document arrives. With a checkpoint, w must be one.
func (e Export) Run(ctx context.Context, w io.Writer) (int64, error) {
	x := &exporting{Export: e, state: exported{Target: e.Target, Address: e.Address}}
	if err := x.load(w); err != nil {
		return 0, err
	}
	x.Output.Continues = x.state.Docs > 0
	var err error
	if x.writer, err = render.New(w, x.Output); err != nil {
		return 0, err
	}
	x.until = time.Now().Add(patience)
	for attempt := 0; ; attempt++ {
		before := x.state.Docs
		err := x.read(ctx)
		if err == nil {
			break
		}
		if x.state.Docs > before {
			attempt, x.until = 0, time.Now().Add(patience)
		}
		failed, ok := errors.AsType[*client.Error](err)
		goesOn := ok && ctx.Err() == nil && x.canGoOn(failed)
		if goesOn && x.torn {
			goesOn = false
			err = fmt.Errorf("too many documents have one _id to continue among them: %s",
				failed.Message)
		}
		if !goesOn || pause(ctx, attempt, failed.RetryAfter) != nil {
			return x.state.Docs, errors.Join(x.save(), err)
		}
	}
	if err := x.begin(); err != nil {
		return x.state.Docs, err
	}
	return x.state.Docs, errors.Join(x.save(), x.writer.Close())
}

// canGoOn reports whether a new find after the last _id can succeed.
func (x *exporting) canGoOn(failed *client.Error) bool {
	isReached := failed.Reason != "" || x.state.Docs > 0 || len(x.group) > 0
	return isReached && time.Now().Before(x.until) &&
		(isPassing(failed) || failed.Retry == client.Restart || failed.Reason == "CursorNotFound")
}

// load reads the checkpoint.
func (x *exporting) load(w io.Writer) error {
	if x.file, _ = w.(File); x.Checkpoint == "" {
		return nil
	}
	var before exported
	found, err := checkpoint.Load(x.Checkpoint, &before)
	if err != nil {
		return err
	}
	if found {
		if before.Target != x.Target {
			return fmt.Errorf("%s belongs to another export: %s", x.Checkpoint, before.Target)
		}
		if !isSame(before.Address, x.Address) {
			return fmt.Errorf("%s belongs to an export at %s", x.Checkpoint, before.Address)
		}
		x.state, x.state.Address = before, x.Address
		if before.After != "" {
			id, err := extjson.Parse(nil, []byte(before.After))
			if err != nil {
				return fmt.Errorf("%s: %w", x.Checkpoint, err)
			}
			x.after, _ = bson.Raw(id).Lookup("_id")
		}
	}
	end, err := x.file.Seek(0, io.SeekEnd)
	if err == nil && end < x.state.Bytes {
		return fmt.Errorf("the file is shorter than %s says: it is another file", x.Checkpoint)
	}
	return err
}

// begin makes the file as long as the checkpoint says; empty, if there is none.
func (x *exporting) begin() error {
	if x.file == nil || x.begun {
		return nil
	}
	_, err := x.file.Seek(x.state.Bytes, io.SeekStart)
	err = errors.Join(err, x.file.Truncate(x.state.Bytes))
	x.begun = err == nil
	return err
}

// save records how far the export has come.
func (x *exporting) save() (err error) {
	if x.Checkpoint == "" || !x.begun || x.torn {
		return nil
	}
	if err := x.writer.Flush(); err != nil {
		return err
	}
	if x.state.Bytes, err = x.file.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	if !x.after.IsZero() {
		id := bson.NewBuilder(nil).Value("_id", x.after).Finish()
		text, err := extjson.Append(nil, id, extjson.Canonical)
		if err != nil {
			return err
		}
		x.state.After = string(text)
	}
	x.unsafe = 0
	if err := x.file.Sync(); err != nil { // the checkpoint speaks of what is there after a crash
		return err
	}
	return checkpoint.Save(x.Checkpoint, &x.state, true)
}

// read writes the documents that follow the last _id, up to the end or an error.
func (x *exporting) read(ctx context.Context) error {
	sort := document(bson.NewBuilder(nil).Int32("_id", 1).Finish())
	docs := x.Collection.Find(ctx, x.filter(), func(r *mooringv1.FindRequest) {
		r.Sort, r.Projection = sort, x.Projection
	})
	x.group, x.groupSize = nil, 0
	var last bson.Value
	for doc, err := range docs {
		if err == nil {
			err = x.begin()
		}
		if err != nil {
			return err
		}
		id, ok := doc.Lookup("_id")
		if !ok {
			return errors.New("a document has no _id: the export cannot continue after it")
		}
		if !last.IsZero() && match.Compare(last, id) != 0 {
			if err := x.finish(last); err != nil {
				return err
			}
		}
		last = id
		x.group = append(x.group, doc)
		if x.groupSize += len(doc); x.groupSize > mostHeld && len(x.group) > 1 {
			x.torn = true
			if err := x.write(); err != nil {
				return err
			}
		}
	}
	if last.IsZero() {
		return nil
	}
	return x.finish(last)
}

// write writes what is held of the group.
func (x *exporting) write() error {
	for _, doc := range x.group {
		if err := x.writer.Write(doc); err != nil {
			return err
		}
		x.state.Docs++
		x.unsafe += len(doc)
	}
	clear(x.group) // which would keep a page
	x.group, x.groupSize = x.group[:0], 0
	return nil
}

// finish writes the end of a group, and from time to time how far the export has come.
func (x *exporting) finish(id bson.Value) error {
	x.torn = true
	if err := x.write(); err != nil {
		return err
	}
	x.after, x.torn = id.Clone(), false
	if x.unsafe < savedBytes {
		return nil
	}
	x.unsafe = 0
	if x.Progress != nil {
		x.Progress(x.state.Docs)
	}
	return x.save()
}

// order lists the types of an _id in the order in which a server sorts them, as groups of types
// that compare with each other.
var order = [][]bson.Type{
	{bson.TypeMinKey},
	{bson.TypeUndefined, bson.TypeNull},
	{bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128},
	{bson.TypeString, bson.TypeSymbol},
	{bson.TypeDocument},
	{bson.TypeBinary},
	{bson.TypeObjectID},
	{bson.TypeBool},
	{bson.TypeDateTime},
	{bson.TypeTimestamp},
	{bson.TypeDBPointer},
	{bson.TypeJavaScript},
	{bson.TypeCodeWithScope},
	{bson.TypeMaxKey},
}

// filter returns the filter of what follows the last _id. $gt compares values of one type:
// those of types that come later are named.
func (x *exporting) filter() bson.Raw {
	if x.after.IsZero() && x.Filter == nil {
		return bson.NewBuilder(nil).Finish()
	}
	if x.after.IsZero() {
		return x.Filter
	}
	if x.after.Type == bson.TypeMaxKey { // nothing comes after it
		return bson.NewBuilder(nil).OpenDocument("_id").OpenArray("$in").Close().Close().Finish()
	}
	next := bson.NewBuilder(nil)
	either := next.OpenArray("$or")
	greater, than := "$gt", x.after
	f, _ := x.after.Double()
	if d, _ := x.after.Decimal128(); math.IsNaN(f) || d.IsNaN() { // before all other numbers
		greater, than = "$gte", bson.DoubleValue(math.Inf(-1))
	}
	either.OpenDocument("").OpenDocument("_id").Value(greater, than).Close().Close()
	later := false
	types := either.OpenDocument("").OpenDocument("_id").OpenArray("$type")
	for _, group := range order {
		for _, kind := range group {
			if later {
				types.Int32("", int32(int8(kind))) // MinKey is -1
			}
		}
		for _, kind := range group {
			later = later || kind == x.after.Type
		}
	}
	filter := types.Close().Close().Close().Close().Finish()
	if x.Filter.IsEmpty() {
		return filter
	}
	return bson.NewBuilder(nil).OpenArray("$and").Document("", x.Filter).Document("", filter).
		Close().Finish()
}
