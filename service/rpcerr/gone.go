package rpcerr

// AllowGapGone tells a client of an earlier version what to do instead of a field that the requests
// for pages do not have any more.
const AllowGapGone = "allowGap was removed, since the gateway skips no page: a " +
	"client that accepts missing rows begins again"

// AllowGapNumber is that field's number, which is reserved.
const AllowGapNumber = 23
