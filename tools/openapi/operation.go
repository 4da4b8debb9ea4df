package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// operation represents a method of a path.
type operation struct {
	Tags        []string `json:"tags"`
	Summary     string   `json:"summary,omitempty"`
	Description string   `json:"description,omitempty"`
	OperationID string   `json:"operationId"`
	Parameters  []object `json:"parameters,omitempty"`
	RequestBody object   `json:"requestBody,omitempty"`
	Responses   object   `json:"responses"`
	// Repeat says whether the call may be repeated if no answer comes: never, read, key or token.
	Repeat string `json:"x-repeat"`

	method protoreflect.MethodDescriptor
}

// Operations without an annotation: a client stream cannot have path parameters, and the request
// of a ticket is in the ticket.
const (
	importMethod = "mooring.v1.DocumentService.Import"
	importPath   = "/v1/databases/{database}/collections/{collection}/documents:import"
	watchMethod  = "mooring.v1.ChangeStreamService.Watch"
	ticketPath   = "/v1/changeStreams/{ticket}"
)

func newOperation(s *schemas, method protoreflect.FullName) *operation {
	found, err := s.files.FindDescriptorByName(method)
	m, ok := found.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		panic("bug: there is no " + string(method))
	}
	return &operation{method: m}
}

// read finds the operation's method: the generator's id is Service_Method or Service_Method_1.
func (op *operation) read(s *schemas) error {
	names := strings.Split(op.OperationID, "_")
	if len(names) < 2 {
		return fmt.Errorf("operation id %q", op.OperationID)
	}
	name := protoreflect.FullName("mooring.v1." + names[0] + "." + names[1])
	found, err := s.files.FindDescriptorByName(name)
	if err != nil {
		return err
	}
	op.method, _ = found.(protoreflect.MethodDescriptor)
	return nil
}

// isMain reports whether the operation stands for its method: a POST does where there is a GET too,
// and a path with a collection where there is another one.
func (op *operation) isMain(verb, path string) bool {
	id := operationID(op.method, verb, path)
	return id == plainID(op.method) || id == "watchCollection" || path == importPath
}

// plainID returns the name of a method. A method whose messages have its service's name has a name
// that means nothing without it: Start of SessionService is startSession.
func plainID(m protoreflect.MethodDescriptor) string {
	name := string(m.Name())
	service := string(m.Parent().Name())
	if strings.HasPrefix(string(m.Input().Name()), service) {
		name += strings.TrimSuffix(service, "Service")
	}
	return strings.ToLower(name[:1]) + name[1:]
}

// operationID returns an operation's name, which says what differs from the method's other paths.
func operationID(m protoreflect.MethodDescriptor, verb, path string) string {
	id := plainID(m)
	input := m.Input()
	switch {
	case path == ticketPath:
		return "watchTicket"
	case path == importPath:
		return "importDocuments" // import is a word of many languages
	case input.Fields().ByName("collection") == nil, strings.Contains(path, "{collection}"):
	case m.Name() == "BulkWrite":
		id += "Namespaces"
	case strings.Contains(path, "{database}"):
		id += "Database"
	default:
		id += "Deployment"
	}
	if m.Name() == "Watch" && strings.Contains(path, "{collection}") {
		id += "Collection"
	}
	if verb == "get" && slices.Contains(byQuery, m.Name()) {
		id += "ByQuery"
	}
	return id
}

// byQuery lists the methods that are both a POST and a GET.
var byQuery = []protoreflect.Name{"Find", "StreamFind", "Watch", "Live"}

func tagOf(m protoreflect.MethodDescriptor) string {
	return strings.TrimSuffix(string(m.Parent().Name()), "Service")
}

// complete makes one operation say what REST does.
func (op *operation) complete(s *schemas, verb, path string, statuses []status) {
	op.Tags = []string{tagOf(op.method)}
	op.Summary, op.Description = s.summary(op.method)
	op.Repeat = s.repeat(op.method)
	op.Parameters, op.RequestBody = nil, nil
	for _, name := range pathParams(path) {
		op.Parameters = append(op.Parameters, pathParameter(name))
	}
	switch {
	case path == ticketPath:
		op.Summary = "The stream that the ticket was made for, as the client that has asked for it."
		op.Description = "It needs no credentials."
	case op.isResource():
		op.Parameters = append(op.Parameters, s.resourceQuery(op.method)...)
		op.RequestBody = s.resourceBody(op.method)
	case path == importPath:
		op.Parameters = append(op.Parameters, s.queryOf(op.method.Input(), importParams)...)
		op.Parameters = append(append(op.Parameters, importRows...), contentEncoding)
		op.RequestBody = importBody
	case verb == "get":
		op.Parameters = append(op.Parameters, s.queryParams(op.method)...)
		if op.takesConditions() {
			op.Description = strings.TrimSpace(op.Description + "\n\nEvery other parameter is a " +
				"condition on a field: `status=paid&total=gt.10`. The page [API](docs/api.md) of " +
				"the documentation has the operators.")
			op.Parameters = append(op.Parameters, conditionParams...)
		}
		if op.takesConditions() && !op.method.IsStreamingServer() {
			op.Parameters = append(op.Parameters, countParam)
		}
	default:
		body := s.body(op.method.Input())
		op.RequestBody = object{"required": true, "content": object{
			"application/json": object{"schema": body},
		}}
	}
	if isExport(op.method) {
		op.Parameters = append(op.Parameters, exportRows...)
	}
	op.Parameters = append(op.Parameters, op.headers(verb, path)...)
	op.Responses = op.success(s, verb)
	for _, st := range statuses {
		if op.mayAnswer(st.code, verb) {
			op.Responses[fmt.Sprint(st.code)] = st.reference()
		}
	}
	op.Responses["default"] = object{"$ref": "#/components/responses/Failure"}
}

// importBody is the body of an import.
var importBody = object{"required": true, "content": object{
	"application/x-ndjson": object{"schema": object{
		"type": "string", "description": "The documents, one on each line.",
		"contentMediaType": "application/x-ndjson",
	}},
	"application/json": object{"schema": object{
		"type": "array", "description": "The documents, of any number.",
		"items": object{"$ref": "#/components/schemas/Document"},
	}},
	"text/csv": object{"schema": object{
		"type": "string", "description": "The documents as rows. The first row has the names of " +
			"the fields, with types where they are needed: `_id,at.date(),address.city`.",
		"contentMediaType": "text/csv",
	}},
	"application/bson": object{"schema": binary("The documents, one after the other.")},
}}

// conditionParams go with conditions on fields.
var conditionParams = []object{
	query("order", "The sort as a list of fields, with `-` in front for descending: "+
		"`-placed,total`.", object{"type": "string"}),
	query("select", "The fields that documents have, and no others: `_id,total`; or, with `-` in "+
		"front of each, those that they lose.", object{"type": "string"}),
}

// countParam asks for the total of a page.
var countParam = query("count", "`exact`: the header Mooring-Total-Count has how many documents "+
	"match, in all pages.", object{"type": "string", "enum": []string{"exact"}})

// takesConditions reports whether parameters that are not listed are conditions on fields.
func (op *operation) takesConditions() bool {
	return op.method.Name() == "Find" || op.method.Name() == "StreamFind"
}

// importRows are the parameters of a body of rows.
var importRows = []object{
	query("columns", "The names of the fields, and types, of CSV without a header row.",
		object{"type": "string"}),
	query("delimiter", "The character between cells, or `tab`.", object{"type": "string"}),
}

// exportRows are the parameters of a stream whose form is CSV.
var exportRows = []object{
	query("columns", "Of `Accept: text/csv`: the fields of a row, with types where a value of "+
		"another type is an error. Without it, the columns are those of the projection.",
		object{"type": "string"}),
	query("delimiter", "Of `Accept: text/csv`: the character between cells, or `tab`.",
		object{"type": "string"}),
}

// isExport reports whether a method streams the documents of a query.
func isExport(m protoreflect.MethodDescriptor) bool {
	fields := m.Output().Fields()
	return m.IsStreamingServer() && fields.ByName("documents") != nil &&
		fields.ByName("resume_token") == nil && !isLive(m)
}

// contentEncoding is a header of bodies that may be compressed.
var contentEncoding = object{
	"name": "Content-Encoding", "in": "header", "description": "How the body is compressed.",
	"schema": object{"type": "string", "enum": []string{"gzip", "zstd", "identity"}},
}

// binary returns the schema of bytes.
func binary(description string) object {
	return object{"type": "string", "format": "binary", "description": description}
}

func (op *operation) has(field protoreflect.Name) bool {
	return op.method.Input().Fields().ByName(field) != nil
}

// exactlyOnce lists the operations that take an idempotency key.
var exactlyOnce = []protoreflect.Name{
	"InsertOne", "InsertMany", "UpdateOne", "ReplaceOne", "DeleteOne", "FindOneAndUpdate",
	"FindOneAndReplace", "FindOneAndDelete", "BulkWrite", "PutDocument", "PatchDocument",
	"DeleteDocument",
}

// headers returns the parameters that every operation of this kind takes, as references.
func (op *operation) headers(verb, path string) []object {
	var names []string
	if path != ticketPath {
		if op.has("session") {
			names = append(names, "session")
		}
		if op.has("transaction") {
			names = append(names, "transaction")
		}
	}
	if slices.Contains(exactlyOnce, op.method.Name()) {
		names = append(names, "idempotencyKey")
	}
	if op.isResource() {
		names = append(names, resourceHeaders(verb)...)
	}
	if verb == "get" && op.method.IsStreamingServer() && !isLive(op.method) {
		names = append(names, "lastEventID")
	}
	names = append(names, "deadline", "requestID", "timeout")
	refs := make([]object, len(names))
	for i, name := range names {
		refs[i] = object{"$ref": "#/components/parameters/" + name}
	}
	return refs
}

// mayAnswer reports whether an operation can fail with a status.
func (op *operation) mayAnswer(code int, verb string) bool {
	switch code {
	case 405, 499: // of paths that are not an operation; of clients that do not read the answer
		return false
	case 408, 413, 415: // about bodies
		return verb != "get" && verb != "delete" || code == 408 && op.method.IsStreamingServer()
	case 414:
		return verb == "get"
	case 409:
		return verb != "get" && (op.has("transaction") || op.has("cursor"))
	case 410:
		return op.method.FullName() == watchMethod
	case 412:
		return op.method.FullName() == "mooring.v1.TransactionService.Run" || op.isResource()
	}
	return true
}

// success returns the responses of calls that succeed.
func (op *operation) success(s *schemas, verb string) object {
	m := op.method
	if op.isResource() {
		return resourceSuccess(s, verb)
	}
	if m.IsStreamingServer() {
		all := object{"200": streamResponse(s, m)}
		if verb == "get" && !isLive(m) {
			all["204"] = object{
				"description": "The stream that Last-Event-ID belongs to has ended.",
				"headers":     headers("Mooring-Request-Id"),
			}
		}
		return all
	}
	schema := s.ref(m.Output())
	content := object{
		"application/json": object{"schema": schema}, "application/ejson": object{"schema": schema},
	}
	names := []string{"Mooring-Request-Id"}
	if m.Output().Fields().ByName("session") != nil {
		names = append(names, "Mooring-Session")
	}
	if isPage(m) {
		content["application/bson"] = object{"schema": binary("The documents, one after the " +
			"other; the cursor is in the header Mooring-Cursor.")}
		names = append(names, "Mooring-Cursor")
		if op.takesConditions() && verb == "get" {
			names = append(names, "Mooring-Total-Count")
		}
	}
	answer := object{
		"description": "What the call returns.", "headers": headers(names...), "content": content,
	}
	all := object{"200": answer}
	if op.has("return_partial_success") {
		all["207"] = object{
			"description": "With returnPartialSuccess: some writes have failed, and writeErrors " +
				"says which.",
			"headers": headers(names...),
			"content": object{
				"application/json":  object{"schema": schema},
				"application/ejson": object{"schema": schema},
			},
		}
	}
	return all
}

func isPage(m protoreflect.MethodDescriptor) bool {
	fields := m.Output().Fields()
	return fields.ByName("documents") != nil && fields.ByName("cursor") != nil
}

// isLive reports whether the documents of a stream come in kinds.
func isLive(m protoreflect.MethodDescriptor) bool {
	return m.Output().Fields().ByName("kind") != nil && m.IsStreamingServer()
}

// streamResponse describes a stream. Its schemas are texts, so that clients do not read all of it
// as one value; the schema of its lines has a name.
func streamResponse(s *schemas, m protoreflect.MethodDescriptor) object {
	description := "A stream. The last line is an end or an error; with `Accept: " +
		"application/x-ndjson;bare=true` there are only documents."
	events := "Server-Sent Events: documents have no event name; `failure` has an error, and " +
		"`end` is the last one."
	if isLive(m) {
		description = "A stream without an end. Only its last line is an error."
		events = "Server-Sent Events: `added`, `changed` and `removed` have a document each, and " +
			"`ready` an empty object; `failure` has an error."
	}
	content := object{
		"application/x-ndjson": object{"schema": object{
			"type":             "string",
			"description":      "Lines, each of which is a value of contentSchema.",
			"contentMediaType": "application/x-ndjson", "contentSchema": s.line(m),
		}},
		"text/event-stream": object{"schema": object{
			"type": "string", "contentMediaType": "text/event-stream",
			"description": events,
		}},
	}
	if isExport(m) {
		content["text/csv"] = object{"schema": object{
			"type": "string", "contentMediaType": "text/csv",
			"description": "A row of names, and one for each document. A failure aborts the body.",
		}}
	}
	return object{
		"description": description, "headers": headers("Mooring-Request-Id"), "content": content,
	}
}
