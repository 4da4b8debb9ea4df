package client

import "github.com/mooringdb/mooring/core/mongoerr"

// ArgumentError reports a request that was refused before anything was sent.
type ArgumentError struct {
	// Argument is the name of the argument or option, as MongoDB spells it.
	Argument string
	// Problem says what is wrong with it. It begins in lower case.
	Problem string
	// TooLarge reports that the argument is larger than the server takes.
	TooLarge bool
}

func (e *ArgumentError) Error() string { return e.Argument + ": " + e.Problem }

// Delivery returns mongoerr.Unsent.
func (e *ArgumentError) Delivery() mongoerr.Delivery { return mongoerr.Unsent }
