package changestream

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// aggregate builds the command that opens a stream, at a place that depends on the server's wire
// version.
type aggregate struct {
	opt   *Options
	start func(wire int32) Start
}

func (*aggregate) Name() string { return "aggregate" }

func (a *aggregate) Append(b *bson.Builder, to operation.Target) error {
	o := a.opt
	if o.Collection == "" {
		b.Int32("aggregate", 1)
	} else {
		b.String("aggregate", o.Collection)
	}
	b.OpenArray("pipeline").OpenDocument("").OpenDocument("$changeStream")
	o.appendStage(b)
	a.start(to.Hello.MaxWireVersion).append(b)
	b.Close().Close().AppendElements(bson.Raw(o.Pipeline)).Close()
	b.OpenDocument("cursor")
	if o.BatchSize != nil {
		b.Int32("batchSize", *o.BatchSize)
	}
	b.Close()
	if !o.Comment.IsZero() {
		b.Value("comment", o.Comment)
	}
	if o.Append != nil {
		o.Append(b, to)
	}
	return nil
}

func (o *Options) appendStage(b *bson.Builder) {
	if o.Deployment {
		b.Bool("allChangesForCluster", true)
	}
	if o.FullDocument != "" {
		b.String("fullDocument", o.FullDocument)
	}
	if o.FullDocumentBeforeChange != "" {
		b.String("fullDocumentBeforeChange", o.FullDocumentBeforeChange)
	}
	if o.ShowExpandedEvents != nil {
		b.Bool("showExpandedEvents", *o.ShowExpandedEvents)
	}
}

func (s Start) append(b *bson.Builder) {
	if s.ResumeAfter != nil {
		b.Document("resumeAfter", s.ResumeAfter)
	}
	if s.StartAfter != nil {
		b.Document("startAfter", s.StartAfter)
	}
	if !s.StartAtOperationTime.IsZero() {
		b.Value("startAtOperationTime", s.StartAtOperationTime)
	}
}
