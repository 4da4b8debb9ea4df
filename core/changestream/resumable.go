package changestream

import (
	"errors"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// wireVersion44 is the first whose servers say by a label which errors are resumable.
const wireVersion44 = 9

const codeCursorNotFound = 43

// resumableCodes are the resumable errors of servers before 4.4 (Change Streams, "Resumable
// Error").
var resumableCodes = map[int32]struct{}{
	6: {}, 7: {}, 63: {}, 89: {}, 91: {}, 133: {}, 150: {}, 189: {}, 234: {}, 262: {}, 9001: {},
	10107: {}, 11600: {}, 11602: {}, 13388: {}, 13435: {}, 13436: {},
}

// resumable reports whether a stream goes on with a new aggregate after this error of a getMore,
// which came over a connection to a server with this wire version.
func resumable(err error, wire int32) bool {
	if failed, ok := errors.AsType[*mongoerr.CommandError](err); ok {
		return resumableReply(failed, wire)
	}
	switch mongoerr.Judge(err).Delivery {
	case mongoerr.Unsent, mongoerr.Unanswered:
		return !mongoerr.IsMalformed(err)
	default:
		return false
	}
}

func resumableReply(err *mongoerr.CommandError, wire int32) bool {
	switch {
	case err.Code == codeCursorNotFound:
		return true
	case wire >= wireVersion44:
		return mongoerr.HasLabel(err, mongoerr.LabelResumableChangeStream)
	}
	_, ok := resumableCodes[err.Code]
	return ok
}
