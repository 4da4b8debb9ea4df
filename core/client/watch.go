package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/operation"
)

// WatchOptions holds the options of Watch. Of Common it takes all but WriteConcern. The server
// checks FullDocument, FullDocumentBeforeChange, and that at most one place to start is given.
type WatchOptions struct {
	Common
	// Pipeline holds further stages, behind $changeStream. An event without its _id ends the
	// stream, so they must not remove or change that.
	Pipeline bson.Array
	// FullDocument is default, required, updateLookup or whenAvailable.
	FullDocument string
	// FullDocumentBeforeChange is off, required or whenAvailable.
	FullDocumentBeforeChange string
	// ResumeAfter and StartAfter are resume tokens, after which the stream begins; StartAfter also
	// goes on after an invalidate event.
	ResumeAfter, StartAfter bson.Raw
	// StartAtOperationTime is a timestamp.
	StartAtOperationTime bson.Value
	ShowExpandedEvents   *bool
	// BatchSize of the first and the following batches.
	BatchSize *int32
	// MaxAwaitTimeMS is how long the server waits for changes before it answers a getMore with an
	// empty batch. It must be less than timeoutMS.
	MaxAwaitTimeMS *int64
	Collation      bson.Raw
}

var watchFields = []string{"aggregate", "pipeline", "cursor", "collation", "comment"}

// Watch opens a stream of the changes of a collection, of a database if ns.Collection is empty, or
// of all databases if ns is empty. The read concern must be majority or none. After an error from
// which a server or the network recovers, the stream resumes by itself, each time on a server that
// the read preference selects.
func (c *Client) Watch(
	ctx context.Context, ns Namespace, opt WatchOptions,
) (*changestream.Stream, error) {
	ck := check{client: c}
	deployment := ns == Namespace{}
	if deployment {
		ns.Database = "admin"
	}
	ck.database(ns.Database)
	ck.common(&opt.Common, readOptions, watchFields)
	ck.await("maxAwaitTimeMS", opt.MaxAwaitTimeMS, c.timeout(&opt.Common))
	if t := opt.StartAtOperationTime; !t.IsZero() && t.Type != bson.TypeTimestamp {
		ck.refuse("startAtOperationTime", "must be a timestamp, not %s", t.Type)
	}
	if ck.err != nil {
		return nil, ck.err
	}
	op := c.read(ns, nil, &opt.Common)
	return changestream.Open(ctx, &c.runner, op, changestream.Options{
		Collection: ns.Collection, Deployment: deployment,
		Start: changestream.Start{
			ResumeAfter: opt.ResumeAfter, StartAfter: opt.StartAfter,
			StartAtOperationTime: opt.StartAtOperationTime,
		},
		FullDocument: opt.FullDocument, FullDocumentBeforeChange: opt.FullDocumentBeforeChange,
		ShowExpandedEvents: opt.ShowExpandedEvents,
		Pipeline:           opt.Pipeline,
		BatchSize:          opt.BatchSize, MaxAwaitTimeMS: opt.MaxAwaitTimeMS,
		Comment: opt.Comment, Timeout: opt.Timeout,
		Append: func(b *bson.Builder, to operation.Target) {
			appendDocument(b, "collation", opt.Collation)
			opt.appendTo(b, to)
		},
	})
}
