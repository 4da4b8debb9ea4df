package injections

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// marker is in each document of the other tenant, and in no request.
const marker = "foreignmarker"

// documented has the reasons of failures of a server, other than those of the gateway: what the
// server does not know, and what takes it longer than the request may take.
var documented = []string{
	"Unimplemented", "CommandNotFound", "DeadlineExceeded", "MaxTimeMSExpired",
}

// judge returns what is wrong with an answer of REST; empty: nothing.
func judge(code int, header http.Header, body []byte) string {
	switch {
	case bytes.Contains(body, []byte(marker)) ||
		bytes.Contains(fmt.Append(nil, header), []byte(marker)):
		return "shows what the other tenant owns"
	case header["Injected"] != nil:
		return "has a header of the request's making"
	case code < http.StatusInternalServerError:
		return ""
	}
	if code == http.StatusInternalServerError || !slices.Contains(documented, reason(body)) {
		return fmt.Sprintf("is %d %s", code, reason(body))
	}
	return ""
}

// reason returns the reason in an error of REST or of the Data API.
func reason(body []byte) string {
	var rest struct{ Error struct{ Reason string } }
	if json.Unmarshal(body, &rest) == nil {
		return rest.Error.Reason
	}
	var dataAPI struct {
		Code string `json:"error_code"`
	}
	_ = json.Unmarshal(body, &dataAPI) // another body has no reason
	return dataAPI.Code
}

// judgeCall returns what is wrong with the end of a call of gRPC and the text of its messages.
func judgeCall(err error, messages string) string {
	s := status.Convert(err)
	if text := messages + s.String(); bytes.Contains([]byte(text), []byte(marker)) {
		return "shows what the other tenant owns"
	}
	why := ""
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			why = info.GetReason()
		}
	}
	faults := []codes.Code{codes.Unknown, codes.Internal, codes.DataLoss}
	failures := []codes.Code{codes.Unavailable, codes.Unimplemented, codes.DeadlineExceeded}
	if slices.Contains(faults, s.Code()) ||
		slices.Contains(failures, s.Code()) && !slices.Contains(documented, why) {
		return fmt.Sprintf("is %s %s", s.Code(), why)
	}
	return ""
}
