package rpcerr

// Names are the errors that have a line in the table.
func Names() []string {
	var names []string
	for _, e := range table {
		names = append(names, e.name)
	}
	return names
}

// Reasons are all reasons that have a row.
func Reasons() []Reason {
	var all []Reason
	for r := range reasons {
		all = append(all, r)
	}
	return all
}
