package unified

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
)

// streamOperations are the operations on a change stream.
var streamOperations = table[*changestream.Stream]{
	"close": func(_ *run, s *changestream.Stream, _ *arguments) action {
		return func(ctx context.Context) outcome { return failed(s.Close(ctx)) }
	},
	"iterateOnce":                 iterateStream(1),
	"iterateUntilDocumentOrError": iterateStream(maxIterations),
}

// iterateStream asks for an event that many times at most.
func iterateStream(times int) func(*run, *changestream.Stream, *arguments) action {
	return func(_ *run, s *changestream.Stream, _ *arguments) action {
		return func(ctx context.Context) outcome {
			for range times {
				doc, found, err := s.TryNext(ctx)
				if err != nil {
					return failed(err)
				}
				if found {
					return outcome{value: bson.DocumentValue(doc)}
				}
			}
			return outcome{}
		}
	}
}

func watch(c *observed, ns client.Namespace, inherit inherited, a *arguments) action {
	options := client.WatchOptions{
		Common: inherit.reads(a), Pipeline: a.must("pipeline").array("pipeline"),
		FullDocument:             a.text("fullDocument"),
		FullDocumentBeforeChange: a.text("fullDocumentBeforeChange"),
		ResumeAfter:              a.document("resumeAfter"), StartAfter: a.document("startAfter"),
		StartAtOperationTime: a.value("startAtOperationTime"),
		ShowExpandedEvents:   a.bool("showExpandedEvents"), BatchSize: a.batchSize(),
		MaxAwaitTimeMS: a.int64("maxAwaitTimeMS"), Collation: a.document("collation"),
	}
	return func(ctx context.Context) outcome {
		s, err := c.Watch(ctx, ns, options)
		return outcome{entity: s, err: err}
	}
}

func watchCollection(_ *run, c *collection, a *arguments) action {
	return watch(c.client, c.ns, c.inherit, a)
}

func watchDatabase(_ *run, d *database, a *arguments) action {
	return watch(d.client, client.Namespace{Database: d.name}, d.inherit, a)
}

func watchClient(_ *run, c *observed, a *arguments) action {
	return watch(c, client.Namespace{}, inherited{}, a)
}
