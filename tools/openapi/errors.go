package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// status describes an HTTP status of failures.
type status struct {
	code    int
	reasons []string // the gateway's own
	codes   []string // MongoDB's codes with their names
	example string   // the gRPC status of the first row
	retry   string   // of the first row
}

// readStatuses reads the tables of reasons and of MongoDB's codes in docs/api.md. They begin after
// a line that begins with "<!-- reasons:", or with "<!-- codes:".
func readStatuses(text string) ([]status, error) {
	found := map[int]*status{}
	at := func(http, word, retry string) *status {
		code, err := strconv.Atoi(http)
		if err != nil {
			return &status{}
		}
		if found[code] == nil {
			found[code] = &status{code: code, example: word, retry: retry}
		}
		return found[code]
	}
	for _, row := range table(text, "<!-- reasons:") { // reason, status, HTTP, retry, when
		s := at(row[2], row[1], row[3])
		s.reasons = append(s.reasons, strings.Trim(row[0], "`"))
	}
	for _, row := range table(text, "<!-- codes:") { // status, HTTP, retry, codes
		s := at(row[1], row[0], row[2])
		s.codes = append(s.codes, row[3])
	}
	if len(found) < 10 {
		return nil, errors.New("there are no tables of reasons and codes")
	}
	var all []status
	for _, s := range found {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b status) int { return a.code - b.code })
	return all, nil
}

// table returns the rows of the Markdown table that follows a mark, without its head.
func table(text, mark string) [][]string {
	_, after, _ := strings.Cut(text, mark)
	var rows [][]string
	begun := false
	for line := range strings.SplitSeq(after, "\n") {
		if !strings.HasPrefix(line, "|") {
			if begun {
				break
			}
			continue
		}
		begun = true
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows[min(2, len(rows)):]
}

// name returns the name of the status's response.
func (s status) name() string {
	if s.code == 499 {
		return "ClientClosedRequest"
	}
	text := http.StatusText(s.code)
	return strings.NewReplacer(" ", "", "-", "", "'", "").Replace(text)
}

func (s status) reference() object {
	return object{"$ref": "#/components/responses/" + s.name()}
}

func (s status) description() string {
	text := fmt.Sprintf("%s.", http.StatusText(s.code))
	if len(s.reasons) > 0 {
		text += " Reasons: `" + strings.Join(s.reasons, "`, `") + "`."
	}
	if len(s.codes) > 0 {
		text += " MongoDB's codes: " + strings.Join(s.codes, ", ") + "."
	}
	return text
}

// responses returns the responses of failures: one for each status, and Failure for any other.
func responses(s *schemas, statuses []status) object {
	failure := s.ref(s.message(errorMessage))
	all := object{"Failure": object{
		"description": "What failed.", "headers": headers("Mooring-Request-Id"),
		"content": object{"application/json": object{"schema": failure}},
	}}
	for _, st := range statuses {
		if st.code == 405 || st.code == 499 {
			continue
		}
		names := []string{"Mooring-Request-Id"}
		switch st.code {
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			names = append(names, "Retry-After")
		case http.StatusUnauthorized:
			names = append(names, "WWW-Authenticate")
		}
		all[st.name()] = object{
			"description": st.description(), "headers": headers(names...),
			"content": object{
				"application/json": object{"schema": failure, "example": st.sample()},
			},
		}
	}
	return all
}

// numbers are the numbers of the statuses' names.
var numbers = map[string]int{
	"CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5,
	"ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8,
	"FAILED_PRECONDITION": 9, "ABORTED": 10, "OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12,
	"INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15, "UNAUTHENTICATED": 16,
}

// sample returns an error with this status.
func (s status) sample() object {
	reason := "Unauthorized"
	if len(s.reasons) > 0 {
		reason = s.reasons[0]
	}
	return object{"error": object{
		"status": s.example, "reason": reason, "code": numbers[s.example],
		"message": "what happened, for people", "requestId": "3f0d96c1", "retry": s.retry,
	}}
}
