package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed examples.json
var examplesJSON []byte

// example shows a call: the values of its parameters by name, its body, and the response.
type example struct {
	Parameters map[string]any  `json:"parameters"`
	Request    json.RawMessage `json:"request"`
	// Requests has bodies by media type, in place of a request.
	Requests map[string]json.RawMessage `json:"requests"`
	Response json.RawMessage            `json:"response"`
	Lines    []string                   `json:"lines"` // of a stream, in place of a response
}

// readExamples returns the examples by operation.
func readExamples() (map[string]example, error) {
	var all map[string]example
	if err := json.Unmarshal(examplesJSON, &all); err != nil {
		return nil, fmt.Errorf("examples.json: %w", err)
	}
	return all, nil
}

// usual are the values of parameters in all examples.
var usual = map[string]any{
	"database": "shop", "collection": "orders", "ticket": "AQ3kXz0v",
	"id": "6b00520000000000000000aa",
}

// illustrate moves the operation's example from the examples into the operation.
func (op *operation) illustrate(examples map[string]example) error {
	e, ok := examples[op.OperationID]
	if !ok {
		return fmt.Errorf("there is no example in tools/openapi/examples.json")
	}
	delete(examples, op.OperationID)
	for name, value := range usual {
		op.setExample(name, value)
	}
	for name, value := range e.Parameters {
		if !op.setExample(name, value) {
			return fmt.Errorf("there is no parameter %s", name)
		}
	}
	for kind, value := range e.Requests {
		m := media(op.RequestBody, kind)
		if m == nil {
			return fmt.Errorf("there is no body of the type %s", kind)
		}
		m["example"] = value
	}
	if (e.Request != nil || e.Requests != nil) != (op.RequestBody != nil) {
		return fmt.Errorf("the example's request: %s", e.Request)
	}
	if e.Request != nil {
		setBodyExample(op.RequestBody, e.Request)
	}
	answer, _ := op.Responses["200"].(object)
	if answer == nil {
		return nil // there is no body
	}
	if e.Lines != nil {
		text := strings.Join(e.Lines, "\n") + "\n"
		media(answer, "application/x-ndjson")["example"] = text
		return nil
	}
	if e.Response == nil {
		return fmt.Errorf("the example has no response")
	}
	media(answer, "application/json")["example"] = e.Response
	return nil
}

// setExample sets the example of a parameter, and reports whether there is one of that name.
func (op *operation) setExample(name string, value any) bool {
	for _, p := range op.Parameters {
		if p["name"] != name {
			continue
		}
		if m := media(p, "application/json"); m != nil {
			m["example"] = value
		} else {
			p["example"] = value
		}
		return true
	}
	return false
}

// setBodyExample sets the example of a body: a JSON text stands for lines.
func setBodyExample(body object, value json.RawMessage) {
	for _, kind := range []string{"application/json", "application/x-ndjson"} {
		if m := media(body, kind); m != nil {
			m["example"] = value
			return
		}
	}
}

// media returns the description of a media type in what has content.
func media(of object, kind string) object {
	content, _ := of["content"].(object)
	m, _ := content[kind].(object)
	return m
}
