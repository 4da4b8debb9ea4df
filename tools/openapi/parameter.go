package main

import (
	"regexp"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// sharedParameters are those of many operations.
var sharedParameters = object{
	"session": header("Mooring-Session",
		"The session's token, if it is not in the body."),
	"transaction": header("Mooring-Transaction",
		"The transaction's token, if it is not in the body."),
	"idempotencyKey": header("Idempotency-Key", "A text of your choice, at most 255 bytes, a new "+
		"one for each write. The same call with the same key, within 30 minutes, is executed "+
		"once and gives the first result."),
	"ifMatch": header("If-Match", "Etags: the call fails with 412 unless the document has one of "+
		"them. `*` stands for any document."),
	"ifNoneMatch": header("If-None-Match", "Etags, or `*`: a document that has one of them is not "+
		"sent again, or with PUT not replaced."),
	"prefer": header("Prefer", "`return=minimal` asks for an answer without the document."),
	"lastEventID": header("Last-Event-ID", "What EventSource sends when it reconnects: the id of "+
		"the last event that it has received."),
	"deadline": header("Request-Timeout",
		"The deadline of the call, as a duration: `5s`, `250ms`."),
	"requestID": header("Mooring-Request-Id", "An id of your choice, which the gateway's log and "+
		"the response have, too."),
	"timeout": query("timeout", "The same as Request-Timeout. The shorter one counts.",
		object{"type": "string"}),
}

func header(name, description string) object {
	return object{
		"name": name, "in": "header", "description": description,
		"schema": object{"type": "string"},
	}
}

func query(name, description string, schema object) object {
	return object{"name": name, "in": "query", "description": description, "schema": schema}
}

// sharedHeaders are those of responses.
var sharedHeaders = object{
	"Mooring-Request-Id": responseHeader("The request's id, which the gateway's log has, too."),
	"Mooring-Session":    responseHeader("The session's renewed token, of a call in a session."),
	"Mooring-Cursor": responseHeader("The token for the next page, where the body is BSON. " +
		"Missing at the end."),
	"Mooring-Total-Count": responseHeader("How many documents match, if count=exact asks for it."),
	"Retry-After": object{
		"description": "After how many seconds to repeat the call.",
		"schema":      object{"type": "integer"},
	},
	"Mooring-Write-Concern-Error": responseHeader("The code and the name of a write concern that " +
		"was not met. The write stands."),
	"ETag":               responseHeader("The etag of the document as it is sent."),
	"Location":           responseHeader("The path of the document that was created."),
	"Preference-Applied": responseHeader("What of Prefer is honored."),
	"WWW-Authenticate":   responseHeader("The schemes of credentials that count."),
}

func responseHeader(description string) object {
	return object{"description": description, "schema": object{"type": "string"}}
}

// headers returns references to shared headers.
func headers(names ...string) object {
	refs := object{}
	for _, name := range names {
		refs[name] = object{"$ref": "#/components/headers/" + name}
	}
	return refs
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// pathParams returns the names of the variables in a path.
func pathParams(path string) []string {
	var names []string
	for _, match := range pathParam.FindAllStringSubmatch(path, -1) {
		names = append(names, match[1])
	}
	return names
}

// tildeNote goes with every name in a path.
const tildeNote = " A name that begins with ~ is the base64url of a name."

func pathParameter(name string) object {
	description := "The " + name + "."
	switch name {
	case "ticket":
	case "id":
		description = "The `_id`: 24 hexadecimal digits of an ObjectId, or Extended JSON (`42`, " +
			"`%22user-1%22`). What begins with ~ is the base64url of that."
	default:
		description += tildeNote
	}
	return object{
		"name": name, "in": "path", "required": true, "description": description,
		"schema": object{"type": "string"},
	}
}

// getParams are what a GET takes in its query; all that are not text are JSON.
var getParams = []string{
	"filter", "projection", "sort", "hint", "collation", "limit", "skip", "batch_size",
	"max_time_ms", "comment", "read_preference", "read_concern",
	"principal", "namespace", "pinned", "cursor", "name", "name_only", "authorized_databases",
	"authorized_collections",
}

// textParams are plain text there, whatever they are in a body.
var textParams = map[string]string{
	"comment": "", "read_preference": " The mode.", "read_concern": " The level.",
	"principal": "", "namespace": "", "cursor": "", "name": "",
}

// watchParams are what a GET of changes takes in its query.
var watchParams = []string{
	"pipeline", "full_document", "full_document_before_change", "resume_after", "start_after",
	"start_at_operation_time", "batch_size", "max_await_time_ms", "collation", "comment",
	"show_expanded_events", "read_preference", "read_concern",
}

// importParams are the options of an import.
var importParams = []string{
	"ordered", "bypass_document_validation", "return_partial_success", "write_concern", "comment",
}

func (s *schemas) queryParams(method protoreflect.MethodDescriptor) []object {
	if method.FullName() == watchMethod {
		return s.queryOf(method.Input(), watchParams)
	}
	return s.queryOf(method.Input(), getParams)
}

// queryOf returns the parameters of the request's fields with these names.
func (s *schemas) queryOf(
	request protoreflect.MessageDescriptor, names []string,
) []object {
	var params []object
	for _, name := range names {
		fd := request.Fields().ByName(protoreflect.Name(name))
		if fd == nil {
			continue
		}
		note, isText := textParams[name]
		isJSON := fd.Kind() == protoreflect.MessageKind
		switch {
		case isText:
			params = append(params, query(fd.JSONName(), s.text(fd)+note, object{
				"type": "string",
			}))
		case isJSON:
			p := query(fd.JSONName(), s.text(fd), nil)
			delete(p, "schema")
			p["content"] = object{"application/json": object{"schema": s.field(fd)}}
			params = append(params, p)
		default:
			params = append(params, query(fd.JSONName(), s.text(fd), s.field(fd)))
		}
	}
	return params
}
