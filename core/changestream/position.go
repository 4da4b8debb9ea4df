package changestream

import (
	"errors"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
)

// Start says where a stream begins: after a token, or at an operation time. Fields that are not set
// are not sent; without any of them the stream begins now. The server refuses more than one.
type Start struct {
	ResumeAfter, StartAfter bson.Raw
	// StartAtOperationTime is a timestamp.
	StartAtOperationTime bson.Value
}

// wireVersion40 is the first whose servers take startAtOperationTime.
const wireVersion40 = 7

// ErrNoResumeToken is the error of a stream whose pipeline removes or changes the _id of an event,
// which is its resume token.
var ErrNoResumeToken = errors.New(
	"cannot provide resume functionality when the resume token is missing")

// position holds how far a stream has come, as an immutable value (Change Streams, "Updating the
// Cached Resume Token" and "Resume Process").
type position struct {
	start Start
	// token is the cached resume token; nil if there is none.
	token bson.Raw
	// time is where a stream without a token goes on: what the caller asked for, or the operation
	// time of the first aggregate. It is zero if there is none.
	time bson.Value
	// returned says that the caller has got a document.
	returned bool
}

func startingAt(s Start) position {
	token := s.StartAfter
	if token == nil {
		token = s.ResumeAfter
	}
	return position{start: s, token: token, time: s.StartAtOperationTime}
}

// opened returns the position after the reply of the first aggregate, whose batch is first. The
// operation time of the reply counts only if nothing else says where the stream has begun.
func (p position) opened(first *cursor.Batch, reply bson.Raw, wire int32) position {
	if p.token != nil || !p.time.IsZero() || len(first.Documents) > 0 ||
		first.PostBatchResumeToken != nil || wire < wireVersion40 {
		return p
	}
	v, _ := reply.Lookup("operationTime")
	if t, i, ok := v.Timestamp(); ok {
		p.time = bson.TimestampValue(t, i)
	}
	return p
}

// received returns the position after the arrival of a batch.
func (p position) received(b *cursor.Batch) position {
	if len(b.Documents) == 0 && b.PostBatchResumeToken != nil {
		p.token = b.PostBatchResumeToken
	}
	return p
}

// returning returns the position once the caller has got document n of the batch.
func (p position) returning(b *cursor.Batch, n int) (position, error) {
	v, _ := b.Documents[n].Lookup("_id")
	id, ok := v.Document()
	if !ok {
		return p, ErrNoResumeToken
	}
	p.token, p.returned = id, true
	if n == len(b.Documents)-1 {
		if b.PostBatchResumeToken != nil {
			p.token = b.PostBatchResumeToken
		}
		p.token = p.token.Clone() // which frees the batch
	}
	return p, nil
}

// resume returns where a stream goes on, on a server with this wire version.
func (p position) resume(wire int32) Start {
	switch {
	case p.token != nil && p.start.StartAfter != nil && !p.returned:
		return Start{StartAfter: p.token}
	case p.token != nil:
		return Start{ResumeAfter: p.token}
	case !p.time.IsZero() && wire >= wireVersion40:
		return Start{StartAtOperationTime: p.time}
	}
	return p.start
}
