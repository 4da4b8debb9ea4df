package rpcerr

// concealed has a sentence for each reason whose messages can have addresses of servers or texts
// of libraries and the system. Where only some errors of a reason have, table says so (terse).
var concealed = map[Reason]string{
	NoSuitableServer:      "no MongoDB server is available",
	NetworkError:          "the connection to the MongoDB server broke",
	ConnectionPoolCleared: "the connections to the MongoDB server were closed after an error",
	ConnectionPoolFull:    "all connections to the MongoDB server were in use for too long",
	PinLimitExceeded:      "cursors and transactions hold the maximum number of connections",
	CursorOwnerGone:       "the replica of the gateway that held the cursor is gone",
	ReplicaUnreachable:    "the replica of the gateway that holds the cursor does not answer",
	DeadlineExceeded:      "the deadline of the call passed",
	WriteOutcomeUnknown:   "the write may or may not have been done",
	UnknownCommitResult:   "the transaction may or may not be committed",
	MalformedReply:        "the MongoDB server's reply cannot be read",
	Configuration:         "the gateway cannot use the MongoDB deployment as it is configured",
	IssuerUnavailable:     "the issuer of tokens does not answer",
	Internal:              "internal error",
}

// conceal removes addresses of servers, and texts of libraries and the system, from an error that
// is not the server's. Those of the server are hushed.
func (x *explanation) conceal() {
	switch text, ok := concealed[x.reason]; {
	case x.said:
	case ok:
		x.message = text
	case x.terse != "":
		x.message = x.terse
	}
}
