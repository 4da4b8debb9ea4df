package main

import "google.golang.org/protobuf/reflect/protoreflect"

const (
	// watchMethod is the method whose streams tickets open.
	watchMethod = "mooring.v1.ChangeStreamService.Watch"
	// ticketPath is the path of a ticket, which has no annotation.
	ticketPath = "/v1/changeStreams/{ticket}"
)

// ticketOperation describes the stream of a ticket, whose request is in the ticket.
func ticketOperation(s *schemas) *operation {
	found, err := s.files.FindDescriptorByName(watchMethod)
	method, ok := found.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		panic("bug: there is no Watch")
	}
	failure := object{"$ref": "#/components/responses/Error"}
	return &operation{
		Tags: []string{"ChangeStreamService"}, OperationID: "ChangeStreamService_WatchTicket",
		Description: "The stream that the ticket was made for, as the client that has asked for " +
			"it. It needs no credentials.",
		Parameters: []object{
			{
				"name": "ticket", "in": "path", "required": true,
				"schema": object{"type": "string"}, "description": "The ticket.",
			},
			{"$ref": "#/components/parameters/timeout"},
		},
		Responses: object{"200": s.success(method), "4XX": failure, "default": failure},
	}
}
