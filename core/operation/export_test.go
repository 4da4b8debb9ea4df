package operation

var (
	UnknownCommit = unknownCommit
	Transient     = transient
)
