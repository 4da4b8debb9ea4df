package client

// ArgumentError is a request that was refused before anything was sent.
type ArgumentError struct {
	// Argument is the name of the argument or option, as MongoDB spells it.
	Argument string
	// Problem says what is wrong with it. It begins in lower case.
	Problem string
	// TooLarge reports that the argument is larger than the server takes.
	TooLarge bool
}

func (e *ArgumentError) Error() string { return e.Argument + ": " + e.Problem }

// NotBuiltError is a configured feature that this version does not have. It is refused rather than
// ignored.
type NotBuiltError struct {
	// Option is the name of the option in the connection string.
	Option string
}

func (e *NotBuiltError) Error() string {
	return "connection string: the option " + e.Option + " is not supported yet"
}
