package rpcerr

import (
	"strconv"

	"google.golang.org/grpc/codes"
)

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

// ServerCodes are the rows of the server's codes, as the documentation has them.
func ServerCodes() map[int32][]string {
	all := map[int32][]string{}
	for code, r := range serverCodes {
		all[code] = Row(r.code, r.http, r.retry, r.reason)
	}
	return all
}

// Row is what a row of the documentation's tables says.
func Row(code codes.Code, http int, retry Retry, reason Reason) []string {
	return []string{codeName(code), strconv.Itoa(http), string(retry), string(reason)}
}

// ReasonRow is Row for a reason of the gateway's own.
func ReasonRow(reason Reason) []string {
	r := reasons[reason]
	return Row(r.code, r.http, r.retry, r.reason)
}
