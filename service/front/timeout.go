package front

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// TimeoutParam is the query parameter that every call accepts.
const TimeoutParam = "timeout"

// timeout returns the shortest of the timeouts that a request has, or 0 if it has none.
func timeout(header func(string) string, query url.Values) (time.Duration, error) {
	shortest := time.Duration(0)
	for _, source := range []struct {
		name, text string
		parse      func(string) (time.Duration, error)
	}{
		{"Request-Timeout", header("Request-Timeout"), time.ParseDuration},
		{"Grpc-Timeout", header("Grpc-Timeout"), parseGRPCTimeout},
		{TimeoutParam, query.Get(TimeoutParam), time.ParseDuration},
	} {
		if source.text == "" && (source.name != TimeoutParam || !query.Has(TimeoutParam)) {
			continue
		}
		d, err := source.parse(source.text)
		if err != nil || d <= 0 {
			return 0, &rpcerr.Error{
				Reason: rpcerr.InvalidArgument, Field: source.name,
				Message: strconv.Quote(source.text) +
					" is not a positive duration, such as 5s or 250ms",
			}
		}
		if shortest == 0 || d < shortest {
			shortest = d
		}
	}
	return shortest, nil
}

var grpcUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// parseGRPCTimeout parses gRPC's own form: at most eight digits and a unit.
func parseGRPCTimeout(text string) (time.Duration, error) {
	if len(text) < 2 || len(text) > 9 || strings.Trim(text[:len(text)-1], "0123456789") != "" {
		return 0, fmt.Errorf("%q is not digits and a unit", text)
	}
	n, err := strconv.ParseInt(text[:len(text)-1], 10, 64)
	unit := grpcUnits[text[len(text)-1]]
	if err != nil || unit == 0 {
		return 0, fmt.Errorf("%q is not digits and a unit", text)
	}
	if unit == time.Hour {
		n = min(n, 1_000_000)
	}
	return time.Duration(n) * unit, nil
}
