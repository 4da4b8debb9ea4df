package front

// Headers that the gateway defines.
const (
	RequestIDHeader   = "Mooring-Request-Id"
	SessionHeader     = "Mooring-Session"
	TransactionHeader = "Mooring-Transaction"
	CursorHeader      = "Mooring-Cursor"
	TotalCountHeader  = "Mooring-Total-Count"
	// WriteConcernErrorHeader tells that a write is not acknowledged as its write concern asks. Its
	// value is the server's code and its name.
	WriteConcernErrorHeader = "Mooring-Write-Concern-Error"
)
