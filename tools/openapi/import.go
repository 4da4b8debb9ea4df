package main

import "google.golang.org/protobuf/reflect/protoreflect"

// importPath is the path of Import, which is a client stream and has no annotation.
const importPath = "/v1/databases/{database}/collections/{collection}/documents:import"

// importOperation describes Import as REST has it: options in the query, documents in the body.
func importOperation(s *schemas) *operation {
	found, err := s.files.FindDescriptorByName("mooring.v1.DocumentService.Import")
	method, ok := found.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		panic("bug: there is no Import")
	}
	op := &operation{
		Tags: []string{"DocumentService"}, OperationID: "DocumentService_Import",
		Description: comment(method),
		RequestBody: object{"required": true, "content": object{
			"application/x-ndjson": object{"schema": s.ref(s.message("mooring.v1.Document"))},
			"application/bson": object{"schema": object{
				"description": "The documents, one after the other.",
			}},
		}},
	}
	for _, name := range []string{"database", "collection"} {
		op.Parameters = append(op.Parameters, object{
			"name": name, "in": "path", "required": true, "schema": object{"type": "string"},
			"description": "The " + name + "." + tildeNote,
		})
	}
	op.Parameters = append(op.Parameters, s.queryOf(method.Input(), []string{
		"ordered", "bypass_document_validation", "return_partial_success", "write_concern",
		"comment",
	})...)
	timeout := object{"$ref": "#/components/parameters/timeout"}
	op.Parameters = append(op.Parameters, timeout)
	failure := object{"$ref": "#/components/responses/Error"}
	op.Responses = object{"200": s.success(method), "4XX": failure, "default": failure}
	return op
}
